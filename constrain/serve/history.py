"""Calls in the conversation of a request: each result answers a call, and arguments are JSON."""

from __future__ import annotations

import json
from collections.abc import Collection

from constrain.serve.errors import APIError


def check_arguments(arguments: str, at: str) -> None:
    """Raise :class:`APIError` unless the arguments of a call are JSON; ``at`` is the JSON pointer to them."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise APIError(f"{at}: not JSON: {error}", param=at, code="invalid_value") from error


def check_answer(id: str, calls: Collection[str], at: str) -> None:
    """Raise :class:`APIError` unless the id of a result is one of ``calls``; ``at`` is the JSON pointer to the id."""
    if id not in calls:
        raise APIError(f"{at}: there is no call {id!r} before it", param=at, code="invalid_value")
