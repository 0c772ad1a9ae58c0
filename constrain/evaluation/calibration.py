"""Calibration of a model by the output of a run and gold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from constrain.engine.pointers import pointer
from constrain.evaluation.judge import judge
from constrain.evaluation.match import Match, match
from constrain.evaluation.metrics import expected_calibration_error
from constrain.extract.calibration import MIN_VALUES, Calibration, Sample, value_kind
from constrain.runs import Line

#: Margins that are tried, see :class:`~constrain.extract.Calibration`.
MARGINS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 16.0, 32.0)


class Doubt(NamedTuple):
    """A value where null is allowed, which is known to be right or wrong.

    Attributes:
        odds: how many times as probable as null it is.
        is_right: whether it is right.
        is_absent: whether null would be right.
    """

    odds: float
    is_right: bool
    is_absent: bool


@dataclass(frozen=True)
class Calibrated:
    """A calibration, and how much it helps.

    Attributes:
        calibration: fitted to all values.
        count: number of values.
        error: expected calibration error of the probabilities as they were.
        held_out_error: that of probabilities calibrated by the other half of the documents; ``None`` if there are too
            few values for that.
    """

    calibration: Calibration
    count: int
    error: float
    held_out_error: float | None


def calibrate(lines: Iterable[Line], gold: Iterable[Line], *, ignore_case: bool = False) -> Calibrated:
    """Fit a calibration to the values of records that gold tells to be right or wrong.

    Args:
        lines: records with confidence, extracted without a calibration; see :func:`constrain.runs.read_lines`.
        gold: gold records, read likewise.
        ignore_case: whether strings that differ only in case are the same.

    Raises:
        ArgumentError: there are too few values with a probability.
        RunError: gold has no records, a line of it has none, or none belongs to a line.
    """
    matches = list(match(lines, gold))
    documents = [list(_samples(each, ignore_case)) for each in matches]
    samples = [*chain(*documents)]
    calibration = replace(Calibration.fit(samples), null_margin=best_margin(_doubts(matches, ignore_case)))
    error = _error(samples, [sample.probability for sample in samples])
    return Calibrated(calibration, len(samples), error, _held_out_error(documents))


def best_margin(doubts: Iterable[Doubt]) -> float | None:
    """Return the least margin with which most values are right; ``None`` if there are too few, or it changes none."""
    known = list(doubts)
    if len(known) < MIN_VALUES:
        return None

    def gain(margin: float) -> int:
        return sum(each.is_absent - each.is_right for each in known if each.odds < margin)

    best = max(MARGINS, key=gain)
    return best if gain(best) > 0 else None


def held_out_calibrated(documents: Sequence[Sequence[Sample]]) -> list[float]:
    """Calibrate the values of each half of documents, every other one, by the other half.

    Returns:
        The probabilities, in the order of the values.

    Raises:
        ArgumentError: a half has too few values.
    """
    halves = [Calibration.fit(chain(*documents[first::2])) for first in (0, 1)]
    return [
        halves[1 - number % 2].probability(sample.kind, sample.probability)
        for number, document in enumerate(documents)
        for sample in document
    ]


def _samples(match: Match, ignore_case: bool) -> Iterator[Sample]:
    line = match.line or {}
    for judgement in judge(match, ignore_case=ignore_case):
        if judgement.probability is not None and judgement.pair.found_path is not None:
            where = pointer(judgement.pair.found_path)
            alternatives = line["confidence"][where].get("alternatives")
            kind = value_kind(judgement.pair.found, alternatives, where in line.get("spans", {}))
            yield Sample(kind, judgement.probability, judgement.pair.is_right)


def _doubts(matches: Iterable[Match], ignore_case: bool) -> Iterator[Doubt]:
    """Yield the values of records where null was allowed; nulls are left out, as their other values are not known."""
    for each in matches:
        for judgement in judge(each, ignore_case=ignore_case):
            pair = judgement.pair
            if judgement.probability is not None and pair.found_path is not None and pair.found is not None:
                alternatives = (each.line or {})["confidence"][pointer(pair.found_path)].get("alternatives") or {}
                if null := alternatives.get("null"):
                    yield Doubt(judgement.probability / null, pair.is_right, pair.gold is None)


def _held_out_error(documents: Sequence[Sequence[Sample]]) -> float | None:
    if min(sum(map(len, documents[first::2])) for first in (0, 1)) < MIN_VALUES:
        return None
    return _error([*chain(*documents)], held_out_calibrated(documents))


def _error(samples: Sequence[Sample], probabilities: Sequence[float]) -> float:
    return expected_calibration_error(probabilities, [sample.is_right for sample in samples])
