"""MLPs, gated and plain."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from constrain.kernels import Activation, RowNorm, activated, gated_linear
from constrain.model.forward_context import ForwardContext
from constrain.model.layout import LayerLayout, MLPLayout
from constrain.model.modules.half_layer import HalfLayer, Inner
from constrain.model.modules.module import Linear, Module
from constrain.model.modules.norms import RMSNorm, fused_norm
from constrain.model.tensor_reader import TensorSource


class GatedMLP(Module):
    """Gate, up and down projection."""

    def __init__(self, key: str, layout: MLPLayout, activation: Activation) -> None:
        super().__init__(key)
        self.gate_up, self.down = Linear(layout.gate_up), Linear(layout.down)
        self.activation = activation

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield from self.gate_up.weights()
        yield from self.down.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        yield from self.gate_up.submodules()
        yield from self.down.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.gate_up.load(source, self.device, dtype)
        self.down.load(source, self.device, dtype)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute ``down(act(gate(x)) * up(x))``."""
        return self.down.forward(self.inner(x, context), context)

    def inner(self, x: torch.Tensor, context: ForwardContext, norm: RowNorm | None = None) -> torch.Tensor:
        """Compute ``act(gate(norm(x))) * up(norm(x))``."""
        weight, bias, update = self.gate_up.weight, self.gate_up.bias, self.gate_up.update(context)
        return gated_linear(x, weight, bias, self.activation, norm, update, context.workspace)


class PlainMLP(GatedMLP):
    """Up and down projection, without a gate: ``down(act(up(norm(x)))) + residual``."""

    def inner(self, x: torch.Tensor, context: ForwardContext, norm: RowNorm | None = None) -> torch.Tensor:
        return activated(self.gate_up.forward(x, context, norm=norm), self.activation)


def make_mlp(key: str, layout: MLPLayout, activation: Activation) -> GatedMLP:
    """Build the projections of an MLP, with a gate or without."""
    return (GatedMLP if layout.gated else PlainMLP)(key, layout, activation)


class MLP(HalfLayer):
    """Norm, gated MLP, and residual sum."""

    def __init__(
        self, layer: LayerLayout, layout: MLPLayout, norms: dict[str, RMSNorm], activation: Activation
    ) -> None:
        super().__init__(layer.mlp)
        self.norm, self.post_norm = norms.get(layer.mlp_norm or ""), norms.get(layer.mlp_post_norm or "")
        self.mlp = make_mlp(layer.mlp, layout, activation)

    def weights(self) -> Iterator[tuple[list[str], int]]:
        norm = self.norm or self.post_norm
        for part in (norm, norm, self.mlp):
            if part is not None:
                yield from part.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        return self.mlp.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        for part in (self.norm, self.post_norm, self.mlp):
            if part is not None:
                part.load(source, self.device, dtype)

    def inner(self, x: torch.Tensor, context: ForwardContext) -> Inner:
        return Inner((self.mlp.inner(x, context, fused_norm(self.norm)),))

    def outer(
        self, inner: Inner, x: torch.Tensor, context: ForwardContext, residual: torch.Tensor | None
    ) -> torch.Tensor:
        return self.mlp.down.forward(inner.split[0], context, residual=residual)
