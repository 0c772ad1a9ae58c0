"""Packed weights of all experts of a layer, one after the other in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import overload

import torch

from constrain.kernels.weights.fragments import TILE, RecordForm
from constrain.kernels.weights.packed import Weight
from constrain.kernels.weights.tensor_core import TensorCoreWeight


@dataclass(frozen=True, eq=False)
class StackedWeight(Sequence[TensorCoreWeight]):
    """A packed weight ``[outputs, inputs]`` for each of ``experts`` experts, in one tensor.

    Attributes:
        whole: the rows of all experts.
        experts: number of experts.
    """

    whole: TensorCoreWeight
    experts: int

    @classmethod
    def of(cls, weights: Iterable[Weight], count: int) -> StackedWeight | None:
        """Stack the weights of ``count`` experts; ``None`` if they differ in form, or no kernel takes them."""
        each = iter(weights)
        first = next(each)
        if not isinstance(first, TensorCoreWeight) or first.order is not None or not stacks(first.form, first.outputs):
            return None
        records = first.records.new_empty(count, *first.records.shape)
        for number, weight in enumerate(chain([first], each)):
            if not isinstance(weight, TensorCoreWeight) or weight.order is not None or weight.form != first.form:
                return None
            records[number] = weight.records
        return cls(replace(first, records=records.flatten(0, 1), outputs=count * first.outputs), count)

    @property
    def outputs(self) -> int:
        """Outputs of an expert."""
        return self.whole.outputs // self.experts

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self.whole.nbytes

    @property
    def device(self) -> torch.device:
        """Device of the records."""
        return self.whole.device

    def __len__(self) -> int:
        return self.experts

    @overload
    def __getitem__(self, number: int) -> TensorCoreWeight: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[TensorCoreWeight]: ...
    def __getitem__(self, number: int | slice) -> TensorCoreWeight | Sequence[TensorCoreWeight]:
        """Return the weight of an expert, which shares its memory."""
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(self.experts))]
        if not 0 <= number < self.experts:
            raise IndexError(number)
        return replace(self.whole, records=self._records()[number], outputs=self.outputs)

    def dequantized(self, experts: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        """Return weights as ``dtype``, ``[n, outputs, inputs]``: of experts int64 ``[n]``, or of all."""
        records = self._records() if experts is None else self._records()[experts]
        chosen = replace(self.whole, records=records.flatten(0, 1), outputs=len(records) * self.outputs)
        return chosen.dequantized(slice(None), dtype).view(len(records), self.outputs, -1)

    def _records(self) -> torch.Tensor:
        return self.whole.records.view(self.experts, -1, *self.whole.records.shape[1:])


def stacks(form: RecordForm, outputs: int) -> bool:
    """Return whether the kernels take experts of some form, with ``outputs`` outputs each."""
    if outputs % TILE:
        return False
    if form.codes in ("int4", "scaled_float4"):
        return True
    return not form.zeros and form.group in {"int8": (32, 128), "float8": (128,), "float4": (32,)}[form.codes]
