"""Post-sampling hooks, which inspect and may replace a token right after it was sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def call_hooks(
    hooks: Sequence[ExLlamaV2PostSamplingHook],
    token: torch.Tensor,
    prob: torch.Tensor,
    logits: torch.Tensor,
    top: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, bool]:
    """Run the hooks; return the final token, and whether the filters are to accept it."""
    feed = True
    for hook in hooks:
        candidates, probs = top or (None, None)
        result = ExLlamaV2PostSamplingResult(token, prob, candidates, probs, logits)
        hook(result)
        token, feed = result.sampled_token, feed and result.feed_filters
    return token, feed


def as_hook(settings: Settings) -> PostSamplingHook | None:
    """Return the hooks of the settings as one runtime hook; ``None`` if there are none."""
    if not settings.post_sampling_hooks:
        return None

    def hook(
        token: int, prob: float, logits: torch.Tensor, top: tuple[torch.Tensor, torch.Tensor] | None
    ) -> tuple[int, bool]:
        candidates = None if top is None else (top[0][None, None], top[1][None, None])
        replaced, accepts = call_hooks(
            settings.post_sampling_hooks,
            torch.tensor([[token]]),
            torch.tensor([[prob]]),
            logits[None, None],
            candidates,
        )
        return int(replaced[0, 0]), accepts

    return hook
