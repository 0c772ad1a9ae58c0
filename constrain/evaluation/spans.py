"""Whether values were found at the places where gold has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from constrain.evaluation.ratio import ratio

#: Start and end of a passage, as a line has them.
_Place: TypeAlias = "list[int] | None"


@dataclass(frozen=True)
class SpanScore:
    """How the spans of one field, or of all, agree with those of gold.

    Attributes:
        gold: spans of gold.
        found: spans of the records.
        overlapping: spans of the records that overlap with that of gold.
        exact: those of them that are the same.
        mean_overlap: mean over the spans of gold of the characters that both have, as a share of those that either has;
            ``None`` if there are none.
    """

    gold: int
    found: int
    overlapping: int
    exact: int
    mean_overlap: float | None

    @classmethod
    def of(cls, places: Iterable[tuple[_Place, _Place]]) -> SpanScore:
        """Compare spans: for each value that of the record, and that of gold; ``None`` where there is none."""
        given = list(places)
        overlaps = [_overlap(found, gold) for found, gold in given]
        in_gold = sum(gold is not None for _, gold in given)
        return cls(
            gold=in_gold,
            found=sum(found is not None for found, _ in given),
            overlapping=sum(overlap > 0 for overlap in overlaps),
            exact=overlaps.count(1),
            mean_overlap=ratio(sum(overlaps), in_gold),
        )

    @property
    def precision(self) -> float | None:
        """Share of the spans found that overlap with that of gold; ``None`` if none was found."""
        return ratio(self.overlapping, self.found)

    @property
    def recall(self) -> float | None:
        """Share of the spans of gold that were found, at least in part; ``None`` if gold has none."""
        return ratio(self.overlapping, self.gold)

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; ``None`` if there is no span in either."""
        return ratio(2 * self.overlapping, self.gold + self.found)


def _overlap(found: _Place, gold: _Place) -> float:
    """Return the intersection of two spans over their union."""
    if not found or not gold:
        return 0.0
    common = min(found[1], gold[1]) - max(found[0], gold[0])
    # Spans without characters agree if they are the same.
    return max(common, 0) / (max(found[1], gold[1]) - min(found[0], gold[0])) if common else float(found == gold)
