"""Limits and keys of a server."""

from __future__ import annotations

import re
from dataclasses import dataclass

from constrain.errors import ArgumentError

#: A scheme, a host, and maybe a port, as browsers name them.
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://([^\s/?#A-Z]+|\[[0-9a-f:]+\])(:[0-9]+)?|null")


@dataclass(frozen=True)
class ServerSettings:
    """Limits and keys of a server.

    Attributes:
        api_keys: keys, one of which a client has to send; empty: none is needed.
        max_requests: most outputs that run or wait at a time; further requests are refused with 429.
        timeout: seconds after which a request is cancelled; ``None``: never.
        max_body_bytes: largest body of a request.
        max_document_bytes: longest document of ``/v1/extract``, in UTF-8.
        max_stored_characters: most characters of the responses that later requests may continue; 0: none is stored.
        max_images: most images of a request.
        max_image_pixels: most pixels of an image, width times height.
        fetch_images: whether images may be given by ``http:`` and ``https:`` addresses, public ones only; else as
            ``data:`` URLs.
        allowed_origins: origins of pages, such as ``https://example.com``, whose scripts a browser lets read responses;
            ``*``: of all.
        max_image_bytes, fetch_timeout: most bytes of an image that is fetched, and most seconds that it takes.
    """

    api_keys: tuple[str, ...] = ()
    max_requests: int = 1024
    timeout: float | None = 600.0
    max_body_bytes: int = 32 << 20
    max_document_bytes: int = 4 << 20
    max_stored_characters: int = 64 << 20
    max_images: int = 64
    max_image_pixels: int = 1 << 25
    fetch_images: bool = False
    max_image_bytes: int = 20 << 20
    fetch_timeout: float = 10.0
    allowed_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ArgumentError(
                    f"{origin!r} is no origin; one is *, or like https://example.com or http://localhost:3000"
                )
