"""A source of the parts of tensors that belong to a shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from constrain.errors import WeightsError
from constrain.kernels import GroupedWeight, PackedWeight, Weight
from constrain.model.shard_layout import Slice, Slices
from constrain.model.tensor_reader import TensorSource

_Packed = TypeVar("_Packed", bound=PackedWeight)


class WholeTensors:
    """The whole tensors of a layer: each is read once, and given to all shards."""

    def __init__(self, source: TensorSource) -> None:
        self.source = source
        self._plain: dict[str, torch.Tensor] = {}
        self._packed: dict[str, Any] = {}

    def plain(self, key: str, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the dtype of ``like``, on the device of the first one that is asked for."""
        if key not in self._plain:
            self._plain[key] = torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
            self.source.copy(key, self._plain[key])
        return self._plain[key]

    def packed(self, key: str, read: Callable[[], list[_Packed] | None]) -> list[_Packed] | None:
        """Return the result of the first call of ``read`` for this tensor."""
        if key not in self._packed:
            self._packed[key] = read()
        found: list[_Packed] | None = self._packed[key]
        return found


class ShardSource:
    """Fills the tensors of a shard with the parts that belong to it."""

    def __init__(self, whole: WholeTensors, slices: Slices) -> None:
        self._whole, self._slices = whole, slices

    def copy(self, key: str, target: torch.Tensor) -> None:
        """See :class:`~constrain.model.tensor_reader.TensorSource`."""
        part = self._slices.get(key)
        tensor = self._whole.plain(key, part.shape if part else target.shape, target)
        target.copy_(part.of(tensor) if part else tensor)

    def packed(self, key: str, shape: tuple[int, int], device: torch.device) -> PackedWeight | None:
        """See :class:`~constrain.model.tensor_reader.TensorSource`."""
        part = self._slices.get(key)
        whole = shape if part is None else (part.shape[0], part.shape[1])
        found = self._whole.packed(key, lambda: _listed(self._whole.source.packed(key, whole, device)))
        return None if found is None else _part(key, found[0], part).to(device)

    def packed_experts(self, key: str, shape: tuple[int, ...]) -> list[GroupedWeight] | None:
        """See :class:`~constrain.model.tensor_reader.TensorSource`."""
        part = self._slices.get(key)
        whole = part.shape if part else shape
        found = self._whole.packed(key, lambda: self._whole.source.packed_experts(key, whole))
        return None if found is None else [_part(key, each, part) for each in found]


def _listed(weight: PackedWeight | None) -> list[PackedWeight] | None:
    return None if weight is None else [weight]


def _part(key: str, weight: _Packed, part: Slice | None) -> _Packed:
    """Return the part of a weight ``[outputs, inputs]``."""
    if part is None:
        return weight
    if part.by_inputs:
        own: Weight | None = weight.columns(part.ranges[0])
    else:
        own = weight[torch.cat([torch.arange(each.start, each.stop) for each in part.ranges])]
    if own is None:
        raise WeightsError(f"{key}: the inputs of a {type(weight).__name__} cannot be split over devices")
    # Weights are split before they get the form that their device multiplies.
    assert isinstance(own, type(weight))
    return own
