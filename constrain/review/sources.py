"""Texts of records, read again from where they came from."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from constrain.documents import Document, part_of, read
from constrain.documents.tables import Row, is_table, rows
from constrain.errors import DocumentError
from constrain.runs import Line, work_key
from constrain.runs.key import SETTINGS_DIGITS

_NO_SOURCE = "The text is not shown, because it came from standard input or had no name."
_MISSING = "The text is not shown: {}. Paths are those of the run: start “constrain review” in the same folder."
_CHANGED = "The source has changed since the record was extracted, so nothing is highlighted."


@dataclass(frozen=True)
class Found:
    """The text that a record was extracted from, as far as it was found.

    Attributes:
        document: the text; ``None`` if it is not there.
        note: what is wrong with it, in a sentence; empty if it is the text that the record was extracted from.
    """

    document: Document | None
    note: str = ""

    @property
    def is_unchanged(self) -> bool:
        """Whether the spans of the record are places in the text."""
        return self.document is not None and not self.note


class Sources:
    """Reads the sources of lines again. Of files, only the last one is kept: the parts of a file are lines in a row."""

    def __init__(self, lines: Iterable[Line], encoding: str | None = None) -> None:
        """
        Args:
            lines: all lines whose sources will be asked for.
            encoding: the encoding of texts, pages and tables, see :func:`constrain.documents.read`.
        """
        self._encoding = encoding
        self._wanted: defaultdict[str, set[str]] = defaultdict(set)
        self._paths: set[str] = set()
        for line in lines:
            table, name = _table_row(line)
            if table:
                self._wanted[table].add(name)
            self._paths.add(table or line.get("source") or "-")
        self._tables: dict[str, Mapping[str, Sequence[Row]]] = {}
        self._last: tuple[str | None, Document | DocumentError] = (None, Document(""))

    def has(self, path: Path) -> bool:
        """Return whether a file is one of the sources."""
        return _exists(path) and any(_exists(each) and path.samefile(each) for each in self._paths)

    def find(self, line: Line) -> Found:
        """Find the text of a line."""
        source = line.get("source")
        if source is None or source == "-":
            return Found(None, _NO_SOURCE)
        try:
            documents = [_part(document, line) for document in self._documents(line)]
        except DocumentError as error:
            return Found(None, _MISSING.format(error))
        unchanged = next((document for document in documents if _is_unchanged(document, line)), None)
        return Found(unchanged) if unchanged else Found(documents[0], _CHANGED)

    def _documents(self, line: Line) -> list[Document]:
        """Return the documents that the source may stand for: a line does not name the column of its text."""
        table, name = _table_row(line)
        if not table:
            return [self._file(line["source"])]
        if table not in self._tables:
            self._tables[table] = _rows_by_name(table, self._wanted[table], self._encoding)
        documents = [document for row in self._tables[table].get(name, ()) for document in _cells(row, line["source"])]
        if not documents:
            raise DocumentError(line["source"], "the table has no such row")
        return documents

    def _file(self, path: str) -> Document:
        if self._last[0] != path:
            self._last = path, _read(path, self._encoding)
        document = self._last[1]
        if isinstance(document, DocumentError):
            raise document
        return document


def _read(path: str, encoding: str | None) -> Document | DocumentError:
    try:
        return read(path, encoding=encoding)
    except DocumentError as error:
        return error


def _exists(path: str | Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110  # Path.exists raises where the name is too long


def _table_row(line: Line) -> tuple[str, str]:
    """Return the path of a line's table and the name of its row, or empty strings."""
    source = line.get("source") or ""
    table, _, name = source.rpartition("#")
    return (table, name) if is_table(table) and not _exists(source) else ("", "")


def _rows_by_name(table: str, wanted: set[str], encoding: str | None) -> dict[str, list[Row]]:
    """Return the rows that have one of these names: a row is named by its number, or by one of its cells."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows(table, encoding):
        for name in {str(row.number), *map(str, row.values.values())} & wanted:
            found[name].append(row)
    return found


def _cells(row: Row, source: str) -> Iterator[Document]:
    """Yield the texts of a row, the longest first, which is the likeliest."""
    texts = [value for value in row.values.values() if isinstance(value, str)]
    yield from (Document(text, source) for text in [*sorted(texts, key=len, reverse=True), ""])


def _part(document: Document, line: Line) -> Document:
    """Return the part of a document that a line is about."""
    span = line.get("part", {}).get("span")
    return part_of(document, *span) if span else document


def _is_unchanged(document: Document, line: Line) -> bool:
    """Whether a document is that of a record. The key has a digest of its text, unless another program wrote it."""
    key = line.get("key", "")
    expected = work_key(key[:SETTINGS_DIGITS], line["source"], line.get("part", {}), document.identity)
    if len(key) == len(expected):
        return "error" in line or key == expected
    return all(0 <= start <= end <= len(document.text) for start, end in _spans(line))


def _spans(line: Mapping[str, Any]) -> Iterator[Sequence[int]]:
    yield from line.get("spans", {}).values()
    for places in line.get("occurrences", {}).values():
        yield from places
