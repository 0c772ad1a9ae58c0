"""Parquet files with column types that are inferred from the values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from constrain.errors import RunError

try:
    import pyarrow as pa
    from pyarrow import parquet
except ImportError as error:
    raise RunError("Parquet needs pyarrow, which is not installed: pip install 'constrain-lm[documents]'") from error

#: Rows in memory at a time.
_BATCH = 8192


def write_parquet(path: Path, columns: Sequence[str], rows: Callable[[], Iterator[dict[str, Any]]]) -> None:
    """Write rows to a Parquet file.

    Args:
        path: the file.
        columns: the columns. One whose values have no common type gets their JSON texts.
        rows: returns an iterator over the rows; called twice.

    Raises:
        RunError: a value does not fit into its column.
    """
    types: dict[str, pa.DataType | None] = dict.fromkeys(columns, pa.null())
    for batch in _batches(rows):
        for name in columns:
            types[name] = _common_type(types[name], [row.get(name) for row in batch])
    schema = pa.schema({name: kind if _is_useful(kind) else pa.string() for name, kind in types.items()})
    try:
        with parquet.ParquetWriter(path, schema) as writer:
            for batch in _batches(rows):
                values = {name: [_stored(row.get(name), types[name]) for row in batch] for name in columns}
                writer.write_table(pa.table(values, schema))
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise RunError(f"cannot write the records as Parquet: {error}; they are in the journal") from error


def _batches(rows: Callable[[], Iterator[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    valid = ({name: _valid(value) for name, value in row.items()} for row in rows())
    while batch := list(islice(valid, _BATCH)):
        yield batch


def _valid(value: Any) -> Any:
    """Return a value as Unicode, which the name of a file need not be."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _common_type(known: pa.DataType | None, values: Sequence[Any]) -> pa.DataType | None:
    """Return the type of values known so far and further ones, or ``None`` if they have none in common."""
    if known is None or _mixes(values):
        return None
    try:
        found = pa.array(values).type
        schemas = [pa.schema({"": kind}) for kind in (known, found)]
        return pa.unify_schemas(schemas, promote_options="permissive").field("").type
    except (ValueError, OverflowError, pa.ArrowException):
        return None


def _mixes(values: Sequence[Any]) -> bool:
    """Return whether values, or items or members of them, are fractions beside ``True``, which Arrow takes for 1.0."""
    if {bool, float} <= {*map(type, values)}:
        return True
    items = [item for value in values if isinstance(value, list) for item in value]
    objects = [value for value in values if isinstance(value, dict)]
    names = {name for each in objects for name in each}
    return bool(items and _mixes(items)) or any(
        _mixes([each[name] for each in objects if name in each]) for name in names
    )


def _is_useful(kind: pa.DataType | None) -> bool:
    """Return whether a column can have a type; one without fields cannot be stored, and one of nulls helps nobody."""
    return kind is not None and kind != pa.null() and "struct<>" not in str(kind)


def _stored(value: Any, kind: pa.DataType | None) -> Any:
    return value if value is None or _is_useful(kind) else json.dumps(value, ensure_ascii=False)
