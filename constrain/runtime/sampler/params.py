"""Sampling parameters of a sequence."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from constrain.filters.masks import TokenMask

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class TokenBias:
    """Bias added to logits; compared by identity, so that its cached copy on the device is found quickly.

    Attributes:
        values: float32 of shape (padded vocabulary,), on the CPU; must not be modified.
    """

    values: torch.Tensor

    @property
    def id(self) -> Hashable:
        """Identity, valid as long as the bias is referenced."""
        return id(self)


class Mirostat(NamedTuple):
    """Mirostat 2.0 (Basu et al. 2021): surprise stays near ``tau`` bits; ``mu``, here the first, adapts at ``eta``."""

    tau: float
    eta: float
    mu: float

    def after(self, mu: float, probability: float) -> float:
        """Return ``mu`` after a token of this probability."""
        surprise = -math.log2(probability) if probability > 0 else mu
        return mu - self.eta * (surprise - self.tau)


class SamplingParams(NamedTuple):
    """Sampling parameters; :class:`constrain.kernels.sampling.SamplingTensors` documents each.

    Attributes:
        repetition_range, repetition_decay: number of last tokens that count in full for penalties (-1: all), and number
            of tokens before those over which penalties fade.
        frequency_start: number of first tokens that do not count for frequency and presence penalties.
        dry_breakers: tokens across which DRY counts no repetition (sequence breakers).
        xtc_protected: tokens that XTC never excludes.
        bias: added to the logits.
        guidance: weight of the first row of two against the second (classifier-free guidance); ``None``: one row.
        mirostat: its parameters; ``None``: off.
    """

    temperature: float = 1.0
    top_p: float = 0.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    smoothing_factor: float = 0.0
    top_a: float = 0.0
    tfs: float = 0.0
    typical: float = 0.0
    skew: float = 0.0
    min_temp: float = 0.0
    max_temp: float = 0.0
    temp_exponent: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    top_k: int = 1
    repetition_range: int = -1
    repetition_decay: int = 0
    frequency_start: int = 0
    temperature_last: bool = False
    dry_allowed_length: int = 2
    dry_max_ngram: int = 20
    dry_range: int = 0
    dry_breakers: TokenMask | None = None
    xtc_protected: TokenMask | None = None
    bias: TokenBias | None = None
    guidance: float | None = None
    mirostat: Mirostat | None = None

    @property
    def has_penalties(self) -> bool:
        """Whether repetition, frequency or presence penalties change logits."""
        return self.repetition_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0

    @property
    def is_shaped(self) -> bool:
        """Whether a setting needs the candidates sorted by probability."""
        return bool(
            self.smoothing_factor > 0
            or self.max_temp > self.min_temp
            or (self.temperature_last and self.temperature != 1.0)
            or self.top_a > 0
            or 0 < self.tfs < 1
            or 0 < self.typical < 1
            or self.skew
            or self.mirostat is not None
            or self.xtc_probability > 0
        )


GREEDY = SamplingParams()
"""Greedy sampling: the most likely token."""
UNSHAPED = SamplingParams(top_k=0)
"""Sampling from the distribution of the model as it is."""
