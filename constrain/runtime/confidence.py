"""Probability of a token under its constraint, by the model alone: at temperature 1, before other sampling settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from constrain.filters.masks import TokenMask, all_tokens
from constrain.kernels import MAX_CHOICES


class TokenConfidence(NamedTuple):
    """Probability of a sampled token under its constraint.

    Attributes:
        logprob: log probability of the token among the allowed ones.
        log_mass: logarithm of the share of the probability that the model gave to the allowed tokens.
        mask: the allowed tokens, ``None`` for all.
        watched: the tokens that the request watches.
        log_sum: logarithm of the sum of ``exp(logit)`` over the allowed tokens.
        logits: float32, logits of allowed tokens in the order of their ids, and perhaps other values after them: of all
            if there are at most :data:`~constrain.kernels.MAX_CHOICES`, else of those that are watched.
    """

    logprob: float
    log_mass: float
    mask: TokenMask | None
    watched: TokenMask | None
    log_sum: float
    logits: npt.NDArray[np.float32]

    @property
    def removed(self) -> float:
        """Share of the probability that the model gave to tokens which the constraint excludes."""
        return removed_share(self.log_mass)

    @property
    def lists_all(self) -> bool:
        """Whether :meth:`choices` has all allowed tokens."""
        return _is_few(self.mask)

    def choices(self, width: int) -> dict[int, float]:
        """Return tokens with their probabilities among the allowed ones; ``width``: number of logits.

        All allowed tokens if there are at most :data:`~constrain.kernels.MAX_CHOICES`, else those that are watched.
        """
        tokens: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)
        if self.mask is not None and self.lists_all:
            tokens = all_tokens(self.mask, width)
        elif self.watched is not None:
            mask, watched = self.mask, all_tokens(self.watched, width).tolist()
            tokens = np.array([token for token in watched if mask is None or token in mask], dtype=np.intp)
        shares = np.exp(self.logits[: len(tokens)] - np.float64(self.log_sum))
        return dict(zip(tokens.tolist(), shares.tolist(), strict=True))


def removed_share(log_mass: float) -> float:
    """Return the share of probability that is removed, given the logarithm of the rest."""
    return max(0.0, -math.expm1(log_mass))  # not -0.0, nor less by rounding


def token_confidence(
    mask: TokenMask | None,
    watched: TokenMask | None,
    sums: Sequence[float],
    choices: npt.NDArray[np.float32],
) -> TokenConfidence:
    """Convert a row of :class:`constrain.kernels.Masses` that is on the host; ``mask``, ``watched``: as above."""
    total, allowed, sampled = sums
    shown = mask if _is_few(mask) else watched
    logits = choices[: 0 if shown is None else min(shown.count, MAX_CHOICES)].copy()
    return TokenConfidence(min(sampled - allowed, 0.0), min(allowed - total, 0.0), mask, watched, allowed, logits)


def _is_few(mask: TokenMask | None) -> bool:
    return mask is not None and mask.count <= MAX_CHOICES
