"""States of a model whose layers are split over devices: copies, sums and concatenation between the devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch

from constrain.kernels import PeerSum, can_access_peers
from constrain.model.forward_context import ForwardContext

Replicas = dict[torch.device, torch.Tensor]
"""The same states on every device."""


class ShardGroup:
    """The devices of the shards of a model, between which tensors are copied directly.

    All devices compute the same sums in the same order, so that replicas are equal to the last bit.

    Attributes:
        shards: the device of each shard; devices may repeat.
        main: the first one.
        devices: distinct devices.
    """

    def __init__(self, shards: Sequence[torch.device]) -> None:
        self.shards, self.main = tuple(shards), shards[0]
        self.devices = tuple(dict.fromkeys(shards))

    @cached_property
    def _peers(self) -> PeerSum | None:
        """Sums without copies, where the devices can access each other's memory."""
        return PeerSum(self.shards) if can_access_peers(self.shards) else None

    def context(self, context: ForwardContext, device: torch.device) -> ForwardContext:
        """Return the forward context on a device, given that on the main one."""
        return context if device == self.main else context.on(device)

    def replicas(self, x: torch.Tensor, context: ForwardContext) -> Replicas:
        """Return states of the main device on all devices, without a copy if the last half layer left its replicas."""
        if context.replicas.get(self.main) is not x:
            context.replicas = {device: x.to(device) for device in self.devices}
        return context.replicas

    def summed(self, parts: Sequence[torch.Tensor]) -> Replicas:
        """Return the sum of parts, each on the device of its shard, on all devices; the parts may be overwritten."""
        moved = self._moved(parts)
        for terms in moved.values():
            for term in terms[1:]:
                terms[0].add_(term)
        return {device: terms[0] for device, terms in moved.items()}

    def exchanges(self, working: Sequence[int], part: torch.Tensor) -> bool:
        """Return whether :meth:`exchanged` sums parts like this one, of these shards: all of them, and small parts."""
        return len(working) == len(self.shards) and self._peers is not None and self._peers.takes(part)

    def exchanged(self, parts: Sequence[torch.Tensor], residuals: Replicas | None) -> Replicas:
        """Return the sum of parts and residuals on all devices, as :meth:`summed` does, but with no copies."""
        assert self._peers is not None
        own = [None if residuals is None else residuals[device] for device in self.shards]
        return dict(zip(self.shards, self._peers(parts, own), strict=True))

    def joined(self, parts: Sequence[torch.Tensor]) -> Replicas:
        """Return parts of the last dimension, each on the device of its shard, as one on all devices."""
        return {device: torch.cat(terms, dim=-1) for device, terms in self._moved(parts).items()}

    def _moved(self, parts: Sequence[torch.Tensor]) -> dict[torch.device, list[torch.Tensor]]:
        """Copy all parts to all devices before any is overwritten."""
        return {device: [part.to(device) for part in parts] for device in self.devices}
