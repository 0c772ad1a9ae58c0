"""The settings of sampling, a tensor each, with an entry for every row of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

#: Temperatures below it take the most likely token.
GREEDY_TEMPERATURE = 0.01


@dataclass(frozen=True)
class SamplingTensors:
    """Sampling settings of each row: tensors of shape ``[rows]``, contiguous, on the device of the logits.

    A row whose settings of the second group are all off is *plain*, the others are *shaped*. ``None`` is off for all
    rows. The steps run in this order: temperature and smoothing, ``top_k``, ``top_p``, ``top_a``, ``min_p``, ``tfs``,
    ``typical``, Mirostat, dynamic or late temperature, XTC.

    Attributes:
        temperature: float32, divides the logits; below 0.01, the most likely token is taken.
        top_k: int32, keep the k most likely tokens (0: all).
        top_p: float32, keep the most likely tokens that together reach this probability (0, or 1 and above: off).
        min_p: float32, keep tokens with this share of the largest probability (0, or 1 and above: off).
        seeds, positions: int64 and int32, key and counter of the random number, see :func:`philox_uniform`.
        uniform: float64 in [0, 1), random numbers that are given instead.
        smoothing_factor: float32, strength of quadratic sampling (0: off).
        top_a: float32, keep tokens with a probability of ``top_a * p_max ** 2`` (0: off).
        tfs: float32, tail-free sampling (0, or 1 and above: off).
        typical: float32, locally typical sampling, the probability to keep (0, or 1 and above: off).
        skew: float32, the random number is raised to the power of ``exp(-skew)``, and tokens come in descending order
            (0: off).
        min_temp, max_temp, temp_exponent: float32, dynamic temperature by entropy (off unless ``max_temp > min_temp``).
        xtc_probability, xtc_threshold: float32, share of their probability that XTC takes from all but the least of the
            tokens at or above the threshold (probability 0: off).
        mirostat_mu: float32, the maximum surprise of a token in bits (infinity: off).
        temperature_last: int32, 1 to apply the temperature after the truncations.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seeds: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    uniform: torch.Tensor | None = None
    smoothing_factor: torch.Tensor | None = None
    top_a: torch.Tensor | None = None
    tfs: torch.Tensor | None = None
    typical: torch.Tensor | None = None
    skew: torch.Tensor | None = None
    min_temp: torch.Tensor | None = None
    max_temp: torch.Tensor | None = None
    temp_exponent: torch.Tensor | None = None
    xtc_probability: torch.Tensor | None = None
    xtc_threshold: torch.Tensor | None = None
    mirostat_mu: torch.Tensor | None = None
    temperature_last: torch.Tensor | None = None

    def is_shaped(self) -> torch.Tensor:
        """The rows that use a setting of the second group, bool ``[rows]``."""
        found = torch.zeros_like(self.temperature, dtype=torch.bool)
        for setting in (self.smoothing_factor, self.top_a, self.xtc_probability):
            if setting is not None:
                found = found | (setting > 0)
        for setting in (self.tfs, self.typical):
            if setting is not None:
                found = found | ((setting > 0) & (setting < 1))
        if self.skew is not None:
            found = found | (self.skew != 0)
        if self.max_temp is not None:
            found = found | (self.max_temp > (0 if self.min_temp is None else self.min_temp))
        if self.mirostat_mu is not None:
            found = found | (self.mirostat_mu < torch.inf)
        if self.temperature_last is not None:
            found = found | ((self.temperature_last != 0) & (self.temperature != 1))
        return found


class TopTokens(NamedTuple):
    """Output for the most likely tokens of each row, in descending order, after all steps before the random choice.

    If fewer than ``k`` candidates are left, the smallest other ids follow with probability 0.

    Attributes:
        ids: int64 ``[rows, k]``, contiguous.
        probabilities: float32 ``[rows, k]``, contiguous.
        counts: int32 ``[rows]``, number of top tokens of a row; rows with 0 are not written, others in all columns.
    """

    ids: torch.Tensor
    probabilities: torch.Tensor
    counts: torch.Tensor

    @staticmethod
    def empty(counts: torch.Tensor, most: int) -> TopTokens:
        """Return room for ``most`` tokens of each row, on the device of ``counts``."""
        shape, device = (len(counts), most), counts.device
        return TopTokens(
            torch.zeros(shape, dtype=torch.int64, device=device), torch.zeros(shape, device=device), counts
        )
