"""The leaves of a JSON text: its values that hold no others, with their places."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: A string, an empty list or object, a bracket, or another scalar, after what may stand before it.
_TOKEN = re.compile(rb'[\s,:]*("(?:[^"\\]|\\.)*"|\[\s*\]|\{\s*\}|[\[\]{}]|[^\s,:"\[\]{}]+)', re.DOTALL)


@dataclass(frozen=True)
class Leaf:
    """A value that holds no others: a string, number, boolean or null, or an empty list or object.

    Attributes:
        path: the names and indices that lead to it.
        separator: place of the colon, comma or bracket before it; 0 if it is the whole text.
        start, end: its bytes.
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
    return list(_Scanner(record).leaves(()))


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


def _text(string: bytes) -> str:
    """Return the text of a JSON string."""
    text = string.decode("utf-8", "surrogatepass")
    return str(json.loads(text)) if "\\" in text else text[1:-1]


class _Scanner:
    """Reads the tokens of a JSON text one after the other."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self._tokens = _TOKEN.finditer(record)

    def leaves(self, path: tuple[str | int, ...]) -> Iterator[Leaf]:
        """Yield the leaves of the next value."""
        return self._value(next(self._tokens), path)

    def _value(self, token: re.Match[bytes], path: tuple[str | int, ...]) -> Iterator[Leaf]:
        if token[1] == b"{":
            for name in self._until(b"}"):
                yield from self.leaves((*path, _text(name[1])))
        elif token[1] == b"[":
            for index, item in enumerate(self._until(b"]")):
                yield from self._value(item, (*path, index))
        else:
            start, end = token.span(1)
            before = max(0, token.start() - 1)  # a bracket, or the end of the value or name before a comma or colon
            separator = before + len(self._record[before:start].rstrip()) - 1
            yield Leaf(path, max(0, separator), start, end, token[1])

    def _until(self, closing: bytes) -> Iterator[re.Match[bytes]]:
        for token in self._tokens:
            if token[1] == closing:
                return
            yield token
