"""Rising curves from probabilities to shares of right values, fitted to values that are known to be right or wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Probabilities count as this far from 0 and 1 at least.
_MARGIN = 1e-6
#: Maximum number of steps of Newton's method, and the length below which a step is the last one.
_MAX_STEPS, _TOLERANCE = 100, 1e-9


class Curve(Protocol):
    """A rising function from probabilities to shares of right values."""

    def apply(self, probability: float) -> float:
        """Return the share of right values among those of a probability."""

    def to_json(self) -> dict[str, Any]:
        """Return the curve as JSON, see :func:`curve_of`."""


@dataclass(frozen=True)
class Logistic:
    """``1 / (1 + exp(-slope * logit(probability) - offset))``, where the slope is the inverse of a temperature."""

    slope: float
    offset: float
    method: ClassVar[str] = "logistic"

    @classmethod
    def fit(cls, probabilities: Floats, is_right: Floats) -> Logistic:
        """Fit by Newton's method to targets that keep away from 0 and 1 (Platt 1999).

        Args:
            probabilities: float64 ``[n]``.
            is_right: float64 ``[n]``, 1 for values that are right, and 0 for the others.
        """
        num_right, num_wrong = float(is_right.sum()), float((1 - is_right).sum())
        targets = np.where(is_right > 0, (num_right + 1) / (num_right + 2), 1 / (num_wrong + 2))
        features = np.stack([_logit(probabilities), np.ones_like(probabilities)], axis=1)
        constant = np.array([0.0, math.log((num_right + 1) / (num_wrong + 1))])
        slope, offset = _minimised(features, targets, constant).tolist()
        # If likelier values are less often right, the best curve that does not fall is constant.
        return cls(slope, offset) if slope > 0 else cls(*constant.tolist())

    def apply(self, probability: float) -> float:
        return float(_sigmoid(self.slope * _logit(np.array(probability)) + self.offset))

    def to_json(self) -> dict[str, Any]:
        return {"method": self.method, **asdict(self)}


@dataclass(frozen=True)
class Isotonic:
    """A line through points, straight between them in the logit of the probability.

    Attributes:
        points: probabilities, ascending, and shares of right values, which do not fall.
    """

    points: tuple[tuple[float, float], ...]
    method: ClassVar[str] = "isotonic"

    @classmethod
    def fit(cls, probabilities: Floats, is_right: Floats) -> Isotonic:
        """Fit by isotonic regression (Zadrozny and Elkan 2002); arguments as for :meth:`Logistic.fit`.

        Shares keep away from 0 and 1, as if half of one more value were right.
        """
        order = np.argsort(probabilities, kind="stable")
        starts, sizes = pooled(probabilities[order], is_right[order])
        given, right = probabilities[order], np.add.reduceat(is_right[order], starts)
        shares = np.maximum.accumulate((right + 0.5) / (sizes + 1))
        corners = np.stack([given[starts], shares, given[starts + sizes - 1], shares], axis=1).reshape(-1, 2)
        return cls(tuple(dict.fromkeys((probability, share) for probability, share in corners.tolist())))

    def apply(self, probability: float) -> float:
        given, shares = np.array(self.points).T
        return float(np.interp(_logit(np.array(probability)), _logit(given), shares))

    def to_json(self) -> dict[str, Any]:
        return {"method": self.method, "points": [list(point) for point in self.points]}


def curve_of(data: Mapping[str, Any]) -> Curve:
    """Read a curve from JSON.

    Raises:
        ValueError, TypeError, KeyError: it is no curve.
    """
    if data["method"] == Isotonic.method:
        return Isotonic(tuple((float(given), float(share)) for given, share in data["points"]))
    if data["method"] == Logistic.method:
        return Logistic(float(data["slope"]), float(data["offset"]))
    raise ValueError(f"there is no method {data['method']!r}")


def pooled(given: Floats, values: Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Pool adjacent violators (Ayer et al. 1955): return the blocks in which the means of ``values`` rise.

    Args:
        given: float64 ``[n]``, ascending; equal ones stay in one block.
        values: float64 ``[n]``.

    Returns:
        The starts of the blocks, and their sizes.
    """
    blocks: list[tuple[float, int]] = []
    ties = np.unique(given, return_index=True)[1]
    for total, size in zip(np.add.reduceat(values, ties).tolist(), np.diff([*ties, len(given)]).tolist(), strict=True):
        while blocks and blocks[-1][0] * size >= total * blocks[-1][1]:
            before, count = blocks.pop()
            total, size = total + before, size + count
        blocks.append((total, size))
    sizes = np.array([size for _, size in blocks], dtype=np.intp)
    return np.cumsum(sizes) - sizes, sizes


def _minimised(features: Floats, targets: Floats, weights: Floats) -> Floats:
    """Return the weights of a logistic regression with the least loss; steps that would raise it are halved."""

    def loss(weights: Floats) -> float:
        logits = features @ weights
        return float((np.logaddexp(0, logits) - targets * logits).sum())

    for _ in range(_MAX_STEPS):
        shares = _sigmoid(features @ weights)
        curvature = (features * (shares * (1 - shares))[:, None]).T @ features + _TOLERANCE * np.eye(len(weights))
        step = np.linalg.solve(curvature, features.T @ (shares - targets))
        while np.abs(step).max() > _TOLERANCE and loss(weights - step) > loss(weights):
            step = step / 2
        if np.abs(step).max() <= _TOLERANCE:
            break
        weights = weights - step
    return weights


def _sigmoid(logits: Floats) -> Floats:
    return np.exp(-np.logaddexp(0, -logits))


def _logit(probabilities: Floats) -> Floats:
    inside = np.clip(probabilities, _MARGIN, 1 - _MARGIN)
    return np.log(inside / (1 - inside))
