"""Scores of extracted records: field by field, exact match."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Score:
    """Accuracies over a set of records.

    Attributes:
        valid: share of records that are JSON and match their schema.
        fields: share of fields that are correct. Fields are the leaves of the gold record, and those that only the
            answer has, which count as wrong. If an answer is not JSON, all fields are wrong.
        records: share of records that are entirely correct.
    """

    valid: float
    fields: float
    records: float

    def __str__(self) -> str:
        return f"valid {self.valid:.1%}, fields {self.fields:.1%}, records {self.records:.1%}"


Judge = Callable[[Any, dict[str, Any]], bool]
"""Function that decides whether a record matches a schema."""


def score(answers: Iterable[tuple[str, Any, dict[str, Any]]], judge: Judge = lambda record, schema: True) -> Score:
    """Score answers, each a text with its gold record and its schema. Without a judge, any JSON is valid."""
    valid = right = fields = records = count = 0
    for text, gold, schema in answers:
        count += 1
        record = parse(text)
        valid += record is not _BROKEN and judge(record, schema)
        hits, total = compare(record, gold)
        right, fields, records = right + hits, fields + total, records + (hits == total)
    return Score(valid / count, right / fields, records / count)


_BROKEN = object()


def parse(text: str) -> Any:
    """Parse a record; a text that is not JSON gives a value that is equal to no record."""
    try:
        return json.loads(text)
    except ValueError:
        return _BROKEN


def compare(record: Any, gold: Any) -> tuple[int, int]:
    """Count the correct fields of ``record``, and all fields."""
    wanted = dict(leaves(gold))
    found = {} if record is _BROKEN else dict(leaves(record))
    right = sum(path in found and same(found[path], value) for path, value in wanted.items())
    return right, len(wanted.keys() | found.keys())


def leaves(record: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the leaves of a record with their paths; an empty object or array is a leaf."""
    children = record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    inner = list(children)
    if not inner:
        yield path, record
    for key, child in inner:
        yield from leaves(child, (*path, key))


def same(one: Any, other: Any) -> bool:
    """Compare JSON leaves; unlike in Python, true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
