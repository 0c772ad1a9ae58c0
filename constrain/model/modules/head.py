"""The head: logits of states."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from constrain.kernels import Weight, linear, soft_cap
from constrain.model.forward_context import ForwardContext
from constrain.model.modules.embedding import Embedding
from constrain.model.modules.module import Module
from constrain.model.modules.weight_loading import load_weight
from constrain.model.tensor_reader import TensorSource

PADDING_LOGIT = -65504.0
"""Logit of the columns that pad a vocabulary; the most negative float16."""


class Head(Module):
    """Projection of states to logits ``[batch, width, padded_size]``."""

    def __init__(
        self, key: str, size: int, padded_size: int, hidden_size: int, cap: float | None, tied: Embedding | None
    ) -> None:
        super().__init__(key)
        self.size, self.padded_size, self.hidden_size, self.cap, self.tied = size, padded_size, hidden_size, cap, tied
        self.weight: Weight = torch.empty(0)

    def weights(self) -> Iterator[tuple[list[str], int]]:
        if self.tied is None:
            yield [f"{self.key}.weight"], self.padded_size * self.hidden_size

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        if self.tied is None:
            self.weight = load_weight(
                source, {self.key: self.size}, self.padded_size, self.hidden_size, dtype, self.device
            )
        else:
            self.weight = self.tied.weight.to(self.device)

    def forward(self, x: torch.Tensor, context: ForwardContext, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Compute logits ``[..., padded_size]`` from states; of int64 ``tokens`` ``[n]`` alone, ``[..., n]``."""
        replaced = context.lm_head
        weight = self.weight if replaced is None else replaced
        if tokens is not None:
            # The product prefetches its weight before the previous kernel has ended, so that must not be the one that
            # writes the weight: the copy of x runs in between.
            gathered = weight[tokens]
            return self._capped(linear(x.clone(), gathered))
        logits = self._capped(linear(x, weight))
        if self.padded_size > self.size:
            logits[..., self.size :] = PADDING_LOGIT
        return logits

    def _capped(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if self.cap is None else soft_cap(logits, self.cap)
