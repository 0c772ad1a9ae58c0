"""Limits and keys of a server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerSettings:
    """Limits and keys of a server.

    Attributes:
        api_keys: keys, one of which a client has to send; empty: none is needed.
        max_requests: most outputs that run or wait at a time; further requests are refused with 429.
        timeout: seconds after which a request is cancelled; ``None``: never.
        max_body_bytes: largest body of a request.
        max_stored_characters: most characters of the responses that later requests may continue; 0: none is stored.
    """

    api_keys: tuple[str, ...] = ()
    max_requests: int = 1024
    timeout: float | None = 600.0
    max_body_bytes: int = 32 << 20
    max_stored_characters: int = 64 << 20
