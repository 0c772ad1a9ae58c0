"""Mixtures of experts in place of MLPs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from constrain.kernels import (
    Activation,
    ExpertChoice,
    ExpertMLP,
    ExpertWeight,
    GroupedWeight,
    LowRankUpdate,
    Routing,
    StackedWeight,
    Weight,
    expert_linear,
    expert_mlp,
    gated_activation,
    multiplies_packed,
    route,
    route_normed,
    stacks,
    weighted_sum,
)
from constrain.model.devices import first_device
from constrain.model.forward_context import Adapter, ForwardContext
from constrain.model.layout import ExpertLinearLayout, LayerLayout, LinearLayout, MixtureLayout
from constrain.model.modules import HalfLayer, Inner, Linear, RMSNorm, copy_rows, load_weight, make_mlp
from constrain.model.tensor_reader import TensorSource


class _Expert(Linear):
    """A projection of one expert, by which adapters find it; its weight is part of that of all experts."""

    def __init__(self, layout: LinearLayout, changed: Callable[[], None]) -> None:
        super().__init__(layout)
        self._changed = changed

    def attach(self, adapter: Adapter, key: str, down: torch.Tensor, up: torch.Tensor) -> None:
        super().attach(adapter, key, down, up)
        self._changed()

    def detach(self, adapter: Adapter) -> None:
        super().detach(adapter)
        self._changed()


class ExpertLinear:
    """The same projections of every expert, with their adapters.

    Attributes:
        weight: ``[experts, n, k]``, plain, or packed in one tensor; on a CPU one packed weight for each expert.
        bias: ``[experts, n]``, if there is one.
    """

    def __init__(self, layout: ExpertLinearLayout) -> None:
        self.layout = layout
        self.weight: ExpertWeight = torch.empty(0)
        self.bias: torch.Tensor | None = None
        self._merged: dict[tuple[Adapter, ...], tuple[torch.Tensor, torch.Tensor] | None] = {}
        self._experts = [_Expert(expert, self._merged.clear) for expert in layout.experts]

    def weights(self) -> Iterator[tuple[list[str], int]]:
        """See :meth:`constrain.model.modules.Module.weights`."""
        experts, rows, inputs = self.layout.shape
        if not self._stays_packed(first_device()):
            # Without names, the memory is that of plain weights.
            yield [], experts * rows * inputs
        elif self.layout.stacked:
            yield [self.layout.stacked], experts * rows * inputs
        else:
            for expert in self.layout.experts:
                yield [f"{key}.weight" for key, _ in expert.parts()], rows * inputs
        if self.layout.bias:
            yield [self.layout.bias], math.prod(self.layout.shape[:2])

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        """See :meth:`constrain.model.modules.Module.submodules`."""
        for expert in self._experts:
            yield from expert.submodules()

    def load(self, source: TensorSource, device: torch.device, dtype: torch.dtype) -> None:
        """See :meth:`constrain.model.modules.Module.load`."""
        weight = self._load_packed(source, device, dtype) if self._stays_packed(device) else None
        self.weight = self._load_plain(source, device, dtype) if weight is None else weight
        if self.layout.bias:
            bias = torch.empty(self.layout.shape[:2], dtype=dtype, device=device)
            source.copy(self.layout.bias, bias)
            self.bias = self._ordered(bias)
        for number, expert in enumerate(self._experts):
            expert.device, expert.weight = device, self.weight[number]

    def _stays_packed(self, device: torch.device) -> bool:
        """Whether packed weights stay so, unless an expert turns out to be stored in another form."""
        records, rows = self.layout.records, self.layout.experts[0].outputs
        # A step that is one graph has all experts in one tensor.
        return device.type != "cuda" or (records is not None and all(stacks(records, each) for each in rows))

    def _load_packed(self, source: TensorSource, device: torch.device, dtype: torch.dtype) -> ExpertWeight | None:
        """Load the weights packed; ``None`` if they are not stored so, or the device cannot multiply them together."""
        if not multiplies_packed(device, dtype):
            return None
        each = self._packed_experts(source, device, dtype)
        if each is None:
            return None
        return StackedWeight.of(each, len(self._experts)) if device.type == "cuda" else tuple(each)

    def _packed_experts(
        self, source: TensorSource, device: torch.device, dtype: torch.dtype
    ) -> Iterator[Weight] | None:
        """Return the weights of the experts, one loaded after the other; ``None`` if the first is not packed."""
        _, rows, inputs = self.layout.shape
        if self.layout.stacked:
            stored = source.packed_experts(self.layout.stacked, self.layout.stored_shape)
            if stored is None:
                return None
            return (self._ordered_rows(weight).to(device).prepared(dtype) for weight in stored)
        parts = [dict(expert.parts()) for expert in self.layout.experts]
        key, count = next(iter(parts[0].items()))
        if source.packed(f"{key}.weight", (count, inputs), device) is None:
            return None
        return (load_weight(source, each, rows, inputs, dtype, device) for each in parts)

    def _load_plain(self, source: TensorSource, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """Load the weights of all experts, dequantised."""
        if self.layout.stacked:
            stored = torch.empty(self.layout.stored_shape, dtype=dtype, device=device)
            source.copy(self.layout.stacked, stored)
            return self._ordered(stored.transpose(1, 2) if self.layout.transposed else stored)
        weight = torch.empty(self.layout.shape, dtype=dtype, device=device)
        for number, expert in enumerate(self.layout.experts):
            copy_rows(source, dict(expert.parts()), weight[number])
        return weight

    def _ordered_rows(self, weight: GroupedWeight) -> GroupedWeight:
        """:meth:`_ordered` for the weight of one expert."""
        rows = torch.arange(weight.shape[0])
        return weight[torch.cat((rows[::2], rows[1::2]))] if self.layout.alternating else weight

    def _ordered(self, stored: torch.Tensor) -> torch.Tensor:
        """Return a tensor of all experts, ``[experts, n, ...]``, with all rows of the gate before those of up."""
        if self.layout.alternating:
            stored = torch.cat((stored[:, ::2], stored[:, 1::2]), dim=1)
        return stored.contiguous()

    def forward(
        self,
        x: torch.Tensor,
        experts: torch.Tensor,
        context: ForwardContext,
        activation: Activation | None = None,
    ) -> torch.Tensor:
        """Compute :func:`constrain.kernels.expert_linear`, plus the products of adapters."""
        adapter = self._merged_adapter(context)
        if adapter is None:
            return expert_linear(x, self.weight, experts, self.bias, activation)
        down, up = adapter
        y = expert_linear(x, self.weight, experts, self.bias).add_(
            expert_linear(expert_linear(x, down, experts), up, experts)
        )
        return y if activation is None else gated_activation(y, activation)

    def is_adapted(self, context: ForwardContext) -> bool:
        """Return whether an active adapter changes the projections of any expert."""
        return self._merged_adapter(context) is not None

    def _merged_adapter(self, context: ForwardContext) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the active adapters of all experts as one: ``[experts, r, k]`` and ``[experts, n, r]``."""
        active = tuple(context.loras)
        if active and active not in self._merged:
            self._merged[active] = self._merge([expert.update(context) for expert in self._experts])
        return self._merged[active] if active else None

    def _merge(self, each: list[LowRankUpdate | None]) -> tuple[torch.Tensor, torch.Tensor] | None:
        given = [update for update in each if update is not None]
        if not given:
            return None
        rank = max(update.down.shape[0] for update in given)
        experts, rows, inputs = self.layout.shape
        all_down = given[0].down.new_zeros(experts, rank, inputs)
        all_up = given[0].up.new_zeros(experts, rows, rank)
        for number, update in enumerate(each):
            if update is not None:
                all_down[number, : len(update.down)] = update.down
                all_up[number, :, : len(update.down)] = update.up
        return all_down, all_up


class Mixture(HalfLayer):
    """Norm, mixture of experts, and residual sum."""

    def __init__(
        self,
        layer: LayerLayout,
        layout: MixtureLayout,
        norms: dict[str, RMSNorm],
        activation: Activation,
        routing: Routing,
        weighted_inputs: bool = False,
    ) -> None:
        super().__init__(layer.mlp)
        self.norm, self.post_norm = norms[layer.mlp_norm or ""], norms.get(layer.mlp_post_norm or "")
        self.router, self.layout = Linear(layout.router), layout
        self.correction: torch.Tensor | None = None
        self.gate_up, self.down = ExpertLinear(layout.gate_up), ExpertLinear(layout.down)
        self.shared = make_mlp(f"{layer.mlp}.shared", layout.shared, activation) if layout.shared else None
        self.shared_gate = Linear(layout.shared_gate) if layout.shared_gate else None
        self.activation, self.routing, self.weighted_inputs = activation, routing, weighted_inputs

    def weights(self) -> Iterator[tuple[list[str], int]]:
        for part in (self.norm, self.norm, self.router, self.gate_up, self.down, self.shared, self.shared_gate):
            if part is not None:
                yield from part.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        for part in (self.router, self.gate_up, self.down, self.shared, self.shared_gate):
            if part is not None:
                yield from part.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        parts = (self.norm, self.post_norm, self.router, self.gate_up, self.down, self.shared, self.shared_gate)
        for part in parts:
            if part is not None:
                part.load(source, self.device, dtype)
        if self.layout.correction:
            correction = torch.empty(self.layout.correction_shape, device=self.device)
            source.copy(self.layout.correction, correction)
            self.correction = correction.flatten()
        # The product with separate weights asks the host which experts were chosen.
        weights = (self.gate_up.weight, self.down.weight)
        self.capturable = all(isinstance(weight, (torch.Tensor, StackedWeight)) for weight in weights)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        if self.weighted_inputs or self.gate_up.is_adapted(context) or self.down.is_adapted(context):
            return super().forward(x, context)
        rows, choice = self._route(x, context)
        mlp = ExpertMLP(self.gate_up.weight, self.down.weight, self.activation, self.gate_up.bias, self.down.bias)
        states = x.flatten(0, 1) if self.post_norm is None else None
        if self.shared is None:
            y = expert_mlp(rows, choice, mlp, states)
        else:
            shared = self._gated(self.shared.forward(rows, context), rows, context)
            y = expert_mlp(rows, choice, mlp, shared)
            y = y if states is None else states + y
        return self.finish(y.view_as(x), x, context)

    def _route(self, x: torch.Tensor, context: ForwardContext) -> tuple[torch.Tensor, ExpertChoice]:
        """Return the normalised rows, and the experts of each."""
        if self.router.update(context) is None:
            router = self.router
            return route_normed(
                x.flatten(0, 1), self.norm.fused, router.weight, router.bias, self.routing, self.correction
            )
        rows = self.norm.forward(x, context).flatten(0, 1)
        return rows, route(self.router.forward(rows, context), self.routing, self.correction)

    def inner(self, x: torch.Tensor, context: ForwardContext) -> Inner:
        rows, (experts, weights) = self._route(x, context)
        given = rows.unsqueeze(1)
        if self.weighted_inputs:
            given, weights = given * weights.to(rows.dtype).unsqueeze(-1), torch.ones_like(weights)
        routed = self.gate_up.forward(given, experts, context, self.activation)
        shared = () if self.shared is None else (self.shared.inner(rows, context),)
        return Inner((routed, *shared), (rows, experts, weights))

    def outer(
        self, inner: Inner, x: torch.Tensor, context: ForwardContext, residual: torch.Tensor | None
    ) -> torch.Tensor:
        (routed, *shared), (rows, experts, weights) = inner.split, inner.whole
        y = weighted_sum(self.down.forward(routed, experts, context), weights)
        if self.shared is not None:
            y += self._gated(self.shared.down.forward(shared[0], context), rows, context)
        y = y.view(*x.shape[:-1], -1)
        return y if residual is None else residual + y

    def _gated(self, y: torch.Tensor, rows: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Weight the result of the shared MLP."""
        return y if self.shared_gate is None else y.mul_(self.shared_gate.forward(rows, context).sigmoid_())
