"""Incremental reading of JSON: where a document ends, and which of its values are complete."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from constrain.serve.errors import pointer

_SPACE = " \t\r\n"


@dataclass
class _Open:
    """An object or array that is being written.

    Attributes:
        start: index of its bracket.
        key: key of the member, or index of the item, that is being written.
        is_key: whether the next string is a key.
    """

    start: int
    key: str | int
    is_key: bool


class JSONReader:
    """Reads a document piece by piece.

    Attributes:
        text: what was read.
        end: length of the document with everything that belongs to it, once it is complete.
    """

    def __init__(self) -> None:
        self.text = ""
        self.end: int | None = None
        self._place = 0
        self._open: list[_Open] = []
        self._scalar: int | None = None
        self._in_string = False

    def feed(self, text: str) -> list[tuple[str, Any]]:
        """Read a piece; return the JSON pointers and values of what became complete, inner values first."""
        self.text += text
        found: list[tuple[str, Any]] = []
        while self._place < len(self.text) and self.end is None:
            char = self.text[self._place]
            if self._in_string:
                self._read_string(char, found)
            else:
                self._read(char, found)
        return found

    def finish(self) -> list[tuple[str, Any]]:
        """Return the value that only the end of the text completes: a number."""
        found: list[tuple[str, Any]] = []
        if self._scalar is not None and not self._in_string:
            self._complete(self._scalar, self._place, found)
        return found

    def _read_string(self, char: str, found: list[tuple[str, Any]]) -> None:
        if char == "\\":
            self._place += 1  # what is escaped is no end; its first character may still be missing
        self._place += 1
        if char == '"':
            self._in_string = False
            self._end_string(found)

    def _end_string(self, found: list[tuple[str, Any]]) -> None:
        assert self._scalar is not None
        start = self._scalar
        if self._open and self._open[-1].is_key:
            self._open[-1].key = json.loads(self.text[start : self._place])
            self._open[-1].is_key = False
            self._scalar = None
        else:
            self._complete(start, self._place, found)

    def _read(self, char: str, found: list[tuple[str, Any]]) -> None:
        if self._scalar is not None and char in _SPACE + ",]}":
            self._complete(self._scalar, self._place, found)
            return
        self._place += 1
        if char in "{[":
            self._open.append(_Open(self._place - 1, "" if char == "{" else 0, char == "{"))
        elif char in "}]":
            self._complete(self._open.pop().start, self._place, found)
        elif char == ",":
            self._next_member()
        elif char not in _SPACE + ":" and self._scalar is None:
            self._scalar, self._in_string = self._place - 1, char == '"'

    def _next_member(self) -> None:
        top = self._open[-1]
        if isinstance(top.key, int):
            top.key += 1
        else:
            top.is_key = True

    def _complete(self, start: int, end: int, found: list[tuple[str, Any]]) -> None:
        self._scalar = None
        found.append((pointer(*(each.key for each in self._open)), json.loads(self.text[start:end])))
        if not self._open:
            self.end = end
