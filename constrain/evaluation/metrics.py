"""Metrics of probabilities: how well they tell right from wrong, and how far they are from shares of right values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from constrain.errors import ArgumentError


def auroc(scores: Sequence[float], right: Sequence[bool]) -> float:
    """Return the area under the ROC curve: the probability that a right value has a higher score than a wrong one.

    Equal scores count half (Mann and Whitney 1947).

    Raises:
        ArgumentError: the numbers of scores and values differ, or all values are right, or all wrong.
    """
    values, is_right = _checked(scores, right)
    positive, negative = int(is_right.sum()), int((~is_right).sum())
    if not positive or not negative:
        raise ArgumentError("AUROC needs right and wrong values")
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[group]
    return float((ranks[is_right].sum() - positive * (positive + 1) / 2) / (positive * negative))


def expected_calibration_error(probabilities: Sequence[float], right: Sequence[bool], bins: int = 10) -> float:
    """Return the expected calibration error (Naeini et al. 2015).

    The probabilities are put into bins of equal width. The error is the mean difference between the mean probability
    of a bin and the share of right values in it, weighted by their number.

    Raises:
        ArgumentError: there are no values, or the numbers of probabilities and values differ.
    """
    values, is_right = _checked(probabilities, right)
    group = np.minimum((values * bins).astype(int), bins - 1)
    differences = np.bincount(group, is_right - values, minlength=bins)
    return float(np.abs(differences).sum() / len(values))


def _checked(scores: Sequence[float], right: Sequence[bool]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    if len(scores) != len(right) or not len(scores):
        raise ArgumentError(f"{len(scores)} scores do not go together with {len(right)} values")
    return np.asarray(scores, dtype=np.float64), np.asarray(right, dtype=np.bool_)
