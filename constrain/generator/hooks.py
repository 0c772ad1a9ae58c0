"""Hooks that look at, and may replace, a token right after it was drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch


@dataclass
class ExLlamaV2PostSamplingResult:
    """A draw, as a post-sampling hook sees it.

    Attributes:
        sampled_token: int64 of shape (batch, 1); a hook may assign another one.
        sampled_prob: float32 of shape (batch, 1).
        candidate_tokens, candidate_probs: the most likely tokens, of shape (batch, 1, k), if they were asked for.
        logits: float32 of shape (batch, 1, padded vocabulary), as the sampler left them.
        feed_filters: set to false to keep the token from the filters.
    """

    sampled_token: torch.Tensor
    sampled_prob: torch.Tensor
    candidate_tokens: torch.Tensor | None
    candidate_probs: torch.Tensor | None
    logits: torch.Tensor
    feed_filters: bool = True


#: A callable that takes the result of a draw, and may change it.
ExLlamaV2PostSamplingHook: TypeAlias = Callable[[ExLlamaV2PostSamplingResult], None]
