"""Blocks: the data of the page, compressed and in elements that browsers do not run."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

#: Largest integer that JavaScript holds exactly.
_MAX_INTEGER = 2**53 - 1
#: Bytes of JSON in a block. The page reads blocks as a whole, in some milliseconds for this size.
_BLOCK = 1 << 18


def data_block(name: str, value: Any) -> str:
    """Return an element that has a value as compressed JSON."""
    return _element(name, "application/gzip", gzip.compress(_json(value), compresslevel=6, mtime=0))


def image_block(name: str, image: bytes) -> str:
    """Return an element that has an image, in WebP."""
    return _element(name, "image/webp", image)


def grouped(things: Iterable[T], content: Callable[[T], Any]) -> Iterator[list[T]]:
    """Divide things into groups whose content is a block each."""
    group: list[T] = []
    size = 0
    for thing in things:
        group.append(thing)
        size += len(_json(content(thing)))
        if size >= _BLOCK:
            yield group
            group, size = [], 0
    if group:
        yield group


def _element(name: str, kind: str, content: bytes) -> str:
    return f'<script type="{kind}" id="{name}">{base64.b64encode(content).decode()}</script>\n'


def _json(value: Any) -> bytes:
    exact = _exact(value)
    try:
        return json.dumps(exact, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # the name of a file need not be text
        return json.dumps(exact, separators=(",", ":")).encode()


def _exact(value: Any) -> Any:
    """Return a value in which integers that JavaScript would round are objects with their digits."""
    if isinstance(value, Mapping):
        return {name: _exact(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(member) for member in value]
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        return {"$integer": str(value)}
    return value
