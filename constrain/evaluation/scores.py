"""Precision, recall and F1 of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from constrain.evaluation.compare import Outcome, Pair
from constrain.evaluation.ratio import ratio


@dataclass(frozen=True)
class Score:
    """Counts of the values of one field, or of all, by outcome.

    A wrong value counts against both precision and recall: it is no value of gold, and the one of gold was not found.

    Attributes:
        right, wrong, invented, missed: values, see :class:`~constrain.evaluation.Outcome`.
        absent: nulls of gold that are null in the record.
    """

    right: int = 0
    wrong: int = 0
    invented: int = 0
    missed: int = 0
    absent: int = 0

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> Score:
        """Count the outcomes of ``pairs``. Nulls of list items that are in only one record do not count."""
        counts = Counter(pair.outcome for pair in pairs if pair.is_right or pair.outcome is not Outcome.ABSENT)
        return cls(**{outcome.value: counts[outcome] for outcome in Outcome})

    @property
    def precision(self) -> float | None:
        """Share of the values found that are right; ``None`` if none was found."""
        return ratio(self.right, self.right + self.wrong + self.invented)

    @property
    def recall(self) -> float | None:
        """Share of the values of gold that were found; ``None`` if gold has none."""
        return ratio(self.right, self.right + self.wrong + self.missed)

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; ``None`` if there is no value in either."""
        return ratio(2 * self.right, 2 * (self.right + self.wrong) + self.invented + self.missed)

    @property
    def accuracy(self) -> float | None:
        """Share of all values that are right, rightly absent ones included; ``None`` if there are none."""
        right = self.right + self.absent
        return ratio(right, right + self.wrong + self.invented + self.missed)
