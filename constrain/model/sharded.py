"""Half layers that are split over devices (tensor parallelism)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from constrain.model.forward_context import Adapter, ForwardContext
from constrain.model.modules import HalfLayer, Inner, Linear, Module
from constrain.model.shard_group import Replicas, ShardGroup
from constrain.model.shard_layout import Slices
from constrain.model.shard_source import ShardSource, WholeTensors
from constrain.model.tensor_reader import TensorSource

Contexts = Mapping[torch.device, ForwardContext]


class ShardedHalfLayer(Module):
    """A half layer of which every device computes a part, as planned by :mod:`constrain.model.sharding`.

    Attributes:
        whole: the half layer without weights, as it would be on one device.
        shards: its parts; each is a half layer with fewer heads or features.
    """

    def __init__(
        self,
        whole: HalfLayer,
        shards: Sequence[HalfLayer],
        slices: Sequence[Slices],
        group: ShardGroup,
        working: Sequence[int],
        outputs: Sequence[range] | None,
    ) -> None:
        """
        Args:
            whole, shards: see the class.
            slices: parts of tensors, by shard.
            group: the devices.
            working: numbers of the shards that have a part of this half layer; the others only receive its result.
            outputs: features of the states that each shard computes from the inner features of all shards; ``None``:
                each computes all of them from its own, and they are summed.
        """
        super().__init__(whole.key)
        self.whole, self.shards = whole, tuple(shards)
        self._slices, self._group, self._working, self._outputs = slices, group, tuple(working), outputs
        self.device = group.main

    def weights(self) -> Iterator[tuple[list[str], int]]:
        return self.whole.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        by_shard = {number: dict(self.shards[number].submodules()) for number in self._working}
        for name, linear in self.whole.submodules():
            parts = {number: linears[name] for number, linears in by_shard.items()}
            yield name, ShardedLinear(linear, parts, self._slices, self._group)

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        whole = WholeTensors(source)
        for number, (shard, slices) in enumerate(zip(self.shards, self._slices, strict=True)):
            device = self.device if self.device.type == "meta" else self._group.shards[number]
            own = ShardSource(whole, slices)
            if number in self._working:
                shard.load(own, device, dtype)
            elif shard.post_norm is not None:
                shard.post_norm.load(own, device, dtype)
        self.capturable = all(shard.capturable for shard in self.shards)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        group = self._group
        states = group.replicas(x, context)
        contexts = {device: group.context(context, device) for device in group.devices}
        parts = self._summands if self._outputs is None else self._columns
        added = parts(states, contexts)
        context.replicas = {
            device: self._on(device).finish(added[device], states[device], contexts[device]) for device in group.devices
        }
        return context.replicas[group.main]

    def _summands(self, states: Replicas, contexts: Contexts) -> Replicas:
        """Have each shard compute all features of the states from its own inner features, and sum them."""
        group, has_residual = self._group, self.whole.post_norm is None
        exchanged = group.exchanges(self._working, states[group.main])
        parts = []
        for number in self._working:
            at = group.shards[number]
            # The states are added once: by the exchange, or by the last shard, which may overwrite them.
            last = number == self._working[-1] and has_residual and not exchanged
            parts.append(self.shards[number].added(states[at], contexts[at], states[at] if last else None))
        return group.exchanged(parts, states if has_residual else None) if exchanged else group.summed(parts)

    def _columns(self, states: Replicas, contexts: Contexts) -> Replicas:
        """Have each shard compute some features of the states from the inner features of all."""
        devices = [self._group.shards[number] for number in self._working]
        shards = [self.shards[number] for number in self._working]
        inner = [shard.inner(states[at], contexts[at]) for shard, at in zip(shards, devices, strict=True)]
        parts = [
            shard.outer(features, states[at], contexts[at], self._residual(number, states[at]))
            for number, shard, features, at in zip(
                self._working, shards, self._gathered(inner, devices), devices, strict=True
            )
        ]
        return self._group.joined(parts)

    def _residual(self, number: int, states: torch.Tensor) -> torch.Tensor | None:
        """Return the features of the states to which a shard adds."""
        if self.whole.post_norm is not None or self._outputs is None:
            return None
        return states[..., self._outputs[number].start : self._outputs[number].stop]

    def _gathered(self, inner: Sequence[Inner], devices: Sequence[torch.device]) -> list[Inner]:
        """Gather the inner features of all shards on the device of each."""
        joined = [self._group.joined(parts) for parts in zip(*(each.split for each in inner), strict=True)]
        return [Inner(tuple(each[at] for each in joined), own.whole) for own, at in zip(inner, devices, strict=True)]

    def _on(self, device: torch.device) -> HalfLayer:
        return self.shards[self._group.shards.index(device)]


class ShardedLinear(Linear):
    """A projection that is split over devices, to which adapters are attached."""

    def __init__(self, whole: Linear, parts: Mapping[int, Linear], slices: Sequence[Slices], group: ShardGroup) -> None:
        super().__init__(whole.layout)
        self._parts, self._slices, self._group = parts, slices, group
        self.device = group.main

    def attach(self, adapter: Adapter, key: str, down: torch.Tensor, up: torch.Tensor) -> None:
        """See :class:`~constrain.model.modules.Linear`; each part gets its slice of ``up`` or ``down``."""
        for shard, part in self._parts.items():
            own, device = self._slices[shard].get(f"{key}.weight"), self._group.shards[shard]
            own_down = own.of(down) if own and own.by_inputs else down
            own_up = own.of(up) if own and not own.by_inputs else up
            part.attach(adapter, key, own_down.to(device).contiguous(), own_up.to(device).contiguous())

    def detach(self, adapter: Adapter) -> None:
        for part in self._parts.values():
            part.detach(adapter)
