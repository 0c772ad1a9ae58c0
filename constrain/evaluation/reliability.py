"""How far the probabilities of values can be relied on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from constrain.evaluation.metrics import auroc, expected_calibration_error

_Floats: TypeAlias = npt.NDArray[np.float64]
_Flags: TypeAlias = npt.NDArray[np.bool_]

#: Number of bins of the reliability diagram, and of points of the curve of risk and coverage.
BINS, POINTS = 10, 100


@dataclass(frozen=True)
class Bin:
    """Values whose probability is within a range.

    Attributes:
        low, high: the range; ``high`` is in the next bin, except 1.
        count: number of values.
        mean_probability: their mean probability.
        right: the share of them that is right.
    """

    low: float
    high: float
    count: int
    mean_probability: float
    right: float


@dataclass(frozen=True)
class RiskPoint:
    """Coverage and risk if values of at least some probability are accepted.

    Attributes:
        probability: the least probability that is accepted.
        coverage: share of the values that are accepted.
        risk: share of the accepted values that are wrong.
    """

    probability: float
    coverage: float
    risk: float


@dataclass(frozen=True)
class Reliability:
    """How the probabilities of values go together with whether they are right.

    Attributes:
        count: number of values with a probability.
        auroc: see :func:`~constrain.evaluation.metrics.auroc`; ``None`` if all values are right, or all are wrong.
        calibration_error: see :func:`~constrain.evaluation.metrics.expected_calibration_error`.
        bins: bins of equal width, without empty ones.
        risk_coverage: points from the surest values to all values, at most 100.
    """

    count: int
    auroc: float | None
    calibration_error: float
    bins: list[Bin]
    risk_coverage: list[RiskPoint]

    @classmethod
    def of(cls, probabilities: Sequence[float], right: Sequence[bool]) -> Reliability | None:
        """Compare probabilities with which values are right; ``None`` if there are no values."""
        if not probabilities:
            return None
        return cls(
            count=len(probabilities),
            auroc=auroc(probabilities, right) if 0 < sum(right) < len(right) else None,
            calibration_error=expected_calibration_error(probabilities, right, BINS),
            bins=_bins(np.asarray(probabilities), np.asarray(right)),
            risk_coverage=_risk_coverage(np.asarray(probabilities), np.asarray(right)),
        )


def _bins(probabilities: _Floats, right: _Flags) -> list[Bin]:
    group = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    return [
        Bin(
            index / BINS,
            (index + 1) / BINS,
            int((group == index).sum()),
            float(probabilities[group == index].mean()),
            float(right[group == index].mean()),
        )
        for index in np.unique(group).tolist()
    ]


def _risk_coverage(probabilities: _Floats, right: _Flags) -> list[RiskPoint]:
    order = np.argsort(-probabilities, kind="stable")
    accepted = np.arange(1, len(order) + 1)
    risk = np.cumsum(~right[order]) / accepted
    # Values of the same probability are accepted together. Of many points, those nearest to each percent are kept.
    last = np.flatnonzero(np.append(np.diff(probabilities[order]) != 0, True))
    kept = last[np.unique(np.searchsorted(accepted[last], np.linspace(0, len(order), POINTS + 1)[1:]))]
    return [
        RiskPoint(float(probabilities[order[end]]), float(accepted[end] / len(order)), float(risk[end]))
        for end in kept.tolist()
    ]
