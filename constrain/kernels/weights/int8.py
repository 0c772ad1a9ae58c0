"""Weights of eight bits with a scale for each row, as the CPU multiplies them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from constrain.kernels.weights.cpu import BLOCK, pool
from constrain.kernels.weights.packed import PackedWeight


@dataclass(frozen=True, eq=False)
class Int8Weight(PackedWeight):
    """A weight ``[outputs, inputs]``: integers, and a scale for each row.

    Attributes:
        codes: int8 ``[blocks, inputs, 32]``, for each 32 rows their elements of an input side by side.
        scales: float32 ``[blocks * 32]``.
        outputs: number of rows; the last block may have more, of zeros.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    outputs: int

    @classmethod
    def of_rows(cls, codes: torch.Tensor, scales: torch.Tensor, outputs: int) -> Int8Weight:
        """Interleave int8 ``[n, inputs]`` with scales ``[n]``, and add rows of zeros up to ``outputs``."""
        padding = -(-outputs // BLOCK) * BLOCK - len(codes)
        blocks = torch.nn.functional.pad(codes, (0, 0, 0, padding)).view(-1, BLOCK, codes.shape[1])
        scales = torch.nn.functional.pad(scales, (0, padding))
        return cls(blocks.transpose(1, 2).contiguous(), scales, outputs)

    @property
    def shape(self) -> tuple[int, int]:
        return self.outputs, self.codes.shape[1]

    def __getitem__(self, rows: torch.Tensor) -> Int8Weight:
        """Return the weight of rows ``[n]``."""
        return Int8Weight.of_rows(self._codes_of(rows), self.scales[rows], len(rows))

    def dequantized(self, rows: torch.Tensor | slice, dtype: torch.dtype) -> torch.Tensor:
        """See :class:`PackedWeight`."""
        if isinstance(rows, slice):
            rows = torch.arange(self.outputs)[rows]
        return (self._codes_of(rows) * self.scales[rows].unsqueeze(-1)).to(dtype)

    def columns(self, inputs: range) -> Int8Weight:
        """See :class:`PackedWeight`."""
        return Int8Weight(self.codes[:, inputs.start : inputs.stop].contiguous(), self.scales, self.outputs)

    def padded(self, outputs: int) -> Int8Weight:
        """See :class:`PackedWeight`."""
        rows = torch.arange(self.outputs)
        return Int8Weight.of_rows(self._codes_of(rows), self.scales[rows], outputs)

    @classmethod
    def merged(cls, parts: Sequence[PackedWeight]) -> Int8Weight | None:
        """See :class:`PackedWeight`."""
        same = [part for part in parts if isinstance(part, cls)]
        if len(same) < len(parts):
            return None
        codes = torch.cat([part._codes_of(torch.arange(part.outputs)) for part in same])
        return cls.of_rows(codes, torch.cat([part.scales[: part.outputs] for part in same]), len(codes))

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply float32 ``[..., inputs]``; each row gives the same ``[..., outputs]`` whatever others there are."""
        blocks, inputs, _ = self.codes.shape
        x = x.contiguous()
        out = x.new_empty(*x.shape[:-1], blocks * BLOCK)
        pool().int8_product(
            x=x.data_ptr(),
            codes=self.codes.data_ptr(),
            scales=self.scales.data_ptr(),
            out=out.data_ptr(),
            rows=x.numel() // max(1, inputs),
            inputs=inputs,
            blocks=blocks,
        )
        return out[..., : self.outputs].contiguous()

    def _codes_of(self, rows: torch.Tensor) -> torch.Tensor:
        return self.codes[rows // BLOCK, :, rows % BLOCK]
