"""Particles of a faithful request whose tokens are equal so far, and which sample the next one together.

Alone, each of ``m`` equal particles would get a random number, and a token of probability ``p`` would be taken ``m p``
times give or take ``sqrt(m p (1 - p))``. Together they use the numbers ``(i + u) / m``, one ``u`` for all (systematic
sampling, Kitagawa 1996), by which it is taken ``m p`` times, rounded up or down. Each number is uniform, so nothing is
biased.

Where ``m p`` is at least 1, the token is sure to be taken, and those who took it need not stand for ``1 / m`` of the
lineage each: their weight is set to what the model gives them together, ``p``. Then nothing is left to chance, and a
constraint with fewer likely outputs than there are particles gets their exact probabilities. Fearnhead and Clifford
(2003) keep likely particles with exact weights in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from constrain.kernels import philox_uniform
from constrain.runtime.confidence import TokenConfidence


class Lineage:
    """Particles whose tokens are equal; they have the same weight.

    Attributes:
        size: number of particles.
    """

    def __init__(self, log_weight: float, log_expected: float = -math.inf) -> None:
        """
        Args:
            log_weight: logarithm of the weight of each particle.
            log_expected: logarithm of their expected number.
        """
        self.size = 0
        self._log_weight, self._log_expected = log_weight, log_expected
        self._offset: float | None = None
        self._following: dict[int, Lineage] = {}

    @property
    def log_weight(self) -> float:
        """Logarithm of the weight of each particle; final once all have sampled the token."""
        return self._log_weight + (self._log_expected - math.log(self.size) if self._log_expected >= 0 else 0.0)

    def after(self, token: int, confidence: TokenConfidence) -> Lineage:
        """Return the lineage of the particles that take a token."""
        if token not in self._following:
            expected = math.log(self.size) + confidence.logprob
            self._following[token] = Lineage(self.log_weight + confidence.log_mass, expected)
        return self._following[token]

    def fail(self) -> None:
        """Give the particles the weight 0: the constraint excludes their output."""
        self._log_weight = -math.inf

    def uniform(self, place: int, seed: int, position: int) -> float | None:
        """Return the random number of a particle, ``None`` for one that is alone.

        Args:
            place: number of the particle in the lineage.
            seed, position: key and counter of the first random number that is asked for.
        """
        if self.size == 1:
            return None
        if self._offset is None:
            self._offset = random_number(seed, position)
        return (place + self._offset) / self.size


def apportion(
    lineages: Sequence[Lineage], shares: npt.NDArray[np.float64], has_ended: Sequence[bool], uniform: float
) -> tuple[list[int], dict[Lineage, float]]:
    """Choose the particles to continue, as many as there were (resampling).

    An output that has ended and has the weight of a particle or more gets one particle with all of its weight. The
    others get numbers of equal particles in proportion to their weights, rounded up or down (systematic resampling).

    Args:
        lineages: the lineage of each particle.
        shares: float64, the share of each particle of all weights.
        has_ended: whether the output of each particle has ended.
        uniform: random number in [0, 1).

    Returns:
        The number of copies of each particle, and the share of each copy of a lineage of all weights.
    """
    count, owned = len(lineages), dict.fromkeys(lineages, 0.0)
    for lineage, share in zip(lineages, shares.tolist(), strict=True):
        owned[lineage] += share
    ended = {lineage for lineage, is_ended in zip(lineages, has_ended, strict=True) if is_ended}
    settled = [lineage for lineage in ended if owned[lineage] * count >= 1]
    members: dict[Lineage, list[int]] = {lineage: [] for lineage in owned}
    for place, lineage in enumerate(lineages):
        members[lineage].append(place)
    others = [place for lineage, places in members.items() if lineage not in settled for place in places]
    num_others = count - len(settled)
    rest = float(shares[others].sum())
    copies = np.zeros(count, int)
    copies[others] = _systematic(shares[others] / rest, uniform, num_others)
    for lineage in settled:
        copies[members[lineage][0]] = 1
    return copies.tolist(), {each: owned[each] if each in settled else rest / num_others for each in owned}


def _systematic(shares: npt.NDArray[np.float64], uniform: float, count: int) -> npt.NDArray[np.int64]:
    """Return ``count`` copies, in proportion to shares, each rounded up or down."""
    ends = np.cumsum(shares)
    ends[-1] = 1.0
    places = (uniform + np.arange(count)) / count
    return np.bincount(np.searchsorted(ends, places, side="right"), minlength=len(shares))


def random_number(seed: int, counter: int) -> float:
    """Return a random number in [0, 1)."""
    return float(philox_uniform(torch.tensor([seed]), torch.tensor([counter], dtype=torch.int)))


def seeds_of(seed: int, count: int) -> list[int]:
    """Return seeds of 53 bits that depend on one, so that requests with neighbouring seeds have nothing in common."""
    # Sequences count from their lengths, so numbers below zero are not used otherwise.
    numbers = philox_uniform(torch.full((count,), seed), -1 - torch.arange(count, dtype=torch.int))
    return [int(number) for number in (numbers * 2**53).tolist()]
