"""Weights of four or eight bits, with a scale, and perhaps a zero point, for each group of inputs of a row."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from constrain.kernels.weights.packed import PackedWeight


@dataclass(frozen=True, eq=False)
class GroupedWeight(PackedWeight):
    """A weight of ``(code - zero) * scale``; :class:`Int4Weight` and :class:`GroupedInt8Weight` pack the codes.

    Attributes:
        codes: uint8 ``[outputs, bytes of a row]``.
        scales: ``[outputs, groups]`` of any float dtype.
        group_size: inputs of a group: 32, 64, 128 or all, but any number is possible, and the last group may have less.
        zeros: uint8 ``[outputs, groups]``, from 0 to ``2 * middle`` (so one more than a code may be); ``None``:
            ``middle`` everywhere.
        order: int32 ``[inputs]``, or ``None`` for their own order. Column ``j`` of codes and groups is of input
            ``order[j]``, so activations are gathered by it first.
    """

    middle: ClassVar[int]

    codes: torch.Tensor
    scales: torch.Tensor
    group_size: int
    zeros: torch.Tensor | None = None
    order: torch.Tensor | None = None

    @abstractmethod
    def unpacked(self, rows: torch.Tensor | slice) -> torch.Tensor:
        """Return the codes of rows ``[..., inputs]``, each of them a byte."""

    @property
    def nbytes(self) -> int:
        parts = (self.codes, self.scales, self.zeros, self.order)
        return sum(part.nbytes for part in parts if part is not None)

    def dequantized(self, rows: torch.Tensor | slice, dtype: torch.dtype) -> torch.Tensor:
        """See :class:`PackedWeight`; computed in float32."""
        codes, scales = self.unpacked(rows).float(), self.scales[rows].float()
        zeros = self.middle if self.zeros is None else self._of_inputs(self.zeros[rows].float())
        weight = (codes - zeros) * self._of_inputs(scales)
        return self._in_their_order(weight).to(dtype)

    def __getitem__(self, rows: torch.Tensor) -> GroupedWeight:
        zeros = None if self.zeros is None else self.zeros[rows]
        return replace(self, codes=self.codes[rows], scales=self.scales[rows], zeros=zeros)

    def _of_inputs(self, groups: torch.Tensor) -> torch.Tensor:
        """Repeat values of groups ``[..., groups]`` for each of their inputs."""
        return groups.repeat_interleave(self.group_size, dim=-1)[..., : self.shape[1]]

    def _in_their_order(self, weight: torch.Tensor) -> torch.Tensor:
        if self.order is None:
            return weight
        return torch.empty_like(weight).index_copy_(-1, self.order.long(), weight)


class Int4Weight(GroupedWeight):
    """Codes of four bits: uint8 ``[outputs, inputs / 2]``, input ``2 * i`` in the low bits and the next in the high."""

    middle = 8

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], 2 * self.codes.shape[1]

    def unpacked(self, rows: torch.Tensor | slice) -> torch.Tensor:
        codes = self.codes[rows]
        return torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)


class GroupedInt8Weight(GroupedWeight):
    """Codes of eight bits: uint8 ``[outputs, inputs]``."""

    middle = 128

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    def unpacked(self, rows: torch.Tensor | slice) -> torch.Tensor:
        return self.codes[rows]
