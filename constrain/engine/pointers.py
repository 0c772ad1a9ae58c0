"""JSON pointers (RFC 6901)."""

from __future__ import annotations

from collections.abc import Iterable


def pointer(path: Iterable[str | int]) -> str:
    """The pointer of a path: the keys and indices that lead to a value."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
