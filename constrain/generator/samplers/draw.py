"""The draw."""

from __future__ import annotations

import math
import random as python_random

import torch

from constrain.generator.samplers.distribution import Candidates


def skewed(r: float, skew: float) -> float:
    """Bend a random number: ``r ** exp(-skew)``."""
    return float(r ** math.exp(-skew))


def row_randoms(r: float, rows: int) -> list[float]:
    """Return a random number for each row: ``r`` itself for the first, and others that follow from it."""
    if rows == 1:
        return [r]
    further = python_random.Random(r)
    return [r, *(further.random() for _ in range(rows - 1))]


def draw(c: Candidates, r: float) -> int:
    """Return the index of the candidate in whose share of [0, 1) the number ``r`` falls."""
    # In float64 the product below stays under the last sum for every r < 1.
    sums = c.probs.double().cumsum(0)
    return int(torch.searchsorted(sums, r * float(sums[-1]), right=True))
