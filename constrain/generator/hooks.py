"""Post-sampling hooks, which inspect and may replace a token right after it was sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from constrain.generator.settings import Settings
from constrain.runtime.request import PostSamplingHook


@dataclass
class ExLlamaV2PostSamplingResult:
    """A sampled token, as passed to post-sampling hooks.

    Attributes:
        sampled_token: int64 of shape (batch, 1); a hook may assign another one.
        sampled_prob: float32 of shape (batch, 1).
        candidate_tokens, candidate_probs: the most likely tokens, of shape (batch, 1, k), if requested.
        logits: float32 of shape (batch, 1, padded vocabulary), as modified by the sampler.
        feed_filters: set to false so that the filters do not accept the token.
    """

    sampled_token: torch.Tensor
    sampled_prob: torch.Tensor
    candidate_tokens: torch.Tensor | None
    candidate_probs: torch.Tensor | None
    logits: torch.Tensor
    feed_filters: bool = True


#: A callable that takes the sampling result and may modify it.
ExLlamaV2PostSamplingHook: TypeAlias = Callable[[ExLlamaV2PostSamplingResult], None]


def as_hook(settings: Settings) -> PostSamplingHook | None:
    """Return the hooks of the settings as one runtime hook; ``None`` if there are none."""
    if not settings.post_sampling_hooks:
        return None

    def hook(
        token: int, prob: float, logits: torch.Tensor, top: tuple[torch.Tensor, torch.Tensor] | None
    ) -> tuple[int, bool]:
        ids, probs = (None, None) if top is None else top
        sampled, chance, accepts = torch.tensor([[token]]), torch.tensor([[prob]]), True
        for each in settings.post_sampling_hooks:
            result = ExLlamaV2PostSamplingResult(sampled, chance, ids, probs, logits)
            each(result)
            sampled, accepts = result.sampled_token, accepts and result.feed_filters
        return int(sampled[0, 0]), accepts

    return hook
