"""Packed weights of all experts of a layer, one after the other in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, overload

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
        order: int32 ``[experts, columns]``, the input of each column of the records of an expert, as
            :attr:`TensorCoreWeight.order`; ``None``: the columns are the inputs.
    """

    whole: TensorCoreWeight
    experts: int
    order: torch.Tensor | None = None

    @classmethod
    def of(cls, weights: Iterable[Weight], count: int) -> StackedWeight | None:
        """Stack the weights of ``count`` experts; ``None`` if they differ in form, or no kernel takes them."""
        each = iter(weights)
        first = next(each)
        if not isinstance(first, TensorCoreWeight) or not stacks(first.form, first.outputs):
            return None
        records = first.records.new_empty(count, *first.records.shape)
        order = None if first.order is None else first.order.new_empty(count, first.width)
        for number, weight in enumerate(chain([first], each)):
            if not isinstance(weight, TensorCoreWeight) or not _are_alike(weight, first):
                return None
            records[number] = weight.records
            if order is not None and weight.order is not None:
                order[number] = weight.order
        return cls(
            replace(first, records=records.flatten(0, 1), outputs=count * first.outputs, order=None), count, order
        )

    @property
    def outputs(self) -> int:
        """Outputs of an expert."""
        return self.whole.outputs // self.experts

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self.whole.nbytes + (0 if self.order is None else self.order.nbytes)

    @property
    def width(self) -> int:
        """Columns of the records."""
        return self.whole.inputs if self.order is None else self.order.shape[1]

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
        order = None if self.order is None else self.order[number]
        return replace(self.whole, records=self._records()[number], outputs=self.outputs, order=order)

    def dequantized(self, experts: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        """Return weights as ``dtype``, ``[n, outputs, inputs]``: of experts int64 ``[n]``, or of all."""
        records = self._records() if experts is None else self._records()[experts]
        chosen = replace(self._columns(), records=records.flatten(0, 1), outputs=len(records) * self.outputs)
        # The sum of the columns of an input is rounded once.
        exact = dtype if self.width == self.whole.inputs else torch.float32
        columns = chosen.dequantized(slice(None), exact).view(len(records), self.outputs, -1)
        if self.order is None:
            return columns
        order = (self.order if experts is None else self.order[experts]).long().unsqueeze(1).expand_as(columns)
        found = columns.new_zeros(*columns.shape[:2], self.whole.inputs)
        return found.scatter_add_(2, order, columns).to(dtype)

    def view(self) -> Any:
        """Describe the columns of all experts to the kernels."""
        return self._columns().view()

    def _columns(self) -> TensorCoreWeight:
        """The weight of all experts in the order of the records."""
        return replace(self.whole, inputs=self.width)

    def _records(self) -> torch.Tensor:
        return self.whole.records.view(self.experts, -1, *self.whole.records.shape[1:])


def _are_alike(one: TensorCoreWeight, other: TensorCoreWeight) -> bool:
    """Return whether weights have records of one form, as many of them, and both an order of inputs or none."""
    ordered = (one.order is None) is (other.order is None)
    return one.form == other.form and one.records.shape == other.records.shape and ordered and one.width == other.width


def stacks(form: RecordForm, outputs: int) -> bool:
    """Return whether the kernels take experts of some form, with ``outputs`` outputs each."""
    if outputs % TILE:
        return False
    if form.codes in ("int4", "scaled_float4"):
        return True
    return not form.zeros and form.group in {"int8": (32, 128), "float8": (128,), "float4": (32,)}[form.codes]
