"""The two halves of a layer, attention and MLP, each added to the states."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch

from constrain.model.forward_context import ForwardContext
from constrain.model.modules.module import Module
from constrain.model.modules.norms import RMSNorm


@dataclass(frozen=True)
class Inner:
    """Features inside a half layer, between its first products and its last.

    Attributes:
        split: features ``[..., n]``, which a shard of the half layer has a part of.
        whole: what all shards have alike.
    """

    split: tuple[torch.Tensor, ...]
    whole: tuple[torch.Tensor, ...] = ()


class HalfLayer(Module):
    """A function of the states that is added to them, and perhaps normalised before.

    It has two steps, so that several GPUs can share its work: :meth:`inner` computes features, of which every GPU may
    have some, and :meth:`outer` what these add to the states, the sum of which over the GPUs :meth:`finish` takes.
    """

    post_norm: RMSNorm | None

    @abstractmethod
    def inner(self, x: torch.Tensor, context: ForwardContext) -> Inner:
        """Compute the features from states ``[batch, width, hidden]``."""

    @abstractmethod
    def outer(
        self, inner: Inner, x: torch.Tensor, context: ForwardContext, residual: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute what features add to the states ``x``, plus ``residual``: ``[batch, width, hidden]``."""

    def added(self, x: torch.Tensor, context: ForwardContext, residual: torch.Tensor | None) -> torch.Tensor:
        """Compute both steps at once; ``residual`` may be ``x``, which may be overwritten then."""
        return self.outer(self.inner(x, context), x, context, residual)

    def finish(self, y: torch.Tensor, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute the new states from those before, ``x``, and the result of :meth:`outer`.

        That has ``x`` as its residual already if there is no norm.
        """
        return y if self.post_norm is None else self.post_norm.forward(y, context).add_(x)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        residual = x if self.post_norm is None else None
        return self.finish(self.added(x, context, residual), x, context)
