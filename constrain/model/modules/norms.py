"""Normalisation of states."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from constrain.kernels import RowNorm, layer_norm, normalise_heads, rms_norm
from constrain.model.forward_context import ForwardContext
from constrain.model.layout import Shape
from constrain.model.modules.module import Module
from constrain.model.tensor_reader import TensorSource


class RMSNorm(Module):
    """RMS norm of the last dimension, with the weight ``(stored + offset) * scale`` of ``shape``."""

    def __init__(self, key: str, shape: Shape, eps: float, offset: float = 0.0, scale: float = 1.0) -> None:
        super().__init__(key)
        self.shape, self.eps, self.offset, self.scale = shape, eps, offset, scale
        self.weight = torch.empty(0)

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield [f"{self.key}.weight"], math.prod(self.shape)

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        weight = torch.empty(self.shape, dtype=torch.float, device=self.device)
        source.copy(f"{self.key}.weight", weight)
        self.weight = ((weight + self.offset) * self.scale).to(dtype)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)

    def normalise_heads(self, x: torch.Tensor, weight: torch.Tensor) -> None:
        """Normalise heads ``[batch, width, heads, dim]`` in place, with a weight ``[heads, dim]`` for each."""
        normalise_heads(x, weight, self.eps)

    @property
    def fused(self) -> RowNorm:
        """The parameters of this norm, for fusion with a matrix product."""
        return RowNorm(self.weight, self.eps)


class UnitNorm(RMSNorm):
    """RMS norm without a weight."""

    def weights(self) -> Iterator[tuple[list[str], int]]:
        return iter(())

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.weight = torch.ones(self.shape, dtype=dtype, device=self.device)


class LayerNorm(RMSNorm):
    """Layer norm of the last dimension; as RMS norm, but of ``x`` less its mean, and with a bias if ``biased``."""

    def __init__(
        self, key: str, shape: Shape, eps: float, biased: bool, offset: float = 0.0, scale: float = 1.0
    ) -> None:
        super().__init__(key, shape, eps, offset, scale)
        self.biased = biased
        self.bias: torch.Tensor | None = None

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield from super().weights()
        if self.biased:
            yield [f"{self.key}.bias"], math.prod(self.shape)

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        super()._load(source, dtype)
        if self.biased:
            bias = torch.empty(self.shape, dtype=torch.float, device=self.device)
            source.copy(f"{self.key}.bias", bias)
            self.bias = (bias * self.scale).to(dtype)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)

    def normalise_heads(self, x: torch.Tensor, weight: torch.Tensor) -> None:
        normalise_heads(x, weight, self.eps, centred=True)

    @property
    def fused(self) -> RowNorm:
        return RowNorm(self.weight, self.eps, self.bias, centred=True)


def fused_norm(norm: RMSNorm | None) -> RowNorm | None:
    """Return a norm as kernels apply it before a product."""
    return None if norm is None else norm.fused
