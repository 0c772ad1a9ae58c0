"""Scores of extracted records: field by field, exact match."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Score:
    """Shares over a set of records.

    Attributes:
        valid: of records that are JSON and match their schema.
        fields: of fields that are right. Fields are the leaves of the gold record; one that only the answer has counts
            as wrong, and so does every field of an answer that is no JSON.
        records: of records that are right as a whole.
    """

    valid: float
    fields: float
    records: float

    def __str__(self) -> str:
        return f"valid {self.valid:.1%}, fields {self.fields:.1%}, records {self.records:.1%}"


Judge = Callable[[Any, dict[str, Any]], bool]
"""Whether a record matches a schema."""


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
    """The record that ``text`` spells, or a value that equals nothing."""
    try:
        return json.loads(text)
    except ValueError:
        return _BROKEN


def compare(record: Any, gold: Any) -> tuple[int, int]:
    """How many fields of ``record`` are right, and of how many."""
    wanted = dict(leaves(gold))
    found = {} if record is _BROKEN else dict(leaves(record))
    right = sum(path in found and same(found[path], value) for path, value in wanted.items())
    return right, len(wanted.keys() | found.keys())


def leaves(record: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The leaves of a record with their paths; an empty object or array is a leaf."""
    children = record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    inner = list(children)
    if not inner:
        yield path, record
    for key, child in inner:
        yield from leaves(child, (*path, key))


def same(one: Any, other: Any) -> bool:
    """Equality of JSON leaves: true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
