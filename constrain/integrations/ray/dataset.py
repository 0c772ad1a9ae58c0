"""Extraction in the batches of a Ray dataset."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from constrain.completion import Failure
from constrain.documents import Document, Source
from constrain.errors import ArgumentError, DocumentError
from constrain.extract import Calibration, Extraction, ExtractOptions, Target
from constrain.llm import load
from constrain.runs import LazyModel, Line, Run, encode_line, settings_of
from constrain.runs.work import read_works

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from constrain.runs.missing import Missing

#: Columns of the results, and their types.
_RESULTS = {"key": pa.string(), "line": pa.string(), "failed": pa.bool_()}


class Extractor:
    """Extracts a record from each row of a dataset; a class for ``map_batches`` with a pool of actors.

    Each row gets the columns ``key``, the key of its work; ``line``, the line that ``constrain extract`` would write,
    as JSON text; and ``failed``, whether that has an error instead of a record.

    With ``batch_format="pyarrow"`` the other columns are as they were. In the arrays that Ray makes by default, lists
    are objects that are pickled, and a column of integers of which one is missing has floats: a source 1 becomes
    ``"1.0"``, with another key.
    """

    def __init__(
        self,
        schema: Any,
        *,
        model: str | Path | None = None,
        column: str = "text",
        source_column: str | None = None,
        done: Collection[str] = (),
        calibration: Calibration | None = None,
        **options: Unpack[ExtractOptions],
    ) -> None:
        """
        Args:
            schema: schema of the records, as for :meth:`constrain.LLM.extract`.
            model: folder of the model, on every machine; the built-in one if omitted.
            column: column of the texts.
            source_column: column that says where the texts come from.
            done: keys of an earlier run; the rows with these keys are left out.
            calibration: see :func:`constrain.load`.
            options: as for :meth:`constrain.LLM.extract`.

        Raises:
            ModelError: the model cannot be used.
            SchemaError: the schema is not valid.
            ArgumentError: an option is wrong, or has no JSON form.
        """
        self._llm, self._target = load(model, calibration=calibration), Target.of(schema)
        self._column, self._source_column = column, source_column
        self._done, self._options = frozenset(done), options
        self._settings = settings_of(LazyModel.of(self._llm), self._target, options)

    def __call__(self, batch: Mapping[str, Any] | pa.Table) -> Any:
        """Extract from the rows of a batch: a table of Arrow, or a mapping of columns to arrays or lists.

        Returns:
            Another table, or else a dictionary of arrays.

        Raises:
            ArgumentError: a column is missing, or has the name of one of the results.
            RunError: many rows in a row failed unexpectedly.
        """
        self._check(batch.column_names if isinstance(batch, pa.Table) else [*batch])
        inputs = list(map(_input, _values(batch[self._column]), self._sources(batch)))
        keys = [work.key for work in read_works(self._settings, inputs)]
        lines = _Lines(self._done)
        Run(self._extract, self._target, self._settings, lines).extract(inputs)
        is_kept = np.array([key not in self._done for key in keys], dtype=bool)
        kept = [key for key in keys if key not in self._done]
        found = [lines.by_key[key] for key in kept]
        results = {
            "key": kept,
            "line": [encode_line(line).decode() for line in found],
            "failed": ["error" in line for line in found],
        }
        if not isinstance(batch, pa.Table):
            rows = {name: _array(values)[is_kept] for name, values in batch.items()}
            return rows | {name: np.array(results[name], kind.to_pandas_dtype()) for name, kind in _RESULTS.items()}
        table = batch.filter(pa.array(is_kept))
        for name, kind in _RESULTS.items():
            table = table.append_column(name, pa.array(results[name], kind))
        return table

    def _check(self, names: Collection[str]) -> None:
        """Check the names of the columns of a batch."""
        for name in (self._column, self._source_column):
            if name is not None and name not in names:
                raise ArgumentError(f"the rows have no column {name!r}, but {', '.join(map(str, names))}")
        if taken := ", ".join(repr(name) for name in _RESULTS if name in names):
            raise ArgumentError(f"the results would replace columns of the rows, which need another name: {taken}")

    def _sources(self, batch: Any) -> list[Any]:
        """Return where the rows come from, as far as that is known."""
        if self._source_column is None:
            return [None] * len(batch[self._column])
        return _values(batch[self._source_column])

    def _extract(self, missing: Missing) -> Generator[Extraction[Any] | Failure, None, None]:
        return self._llm.extract_many(self._target, missing, ordered=False, **self._options)


@dataclass
class _Lines:
    """The output of a run over one batch."""

    done: frozenset[str]
    by_key: dict[str, Line] = field(default_factory=dict)

    def has_record(self, key: str) -> bool:
        return key in self.done

    def has_failure(self, key: str) -> bool:
        return False

    def num_others(self, settings: str) -> int:
        return 0

    def append(self, line: Line, position: int = 0) -> None:
        self.by_key[line["key"]] = line

    def finish(self, keys: Iterable[str]) -> None:
        pass


def _array(values: Any) -> np.ndarray[Any, Any]:
    """Return a column as an array; the values of a list stay what they are, also if they have different types."""
    return np.asarray(values) if hasattr(values, "__array__") else np.fromiter(values, object, len(values))


def _values(column: Any) -> list[Any]:
    """Return the values of a column."""
    values: list[Any] = column.to_pylist() if isinstance(column, pa.ChunkedArray) else _array(column).tolist()
    return values


def _input(text: Any, source: Any) -> Source:
    """Return the document of a row; one that is no text fails alone when it is read."""
    name = None if source is None else str(source)

    def read() -> Document:
        if not isinstance(text, str):
            raise DocumentError(name or "", f"it is not a text ({type(text).__name__})")
        return Document(text, name)

    return Source(name or "", read)
