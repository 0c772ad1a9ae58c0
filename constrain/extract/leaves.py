"""The leaves of a JSON text: its values that hold no others, with their paths and offsets."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

#: A string, an empty list or object, a bracket, or another scalar, after white space, commas and colons.
_TOKEN = re.compile(rb'[\s,:]*("[^"\\]*(?:\\.[^"\\]*)*"|\[\s*\]|\{\s*\}|[\[\]{}]|[^\s,:"\[\]{}]+)', re.DOTALL)


class Leaf(NamedTuple):
    """A value that holds no others: a string, number, boolean or null, or an empty list or object.

    Attributes:
        path: the names and indices that lead to it.
        separator: offset of the colon, comma or bracket before it; 0 if it is the whole text.
        start, end: offsets of its bytes.
        text: its JSON text.
    """

    path: tuple[str | int, ...]
    separator: int
    start: int
    end: int
    text: bytes

    @property
    def is_number(self) -> bool:
        return self.text[:1] in b"-0123456789"


def find_leaves(record: bytes) -> list[Leaf]:
    """Find the leaves of a valid JSON text, in order."""
    leaves: list[Leaf] = []
    path: list[Any] = []  # names and indices; ``None`` where a name comes next
    for token in _TOKEN.finditer(record):
        text = token[1]
        if path and path[-1] is None and text != b"}":
            path[-1] = _text(text)
        elif text in (b"{", b"["):
            path.append(None if text == b"{" else 0)
        else:
            if text in (b"}", b"]"):
                path.pop()
            else:
                leaves.append(Leaf(tuple(path), _separator(record, token), *token.span(1), text))
            if path:
                path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
    return leaves


def _separator(record: bytes, token: re.Match[bytes]) -> int:
    """Return the offset of the comma, colon or bracket before a value."""
    before = max(0, token.start() - 1)  # a bracket, or the end of the value or name before a comma or colon
    return max(0, before + len(record[before : token.start(1)].rstrip()) - 1)


def _text(string: bytes) -> str:
    """Return the text of a JSON string."""
    text = string.decode("utf-8", "surrogatepass")
    return str(json.loads(text)) if "\\" in text else text[1:-1]


def marked(leaves: list[Leaf], record: Any) -> Any:
    """Return a parsed JSON text with the number of each leaf, as a string, in its place."""
    numbers = {leaf.path: str(number) for number, leaf in enumerate(leaves)}

    def visit(node: Any, path: tuple[str | int, ...]) -> Any:
        if path in numbers:
            return numbers[path]
        if isinstance(node, dict):
            return {name: visit(child, (*path, name)) for name, child in node.items()}
        return [visit(child, (*path, index)) for index, child in enumerate(node)]

    return visit(record, ())
