"""Confusion of the values of fields that have few."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from constrain.evaluation.compare import Pair

#: Most values of a field of strings that is taken for an enumeration, and how often each occurs at least, on average.
MAX_VALUES, MIN_OCCURRENCES = 12, 2


@dataclass(frozen=True)
class Confusion:
    """How often which value was found where gold has which.

    Attributes:
        values: the values, as JSON, null last.
        counts: a row for each value of gold, with a column for each value found.
    """

    values: list[str]
    counts: list[list[int]]

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> Confusion | None:
        """Count the values of a field, or return ``None`` if it is neither of booleans nor of few strings.

        List items that are in only one of the records do not count.
        """
        compared = [pair for pair in pairs if pair.found_path is not None and pair.gold_path is not None]
        if not _are_booleans(compared) and not _are_few_strings(compared):
            return None
        counts = Counter((_json(each.gold), _json(_found(each))) for each in compared)
        values = sorted({value for pair in counts for value in pair}, key=lambda value: (value == "null", value))
        return cls(values, [[counts[gold, found] for found in values] for gold in values])

    @property
    def is_diagonal(self) -> bool:
        """Whether every value was found as gold has it."""
        return sum(map(sum, self.counts)) == sum(row[index] for index, row in enumerate(self.counts))


def _found(pair: Pair) -> Any:
    """Return the value found; as gold has it, if it is the same."""
    return pair.gold if pair.is_right else pair.found


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _are_booleans(pairs: Sequence[Pair]) -> bool:
    values = _values(pairs)
    return bool(values) and all(isinstance(value, bool) for value in values)


def _are_few_strings(pairs: Sequence[Pair]) -> bool:
    values = _values(pairs)
    most = min(MAX_VALUES, len(pairs) // MIN_OCCURRENCES)
    return all(isinstance(value, str) for value in values) and 0 < len(set(values)) <= most


def _values(pairs: Sequence[Pair]) -> list[Any]:
    """Return the values of both records, other than null."""
    return [value for pair in pairs for value in (pair.found, pair.gold) if value is not None]
