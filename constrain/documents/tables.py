"""Rows of tables: CSV, TSV, JSON Lines and Parquet, read as they are needed."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from constrain.documents.encodings import encoding_of
from constrain.documents.optional import optional
from constrain.errors import DocumentError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

#: Suffixes of tables.
TABLES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"})

_CSV = (".csv", ".tsv")
_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r"sep=([,;\t|])\r?\n?")
#: Bytes from which the encoding of a table is told.
_SAMPLE = 1 << 20
#: Characters of the longest cell of a CSV file; Python's own limit is 131,072.
_MAX_CELL = 1 << 30
#: Rows of a Parquet file that are in memory at a time.
_BATCH = 256


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        number: its number, from 1.
        values: its cells by column.
        error: what is wrong with it, if anything.
    """

    number: int
    values: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


def is_table(path: str) -> bool:
    """Return whether a file is a table by its suffix."""
    return _suffix(path) in TABLES


def rows(path: str, encoding: str | None = None) -> Iterator[Row]:
    """Yield the rows of a table; ``encoding`` is that of a text, by default detected.

    Raises:
        DocumentError: the file cannot be read. A row that cannot be read has an ``error`` instead.
    """
    suffix = _suffix(path)
    if suffix == ".parquet":
        return _parquet_rows(path)
    return (_csv_rows if suffix in _CSV else _json_rows)(path, encoding)


def columns(path: str, encoding: str | None = None) -> list[str] | None:
    """Return the columns of a table; ``None`` for JSON Lines, whose rows name their own. Errors as for :func:`rows`."""
    suffix = _suffix(path)
    if suffix == ".parquet":
        return list(_parquet(path).schema_arrow.names)
    if suffix in _CSV:
        with _opened(path, encoding) as file:
            return list(_csv(path, file, file).fieldnames or ())
    return None


def _suffix(path: str) -> str:
    return Path(path).suffix.lower()


def _csv_rows(path: str, encoding: str | None) -> Iterator[Row]:
    with _opened(path, encoding) as file:
        lines = _Lines(file)
        table = _csv(path, file, lines)
        try:
            for number, cells in enumerate(table, 1):
                if lines.is_at_end:
                    yield Row(number, error="a quotation mark is not closed, so that all further rows are in this one")
                elif None in cells:
                    yield Row(number, error="it has more cells than columns")
                else:
                    yield Row(number, cells)
        except csv.Error as error:
            raise DocumentError(path, f"line {table.line_num} is not CSV: {error}") from error


class _Lines(Iterator[str]):
    """The lines of a file.

    Attributes:
        is_at_end: whether more lines were asked for than there are, as Python's reader of CSV does within quotes only.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.is_at_end = False

    def __next__(self) -> str:
        line = self._file.readline()
        if not line:
            self.is_at_end = True
            raise StopIteration
        return line


def _csv(path: str, file: TextIO, lines: Iterator[str]) -> csv.DictReader[str]:
    """Return a reader of the lines of a file.

    The delimiter is a tab for TSV, else the one that a line before the header names, as Excel does (``sep=;``), or the
    most frequent candidate of the header.
    """
    csv.field_size_limit(_MAX_CELL)
    start, header = 0, file.readline()
    while header.isspace():  # empty lines before the header
        start, header = file.tell(), file.readline()
    named = _SEPARATOR.fullmatch(header)
    if named is None:
        file.seek(start)
    delimiter = "\t" if _suffix(path) == ".tsv" else named[1] if named else max(_DELIMITERS, key=header.count)
    return csv.DictReader(lines, delimiter=delimiter, restval="")


def _json_rows(path: str, encoding: str | None) -> Iterator[Row]:
    with _opened(path, encoding) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _json_row(number, line)


def _json_row(number: int, line: str) -> Row:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Row(number, error=f"it is not JSON: {error}")
    return Row(number, values) if isinstance(values, dict) else Row(number, error="it is not a JSON object")


def _parquet_rows(path: str) -> Iterator[Row]:
    batches = _parquet(path).iter_batches(batch_size=_BATCH)
    for number, values in enumerate((values for batch in batches for values in batch.to_pylist()), 1):
        yield Row(number, values)


def _parquet(path: str) -> ParquetFile:
    with optional(path):
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    try:
        return ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise DocumentError(path, f"it cannot be read as Parquet: {error}") from error


@contextmanager
def _opened(path: str, encoding: str | None) -> Iterator[TextIO]:
    """Open a table as text, by default in the encoding of its beginning."""
    try:
        with Path(path).open("rb") as file:
            beginning = file.read(_SAMPLE)
        # A character may be cut at the end of the sample: a line is not.
        sample = beginning[: beginning.rfind(b"\n") + 1] if len(beginning) == _SAMPLE else beginning
        with Path(path).open(encoding=encoding or encoding_of(sample, path), newline="") as text:
            yield text
    except OSError as error:
        raise DocumentError(path, (error.strerror or str(error)).lower()) from error
    except UnicodeDecodeError as error:
        raise DocumentError(path, f"it is not in one encoding: {error}; convert it to UTF-8") from error
