"""Weights of eight bits that stay so in memory, and products with them on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import torch

from constrain.kernels.weights.packed import PackedWeight


def _import_module() -> Any:
    """Return the compiled products, or ``None`` where the package was built for another kind of processor."""
    try:
        return import_module("constrain._cpu")
    except ModuleNotFoundError:
        return None


_module = _import_module()

# Rows of a weight whose codes are interleaved.
_BLOCK = 32


def keeps_int8(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether products of ``dtype`` with an :class:`Int8Weight` are computed on ``device``.

    The processor must have AVX2 or AVX-512.
    """
    fits = device.type == "cpu" and dtype is torch.float32
    return fits and _module is not None and bool(_module.supported())


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
        padding = -(-outputs // _BLOCK) * _BLOCK - len(codes)
        blocks = torch.nn.functional.pad(codes, (0, 0, 0, padding)).view(-1, _BLOCK, codes.shape[1])
        scales = torch.nn.functional.pad(scales, (0, padding))
        return cls(blocks.transpose(1, 2).contiguous(), scales, outputs)

    @property
    def shape(self) -> tuple[int, int]:
        return self.outputs, self.codes.shape[1]

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes

    def __getitem__(self, rows: torch.Tensor) -> Int8Weight:
        """Return the weight of rows ``[n]``."""
        return Int8Weight.of_rows(self._codes_of(rows), self.scales[rows], len(rows))

    def dequantized(self, rows: torch.Tensor | slice, dtype: torch.dtype) -> torch.Tensor:
        """See :class:`PackedWeight`."""
        if isinstance(rows, slice):
            rows = torch.arange(self.outputs)[rows]
        return (self._codes_of(rows) * self.scales[rows].unsqueeze(-1)).to(dtype)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply float32 ``[..., inputs]``; each row gives the same ``[..., outputs]`` whatever others there are."""
        blocks, inputs, _ = self.codes.shape
        x = x.contiguous()
        out = x.new_empty(*x.shape[:-1], blocks * _BLOCK)
        _pool(torch.get_num_threads()).int8_product(
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
        return self.codes[rows // _BLOCK, :, rows % _BLOCK]


@cache
def _pool(threads: int) -> Any:
    return _module.Pool(threads)
