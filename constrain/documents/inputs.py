"""Inputs of a run: files, folders, patterns, standard input and the rows of tables."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from glob import glob, has_magic
from io import UnsupportedOperation
from pathlib import Path

from constrain.arguments import check_type, refused
from constrain.documents.document import Document
from constrain.documents.encodings import check_encoding
from constrain.documents.read import SUFFIXES, read, read_bytes
from constrain.documents.tables import TABLES, Row, columns, is_table, rows
from constrain.errors import ArgumentError, DocumentError

#: The argument and source that stand for standard input.
STDIN = "-"


@dataclass(frozen=True)
class Source:
    """A document that has not been read yet.

    Attributes:
        name: the path; ``"-"`` for standard input; ``"<path>#<row>"`` for a row of a table, where the row is its value
            in the column of ids, or else its number, from 1.
        read: reads the document, whose ``source`` is the name; raises a :class:`~constrain.errors.DocumentError` if
            that fails.
    """

    name: str
    read: Callable[[], Document]


def inputs(
    paths: Iterable[str | Path],
    *,
    column: str | None = None,
    ids: str | None = None,
    encoding: str | None = None,
    leave_out: Iterable[str | Path] = (),
) -> Iterator[Source]:
    """Yield the documents that the arguments of a command name, one at a time and unread.

    Args:
        paths: files, whose format is that of their suffix, or else of their content; folders, of which all files with
            a known suffix are taken, in order; patterns such as ``"mails/**/*.eml"``; ``"-"`` is standard input.
        column: column of the texts in tables (CSV, TSV, JSON Lines, Parquet); each row is then a document, with the
            other columns as metadata. Without it, tables in folders are left out, and others are read as texts.
        ids: column of the rows' names. A row without one is named by its number, as by default.
        encoding: the encoding of texts, pages and tables; by default as their mark says, UTF-8, or detected.
        leave_out: files that are no documents wherever they are found, such as the output of an earlier run.

    A file that several arguments name is one document.

    Raises:
        ArgumentError: the paths are no list, there is no such encoding, or a column is named and no file is a table.
        DocumentError: a folder or pattern has no file, or a table has no such column.
    """
    if isinstance(paths, (str, bytes, os.PathLike)) or not isinstance(paths, Iterable):
        raise refused("paths", paths, "a list of paths")
    check_encoding(encoding)
    others = {Path(path).resolve() for path in leave_out}
    named: dict[str, str] = {}
    for path in paths:
        check_type("a path", path, (str, Path), "a str or a Path")
        for file in _files(str(path), column):
            if not _is_one_of(Path(file), others):
                named.setdefault(os.path.normpath(file), file)
    files = list(named.values())
    tables = [] if column is None else list(filter(is_table, files))
    if column is not None and not tables:
        raise ArgumentError(f"column {column!r} is one of tables ({', '.join(sorted(TABLES))}), and no file is a table")
    for table in tables:
        _check_columns(table, (column, ids), encoding)
    return _sources(files, column, ids, encoding)


def left_out(paths: Iterable[str], *, column: str | None = None, leave_out: Iterable[str | Path] = ()) -> Counter[str]:
    """Count the files of folders that :func:`inputs` leaves out for their suffix, by suffix in lower case.

    Hidden files count as little as those of ``leave_out``. Arguments as for :func:`inputs`.
    """
    others = {Path(path).resolve() for path in leave_out}
    known = _known(column)
    folders = [Path(path) for path in paths if _is_folder(path)]
    found = ((folder, file) for folder in folders for file in folder.rglob("*"))
    visible = (file for folder, file in found if file.is_file() and not _is_hidden(file, folder))
    suffixes = ((file, file.suffix.lower()) for file in visible)
    return Counter(suffix for file, suffix in suffixes if suffix not in known and not _is_one_of(file, others))


def _files(path: str, column: str | None) -> list[str]:
    """Return the files that an argument names."""
    if not path:
        raise DocumentError("''", "an empty name is no document")
    if _is_folder(path):
        known = _known(column)
        return _found(path, [file for file in Path(path).rglob("*") if _is_listed(file, Path(path), known)])
    if has_magic(path) and not os.path.exists(path):  # noqa: PTH110  # as in _is_folder
        found = glob(path, recursive=True)  # noqa: PTH207  # Path.glob takes no absolute patterns
        return _found(path, _once([file for file in map(Path, found) if file.is_file()]))
    return [path]


def _once(files: Iterable[Path]) -> list[Path]:
    """Leave out the files of folders that a pattern reaches once more, through links."""
    by_depth = sorted(files, key=lambda file: (len(file.parts), file))
    folders = {file.parent: file.parent.resolve() for file in by_depth}
    kept: dict[Path, Path] = {}
    for file in by_depth:
        kept.setdefault(folders[file.parent] / file.name, file)
    return list(kept.values())


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  # Path.is_dir raises where the name is too long


def _known(column: str | None) -> set[str]:
    """Return the suffixes of the files that are taken from folders."""
    return {*SUFFIXES, *(TABLES if column else ())}


def _is_one_of(file: Path, others: Collection[Path]) -> bool:
    # Resolving takes time, so that it is done only for links and files of the same name.
    return any(file.name == other.name or file.is_symlink() for other in others) and file.resolve() in others


def _found(path: str, files: list[Path]) -> list[str]:
    if not files:
        raise DocumentError(path, "no file is there that can be read: check the path, and the suffixes of its files")
    return sorted(map(str, files))


def _is_listed(file: Path, folder: Path, known: Collection[str]) -> bool:
    """Whether a file of a folder is a document; hidden files and folders are left out."""
    return file.suffix.lower() in known and file.is_file() and not _is_hidden(file, folder)


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _sources(files: list[str], column: str | None, ids: str | None, encoding: str | None) -> Iterator[Source]:
    for file in files:
        if file == STDIN:
            yield Source(STDIN, lambda: read_bytes(_standard_input(), STDIN, encoding=encoding))
        elif column is not None and is_table(file):
            yield from _row_sources(file, column, ids, encoding)
        else:
            yield Source(file, partial(read, file, encoding=encoding))


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise DocumentError(STDIN, "standard input is closed")
    # A file of its own, since a thread that still reads sys.stdin when the program ends makes Python abort.
    with suppress(UnsupportedOperation), open(sys.stdin.fileno(), "rb", closefd=False) as file:
        return file.read()
    return sys.stdin.buffer.read()  # a substitute without a file


def _row_sources(file: str, column: str, ids: str | None, encoding: str | None) -> Iterator[Source]:
    """Yield the rows of a table. A row whose name an earlier one has cannot be told from it: its error says so."""
    numbers: dict[str, int] = {}
    for row in rows(file, encoding):
        label = _label(row, ids)
        name = f"{file}#{label}"
        first = numbers.setdefault(label, row.number)
        if first == row.number:
            yield Source(name, partial(_row_document, name, row, column))
        else:
            name = f"{name} (row {row.number})"
            error = f"rows {first} and {row.number} have the same {ids!r}, {label!r}: give a column that names each row"
            yield Source(name, partial(_row_document, name, replace(row, error=error), column))


def _label(row: Row, ids: str | None) -> str:
    """Return the name of a row: its value in the column of ids, or its number if it has none there."""
    value = None if ids is None else row.values.get(ids)
    is_name = isinstance(value, (str, int, float)) and not isinstance(value, bool) and str(value).strip()
    return str(value) if is_name else str(row.number)


def _row_document(name: str, row: Row, column: str) -> Document:
    if row.error is not None:
        raise DocumentError(name, row.error)
    if column not in row.values:
        raise DocumentError(name, f"the row has no column {column!r}, but {', '.join(map(str, row.values))}")
    text = row.values[column]
    if text is not None and not isinstance(text, str):
        raise DocumentError(name, f"column {column!r} is not a text ({type(text).__name__})")
    return Document(text or "", name, {key: value for key, value in row.values.items() if key != column})


def _check_columns(file: str, wanted: Iterable[str | None], encoding: str | None) -> None:
    """Raise if a table is known to lack a column, or to have it twice."""
    found = columns(file, encoding)
    for name in wanted:
        if found is not None and found.count(name or "") > 1:
            raise DocumentError(file, f"the table has several columns {name!r}: rename all but one")
        if found is not None and name is not None and name not in found:
            others = f", but {', '.join(found)}" if found else ": it is empty"
            raise DocumentError(file, f"the table has no column {name!r}{others}")
