"""Extraction in the batches of a Ray dataset."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

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


class Extractor:
    """Extracts a record from each row of a dataset; a class for ``map_batches`` with a pool of actors.

    Each row gets the columns ``key``, the key of its work; ``line``, the line that ``constrain extract`` would write,
    as JSON text; and ``failed``, whether that has an error instead of a record.
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

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Extract from the rows of a batch, given by column.

        Raises:
            ArgumentError: a column is missing.
            RunError: many rows in a row failed unexpectedly.
        """
        for name in (self._column, self._source_column):
            if name is not None and name not in batch:
                raise ArgumentError(f"the rows have no column {name!r}, but {', '.join(map(str, batch))}")
        inputs = list(map(_input, self._values(batch, self._column), self._values(batch, self._source_column)))
        keys = [work.key for work in read_works(self._settings, inputs)]
        lines = _Lines(self._done)
        Run(self._extract, self._target, self._settings, lines).extract(inputs)
        kept = np.array([key not in self._done for key in keys], dtype=bool)
        found = [lines.by_key[key] for key in keys if key not in self._done]
        return {
            **{name: np.asarray(values)[kept] for name, values in batch.items()},
            "key": np.array(keys, dtype=object)[kept],
            "line": np.array([encode_line(line).decode() for line in found], dtype=object),
            "failed": np.array(["error" in line for line in found], dtype=bool),
        }

    def _values(self, batch: Mapping[str, Any], column: str | None) -> list[Any]:
        """Return the values of a column, ``None`` for each row if there is no such column."""
        if column is None:
            return [None] * len(batch[self._column])
        return list(np.asarray(batch[column]).tolist())

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


def _input(text: Any, source: Any) -> Document | Source:
    name = None if source is None else str(source)
    if isinstance(text, str):
        return Document(text, name)

    def fail() -> Document:
        raise DocumentError(name or "", f"it is not a text ({type(text).__name__})")

    return Source(name or "", fail)
