"""Weights of two to eight bits, with a scale, and perhaps a zero point, for each group of inputs of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, ClassVar

import torch
from torch.nn.functional import pad

from constrain.kernels.weights.bits import FLOAT4, FLOAT8, Groups, bytewise, concatenated, decode, unpack_bits
from constrain.kernels.weights.cpu import multiplies_interleaved
from constrain.kernels.weights.fragments import MIDDLES, SUBGROUP, record_codes
from constrain.kernels.weights.interleaved import InterleavedWeight, fills_words, signed_words
from constrain.kernels.weights.packed import PackedWeight
from constrain.kernels.weights.tensor_core import TensorCoreWeight, multiplies_fragments

Rows = torch.Tensor | slice


@dataclass(frozen=True, eq=False)
class GroupedWeight(PackedWeight):
    """A weight of ``(code - zero) * scale * factor``. The classes of this differ in the kind of their codes.

    Attributes:
        kind: of the codes, see :mod:`constrain.kernels.weights.bits`.
        codes: uint8 ``[outputs, bytes of a row]``, a stream of bits; integers are stored with ``middle`` added.
        scales: ``[outputs, groups]`` of any float dtype.
        group_size: inputs of a group: 32, 64, 128 or all, but any number is possible, and the last group may have less.
        zeros: uint8 ``[outputs, groups]``, a code each; ``None``: ``middle`` everywhere.
        order: int32 ``[inputs]``, or ``None`` for their own order. Column ``j`` of codes and groups is of input
            ``order[j]``, so activations are gathered by it first.
        factors: float32 ``[outputs]``, or ``None`` for ones.
    """

    kind: ClassVar[int]

    codes: torch.Tensor
    scales: torch.Tensor
    group_size: int
    zeros: torch.Tensor | None = None
    order: torch.Tensor | None = None
    factors: torch.Tensor | None = None

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.kind % 100

    @property
    def middle(self) -> int:
        """The code of zero where there are no zero points."""
        return 0 if self.kind > 100 else 1 << self.bits - 1

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1] * 8 // self.bits

    def unpacked(self, rows: Rows) -> torch.Tensor:
        """Return the codes of rows ``[..., inputs]``, each of them a byte."""
        return unpack_bits(self.codes[rows], self.bits)

    def dequantized(self, rows: Rows, dtype: torch.dtype) -> torch.Tensor:
        """See :class:`PackedWeight`; computed in float32."""
        codes = self.unpacked(rows)
        values = decode(codes, self.kind) if self.kind > 100 else codes.float() - self.middle
        if self.zeros is not None:
            values -= self._of_inputs(self.zeros[rows].float() - self.middle)
        weight = values * self._of_inputs(bytewise(lambda scales: scales[rows], self.scales).float())
        if self.factors is not None:
            weight *= self.factors[rows].unsqueeze(-1)
        return self._in_their_order(weight).to(dtype)

    def __getitem__(self, rows: torch.Tensor) -> GroupedWeight:
        changed: dict[str, Any] = {name: bytewise(lambda part: part[rows], part) for name, part in self._of_rows()}
        return replace(self, **changed)

    def columns(self, inputs: range) -> GroupedWeight | None:
        """See :class:`PackedWeight`; where the inputs have an order of their own, those of a group are anywhere."""
        end = 0 if inputs.stop == self.shape[1] else inputs.stop
        size = gcd(self.group_size, inputs.start, end)
        if self.order is not None or gcd(inputs.start, end) * self.bits % 8:
            return None
        codes = self.codes[:, inputs.start * self.bits // 8 : inputs.stop * self.bits // 8].clone()
        groups = torch.arange(inputs.start, inputs.stop, size, device=self.device) // self.group_size
        scales = bytewise(lambda part: part[:, groups], self.scales)
        zeros = None if self.zeros is None else self.zeros[:, groups]
        return replace(self, codes=codes, scales=scales, group_size=size, zeros=zeros)

    def prepared(self, dtype: torch.dtype) -> PackedWeight:
        """See :class:`PackedWeight`."""
        if multiplies_interleaved(self.device, dtype) and fills_words(self.groups):
            return self._interleaved()
        if multiplies_fragments(self.device, dtype):
            return self._arranged(dtype) or self
        return self

    def padded(self, outputs: int) -> GroupedWeight:
        """See :class:`PackedWeight`; the scales of the new rows are zero."""
        new = outputs - self.shape[0]
        changed: dict[str, Any] = {
            name: bytewise(lambda part: _with_rows(part, new), part) for name, part in self._of_rows()
        }
        return replace(self, **changed)

    @classmethod
    def merged(cls, parts: Sequence[PackedWeight]) -> GroupedWeight | None:
        """See :class:`PackedWeight`; groups, order of inputs and type of scales must be the same."""
        same = [part for part in parts if isinstance(part, cls) and part._fits(parts[0])]
        if len(same) < len(parts):
            return None
        zeros = factors = None
        if any(part.zeros is not None for part in same):
            zeros = torch.cat([part._explicit_zeros() for part in same])
        if any(part.factors is not None for part in same):
            factors = torch.cat([part._explicit_factors() for part in same])
        codes = torch.cat([part.codes for part in same])
        scales = concatenated([part.scales for part in same])
        return replace(same[0], codes=codes, scales=scales, zeros=zeros, factors=factors)

    @property
    def groups(self) -> Groups:
        """Kind and number of inputs of each group."""
        return group_table(self.kind, self.shape[1], self.group_size)

    def _interleaved(self) -> InterleavedWeight:
        words = self.codes.contiguous().view(torch.int32) if self.kind > 100 else signed_words(self.codes, self.bits)
        zeros = None if self.zeros is None else (self.zeros.int() - self.middle).to(torch.int8)
        return InterleavedWeight.of_rows(words, self.scales, zeros, self.order, self.groups, self.factors)

    def _of_rows(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors with an element or more for each row, by name."""
        return [(name, tensor) for name, tensor in self._tensors() if name != "order"]

    def _arranged(self, dtype: torch.dtype) -> TensorCoreWeight | None:
        name = record_codes(self.kind)
        codes, zeros, scales = self.unpacked(slice(None)), self.zeros, self.scales
        if name == "float4" and self.group_size == SUBGROUP and scales.dtype is torch.float8_e4m3fn:
            return TensorCoreWeight.of_scaled_floats(codes, scales.view(torch.uint8), self._explicit_factors(), dtype)
        if name in MIDDLES:
            # Codes of other widths are in the middle of a wider range.
            more = MIDDLES[name] - self.middle
            codes, zeros = codes + more, None if zeros is None else zeros + more
        if self.factors is not None:
            scales = scales.float() * self.factors.unsqueeze(-1)
        return TensorCoreWeight.of_codes(name, codes, scales, zeros, self.group_size, dtype, self.order)

    def _fits(self, other: PackedWeight) -> bool:
        if not isinstance(other, GroupedWeight) or self.group_size != other.group_size:
            return False
        if self.scales.dtype is not other.scales.dtype or (self.order is None) is not (other.order is None):
            return False
        return self.order is None or other.order is None or torch.equal(self.order, other.order)

    def _explicit_zeros(self) -> torch.Tensor:
        if self.zeros is not None:
            return self.zeros
        return torch.full_like(self.scales, self.middle, dtype=torch.uint8)

    def _explicit_factors(self) -> torch.Tensor:
        return torch.ones(self.shape[0], device=self.device) if self.factors is None else self.factors

    def _of_inputs(self, groups: torch.Tensor) -> torch.Tensor:
        """Repeat values of groups ``[..., groups]`` for each of their inputs."""
        return groups.repeat_interleave(self.group_size, dim=-1)[..., : self.shape[1]]

    def _in_their_order(self, weight: torch.Tensor) -> torch.Tensor:
        if self.order is None:
            return weight
        return torch.empty_like(weight).index_copy_(-1, self.order.long(), weight)


def group_table(kind: int, inputs: int, size: int) -> Groups:
    """Return kind and number of inputs of groups of ``size`` inputs, the last of which may have less."""
    full, rest = divmod(inputs, size)
    return (*[(kind, size)] * full, *[(kind, rest)] * (rest > 0))


def _with_rows(part: torch.Tensor, new: int) -> torch.Tensor:
    return pad(part, (*[0] * (2 * part.ndim - 1), new))


class GroupedInt2Weight(GroupedWeight):
    """Codes of two bits, four in a byte."""

    kind = 2


class GroupedInt3Weight(GroupedWeight):
    """Codes of three bits; a row has a multiple of 32 inputs."""

    kind = 3


class Int4Weight(GroupedWeight):
    """Codes of four bits: uint8 ``[outputs, inputs / 2]``, input ``2 * i`` in the low bits and the next in the high."""

    kind = 4


class GroupedInt5Weight(GroupedWeight):
    """Codes of five bits; a row has a multiple of 32 inputs."""

    kind = 5


class GroupedInt6Weight(GroupedWeight):
    """Codes of six bits; a row has a multiple of 16 inputs."""

    kind = 6


class GroupedInt8Weight(GroupedWeight):
    """Codes of eight bits: uint8 ``[outputs, inputs]``."""

    kind = 8


class Float4Weight(GroupedWeight):
    """Floats E2M1 of four bits, packed as in :class:`Int4Weight`; there are no zero points."""

    kind = FLOAT4


class Float8Weight(GroupedWeight):
    """Floats E4M3: uint8 ``[outputs, inputs]``; there are no zero points."""

    kind = FLOAT8


INTEGERS: dict[int, type[GroupedWeight]] = {
    2: GroupedInt2Weight,
    3: GroupedInt3Weight,
    4: Int4Weight,
    5: GroupedInt5Weight,
    6: GroupedInt6Weight,
    8: GroupedInt8Weight,
}
"""Classes of integers by their bits."""
