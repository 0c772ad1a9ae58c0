"""Layers whose attention and MLP read the same states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from constrain.model.forward_context import ForwardContext
from constrain.model.modules.attention import Attention
from constrain.model.modules.half_layer import Inner
from constrain.model.modules.mlp import GatedMLP
from constrain.model.modules.module import Linear
from constrain.model.tensor_reader import TensorSource


class ParallelLayer(Attention):
    """Attention and MLP of the same norm of the input, both added to it, as of GPT-J (Wang and Komatsuzaki 2021)."""

    def __init__(self, mlp: GatedMLP, *args: Any, **kwargs: Any) -> None:
        """Build from an MLP and the arguments of :class:`Attention`."""
        super().__init__(*args, **kwargs)
        self.mlp = mlp

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield from super().weights()
        yield from self.mlp.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        yield from super().submodules()
        yield from self.mlp.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        super()._load(source, dtype)
        self.mlp.load(source, self.device, dtype)

    def inner(self, x: torch.Tensor, context: ForwardContext) -> Inner:
        assert self.norm is not None
        normed = self.norm.forward(x, context)
        return Inner((self.attended(normed, context, None), self.mlp.inner(normed, context)))

    def outer(
        self, inner: Inner, x: torch.Tensor, context: ForwardContext, residual: torch.Tensor | None
    ) -> torch.Tensor:
        attended, features = inner.split
        return self.mlp.down.forward(features, context, residual=self.output.forward(attended, context, residual))
