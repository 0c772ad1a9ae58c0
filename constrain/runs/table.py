"""Tables of a run: CSV, Parquet and JSON, written from the journal at the end of a run.

A JSON file is an array of the lines. In the others, each line is a row. Its columns are ``source``, the members of
``part``, the leaves of the record by their JSON pointer, and ``error``. A list is one column: JSON text in CSV, a list
in Parquet.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from constrain.engine.pointers import pointer
from constrain.errors import RunError
from constrain.runs.journal import Journal, io_errors
from constrain.runs.key import SETTINGS_DIGITS
from constrain.runs.lines import Line, encode_line

#: Suffixes of tables.
SUFFIXES = (".csv", ".parquet", ".json")

Row: TypeAlias = dict[str, Any]
#: Writes rows, which can be read several times, with these columns to a file.
RowWriter: TypeAlias = Callable[[Path, Sequence[str], Callable[[], Iterator[Row]]], None]
#: Writes lines, which can be read several times, to a file.
Writer: TypeAlias = Callable[[Path, Callable[[], Iterator[Line]]], None]


def journal_of(output: Path) -> Path:
    """Return the path of the journal of an output: beside it if it is a table, else itself."""
    return output.with_name(f"{output.name}.jsonl") if output.suffix.lower() in SUFFIXES else output


class Table(Journal):
    """A journal beside a table, which is written from it when the run ends.

    Attributes:
        table: path of the table; the journal is beside it, with ``.jsonl`` after its name.
    """

    def __init__(self, path: str | Path) -> None:
        """
        Args:
            path: the table, with the suffix ``.csv``, ``.parquet`` or ``.json``.

        Raises:
            OutputInUse: another run writes the table.
            RunError: the table or its journal cannot be written, or the table is not the output of a run.
        """
        self.table = Path(path)
        self._write_table = _writer(self.table.suffix)
        journal = journal_of(self.table)
        with io_errors(self.table):
            is_other = self.table.exists() and not journal.exists()
        if is_other:
            raise RunError(
                f"{self.table} is not the output of a run, since {journal.name} is not beside it: choose another file"
            )
        super().__init__(journal)

    def finish(self, keys: Iterable[str]) -> None:
        """Put the journal in order, and write a table of all its lines with the settings of these keys."""
        keys = list(keys)
        super().finish(keys)
        settings = {key[:SETTINGS_DIGITS] for key in keys}
        if not settings:
            return
        with io_errors(self.table), _replaced(self.table) as path:
            self._write_table(path, lambda: self._lines(settings))

    def num_others(self, settings: str) -> int:
        """Return 0: the table has no lines of other settings, though the journal may."""
        return 0

    def _lines(self, settings: set[str]) -> Iterator[Line]:
        with self.path.open("rb") as file:
            for raw in file:
                line = json.loads(raw)
                if line.get("key", "")[:SETTINGS_DIGITS] in settings:
                    yield line


def row_of(line: Line) -> Row:
    """Return the row of a line."""
    row = {"source": line["source"], **line.get("part", {})}
    if "error" in line:
        return row | {"error": f"{line['error']['type']}: {line['error']['message']}"}
    return row | {pointer(path) or "record": value for path, value in _leaves(line["record"], ())}


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the paths and values of members, down to those that are no objects."""
    if not isinstance(value, dict):
        yield path, value
        return
    for name, member in value.items():
        yield from _leaves(member, (*path, name))


def _columns(rows: Iterable[Row]) -> list[str]:
    """Return the columns of all rows, in the order of their first use, and errors last.

    An object that is null in some rows has its members as columns, and none itself.
    """
    has_values: dict[str, bool] = {}
    for row in rows:
        for name, value in row.items():
            has_values[name] = has_values.get(name, False) or value is not None
    parents = {name[:end] for name in has_values for end in range(1, len(name)) if name[end] == "/"}
    names = [name for name, is_used in has_values.items() if is_used or name not in parents]
    return sorted(names, key="error".__eq__)


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """Give the path of a new file, which replaces the old one in one step if all goes well."""
    new = path.with_name(f".{path.name}.new")
    try:
        yield new
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _writer(suffix: str) -> Writer:
    if suffix.lower() == ".json":
        return _write_json
    if suffix.lower() == ".csv":
        return partial(_write_rows, _write_csv)
    from constrain.runs.parquet import write_parquet

    return partial(_write_rows, write_parquet)


def _write_json(path: Path, lines: Callable[[], Iterator[Line]]) -> None:
    with path.open("wb") as file:
        file.write(b"[")
        for number, line in enumerate(lines()):
            file.write((b",\n" if number else b"\n") + encode_line(line).rstrip())
        file.write(b"\n]\n")


def _write_rows(write: RowWriter, path: Path, lines: Callable[[], Iterator[Line]]) -> None:
    def rows() -> Iterator[Row]:
        return map(row_of, lines())

    write(path, _columns(rows()), rows)


def _write_csv(path: Path, columns: Sequence[str], rows: Callable[[], Iterator[Row]]) -> None:
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(row.get(name)) for name in columns] for row in rows())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
