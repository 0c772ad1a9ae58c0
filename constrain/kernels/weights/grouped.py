"""Weights of four or eight bits, with a scale, and perhaps a zero point, for each group of inputs of a row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch.nn.functional import pad

from constrain.kernels.weights.cpu import multiplies_packed
from constrain.kernels.weights.interleaved import Groups, InterleavedWeight, fills_words, signed_words
from constrain.kernels.weights.packed import PackedWeight
from constrain.kernels.weights.tensor_core import TensorCoreWeight, multiplies_fragments


@dataclass(frozen=True, eq=False)
class GroupedWeight(PackedWeight):
    """A weight of ``(code - zero) * scale``; :class:`Int4Weight` and :class:`GroupedInt8Weight` pack the codes.

    Attributes:
        codes: uint8 ``[outputs, bytes of a row]``.
        scales: ``[outputs, groups]`` of any float dtype.
        group_size: inputs of a group: 32, 64, 128 or all, but any number is possible, and the last group may have less.
        zeros: uint8 ``[outputs, groups]``, a code each; ``None``: ``middle`` everywhere.
        order: int32 ``[inputs]``, or ``None`` for their own order. Column ``j`` of codes and groups is of input
            ``order[j]``, so activations are gathered by it first.
    """

    bits: ClassVar[int]
    middle: ClassVar[int]

    codes: torch.Tensor
    scales: torch.Tensor
    group_size: int
    zeros: torch.Tensor | None = None
    order: torch.Tensor | None = None

    @abstractmethod
    def unpacked(self, rows: torch.Tensor | slice) -> torch.Tensor:
        """Return the codes of rows ``[..., inputs]``, each of them a byte."""

    def dequantized(self, rows: torch.Tensor | slice, dtype: torch.dtype) -> torch.Tensor:
        """See :class:`PackedWeight`; computed in float32."""
        codes, scales = self.unpacked(rows).float(), self.scales[rows].float()
        zeros = self.middle if self.zeros is None else self._of_inputs(self.zeros[rows].float())
        weight = (codes - zeros) * self._of_inputs(scales)
        return self._in_their_order(weight).to(dtype)

    def __getitem__(self, rows: torch.Tensor) -> GroupedWeight:
        zeros = None if self.zeros is None else self.zeros[rows]
        return replace(self, codes=self.codes[rows], scales=self.scales[rows], zeros=zeros)

    def prepared(self, dtype: torch.dtype) -> PackedWeight:
        """See :class:`PackedWeight`."""
        if multiplies_packed(self.device, dtype) and fills_words(self._groups()):
            return self._interleaved()
        if multiplies_fragments(self.device, dtype, self.shape[1]):
            return self._arranged(dtype) or self
        return self

    def padded(self, outputs: int) -> GroupedWeight:
        """See :class:`PackedWeight`; the scales of the new rows are zero."""
        rows = (0, 0, 0, outputs - self.shape[0])
        zeros = None if self.zeros is None else pad(self.zeros, rows)
        return replace(self, codes=pad(self.codes, rows), scales=pad(self.scales, rows), zeros=zeros)

    @classmethod
    def merged(cls, parts: Sequence[PackedWeight]) -> GroupedWeight | None:
        """See :class:`PackedWeight`; groups, order of inputs and type of scales must be the same."""
        same = [part for part in parts if isinstance(part, cls) and part._fits(parts[0])]
        if len(same) < len(parts):
            return None
        plain = all(part.zeros is None for part in same)
        zeros = None if plain else torch.cat([part._explicit_zeros() for part in same])
        codes, scales = torch.cat([part.codes for part in same]), torch.cat([part.scales for part in same])
        return replace(same[0], codes=codes, scales=scales, zeros=zeros)

    def _groups(self) -> Groups:
        inputs, count = self.shape[1], self.scales.shape[1]
        last = inputs - (count - 1) * self.group_size
        return (*[(self.bits, self.group_size)] * (count - 1), (self.bits, last))

    def _interleaved(self) -> InterleavedWeight:
        words = signed_words(self.codes, self.bits)
        zeros = None if self.zeros is None else (self.zeros.int() - self.middle).to(torch.int8)
        return InterleavedWeight.of_rows(words, self.scales, zeros, self.order, self._groups())

    def _arranged(self, dtype: torch.dtype) -> TensorCoreWeight | None:
        codes = self.unpacked(slice(None))
        return TensorCoreWeight.of_codes(
            f"int{self.bits}", codes, self.scales, self.zeros, self.group_size, dtype, self.order
        )

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

    def _of_inputs(self, groups: torch.Tensor) -> torch.Tensor:
        """Repeat values of groups ``[..., groups]`` for each of their inputs."""
        return groups.repeat_interleave(self.group_size, dim=-1)[..., : self.shape[1]]

    def _in_their_order(self, weight: torch.Tensor) -> torch.Tensor:
        if self.order is None:
            return weight
        return torch.empty_like(weight).index_copy_(-1, self.order.long(), weight)


class Int4Weight(GroupedWeight):
    """Codes of four bits: uint8 ``[outputs, inputs / 2]``, input ``2 * i`` in the low bits and the next in the high."""

    bits, middle = 4, 8

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], 2 * self.codes.shape[1]

    def unpacked(self, rows: torch.Tensor | slice) -> torch.Tensor:
        codes = self.codes[rows]
        return torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)


class GroupedInt8Weight(GroupedWeight):
    """Codes of eight bits: uint8 ``[outputs, inputs]``."""

    bits, middle = 8, 128

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    def unpacked(self, rows: torch.Tensor | slice) -> torch.Tensor:
        return self.codes[rows]
