"""From logits to candidates."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Candidates(NamedTuple):
    """Tokens that may be drawn.

    Attributes:
        probs: float32 of shape (n,), all positive unless underflown, with sum 1.
        ids: int64 of shape (n,).
    """

    probs: torch.Tensor
    ids: torch.Tensor

    def keep(self, kept: torch.Tensor) -> Candidates:
        """Return the candidates that a bool tensor of shape (n,) selects, renormalised."""
        probs = self.probs[kept]
        return Candidates(probs / probs.sum(), self.ids[kept])

    def first(self, count: int) -> Candidates:
        """Return the first ``count`` candidates, renormalised."""
        probs = self.probs[:count]
        return Candidates(probs / probs.sum(), self.ids[:count])

    def descending(self) -> Candidates:
        """Return the candidates from the most to the least likely."""
        order = self.probs.argsort(descending=True, stable=True)
        return Candidates(self.probs[order], self.ids[order])


def candidates(logits: torch.Tensor, temperature: float, smoothing: float, top_k: int) -> Candidates:
    """Return the tokens whose logit is not negative infinity, from the most to the least likely.

    Softmax at a temperature; with a smoothing factor f, of ``-f (l - l_max) ** 2`` instead of the logits l (quadratic
    sampling, https://github.com/oobabooga/text-generation-webui/pull/5403).

    Args:
        logits: float32 of shape (V,).
        top_k: keep no more than this number; 0 for all.
    """
    if 0 < top_k < logits.shape[0]:
        values, ids = logits.topk(top_k)
    else:
        values, ids = logits.sort(descending=True, stable=True)
    values = values - values[0]
    if smoothing > 0:
        values = -smoothing * values.square()
    finite = int((values > -float("inf")).sum())
    return Candidates((values[:finite] / temperature).softmax(dim=0), ids[:finite])
