"""Confusion of the values of fields that have few."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from constrain.evaluation.compare import Pair

#: Most values of a field that is taken for an enumeration, and how often each occurs at least, on average.
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
        """Count the values of a field; ``None`` if it has many different ones, or others than strings and booleans.

        List items that are in only one of the records do not count.
        """
        compared = [pair for pair in pairs if pair.found_path is not None and pair.gold_path is not None]
        counts = Counter((json.dumps(each.gold), _found(each)) for each in compared)
        values = sorted({value for pair in counts for value in pair}, key=lambda value: (value == "null", value))
        few = min(MAX_VALUES, len(compared) // MIN_OCCURRENCES)
        if not set(values) - {"null"} or len(values) > few or not all(map(_is_symbol, compared)):
            return None
        return cls(values, [[counts[gold, found] for found in values] for gold in values])

    @property
    def is_diagonal(self) -> bool:
        """Whether every value was found as gold has it."""
        return sum(map(sum, self.counts)) == sum(row[index] for index, row in enumerate(self.counts))


def _found(pair: Pair) -> str:
    """Return the value found as JSON; as gold has it, if it is the same."""
    return json.dumps(pair.gold if pair.is_right else pair.found)


def _is_symbol(pair: Pair) -> bool:
    return all(value is None or isinstance(value, (str, bool)) for value in (pair.found, pair.gold))
