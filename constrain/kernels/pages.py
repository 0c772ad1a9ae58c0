"""A paged KV cache: keys and values in pages, and a block table that lists the pages of each sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from constrain.kernels import cuda
from constrain.kernels.kv_quantization import KVQuantization, Parts

#: Formats of keys and values that the compiled kernels read together.
_KERNEL_FORMATS = {
    ("plain", "plain"),
    ("float8", "float8"),
    ("group8", "group8"),
    ("group8", "group4"),
    ("group4", "group4"),
}
_MAX_HEAD_DIM = 256
_GROUPED_HEAD_DIMS = {64, 128, 256}
_TILE, _PACK = 16, 8


@dataclass(frozen=True)
class Pages:
    """The pages of one layer, and the block tables of a batch of sequences.

    Attributes:
        keys, values: ``[pages, page_size, kv_heads, head_dim]``, quantized.
        block_table: int32 ``[batch, blocks]``: position ``i`` of a sequence is slot ``i % page_size`` of page
            ``block_table[row, i // page_size]``.
        key_quantization, value_quantization: formats of keys and values.
    """

    keys: Parts
    values: Parts
    block_table: torch.Tensor
    key_quantization: KVQuantization
    value_quantization: KVQuantization

    @property
    def page_size(self) -> int:
        """Number of positions of a page."""
        return self.keys[0].shape[1]

    @property
    def kv_heads(self) -> int:
        """Number of heads of keys, and of values."""
        return self.keys[0].shape[2]

    @property
    def capacity(self) -> int:
        """Number of positions of the pages in a block table."""
        return self.block_table.shape[1] * self.page_size

    def gather(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of the sequences in order, ``[batch, capacity, kv_heads, head_dim]``."""
        table = self.block_table.long()
        keys, values = (tuple(part[table].flatten(1, 2) for part in parts) for parts in (self.keys, self.values))
        return self.key_quantization.dequantize(keys, dtype), self.value_quantization.dequantize(values, dtype)

    def write(self, k: torch.Tensor, v: torch.Tensor, past: torch.Tensor) -> None:
        """Store new keys and values.

        No shape depends on ``past``, so that this can be captured in a CUDA graph. An idle row repeats what the first
        row that is not idle writes; where all are, they write back what is stored. So no write races with another.

        Args:
            k, v: ``[batch, width, kv_heads, head_dim]``.
            past: int32 ``[batch]``, the positions before the new ones in each sequence; negative for idle rows.
        """
        busy = past >= 0
        first, any_busy = busy.int().argmax(), busy.any()
        rows = torch.where(busy, torch.arange(len(past), device=past.device), first)
        position = past.long()[rows].clamp(min=0).unsqueeze(1) + torch.arange(k.shape[1], device=k.device)
        page = self.block_table.long()[rows.unsqueeze(1), position // self.page_size]
        slot = position % self.page_size
        new = (*self.key_quantization.quantize(k), *self.value_quantization.quantize(v))
        for stored, part in zip((*self.keys, *self.values), new, strict=True):
            stored[page, slot] = torch.where(any_busy, part[rows], stored[page, slot])

    def for_kernels(self, head_dim: int) -> Any:
        """Return the view that the compiled kernels take."""
        keys, key_scales, values, value_scales = (
            cuda.address(part) for parts in (self.keys, self.values) for part in (*parts, None)[:2]
        )
        page, slot, head, _ = self.keys[0].stride()
        if len(self.keys) > 1:  # quantized groups, whose strides count states
            head, slot, page = head_dim, self.kv_heads * head_dim, self.page_size * self.kv_heads * head_dim
        return cuda.module.Pages(
            keys=keys,
            values=values,
            key_scales=key_scales,
            value_scales=value_scales,
            key_format=self.key_quantization.kernel_format,
            value_format=self.value_quantization.kernel_format,
            page_stride=page,
            slot_stride=slot,
            head_stride=head,
            block_table=cuda.address(self.block_table),
            block_table_stride=self.block_table.stride(0),
            page_size=self.page_size,
            kv_heads=self.kv_heads,
            head_dim=head_dim,
        )

    def fit_kernels(self, states: torch.Tensor) -> bool:
        """Return whether the compiled kernels can read these pages for new states ``[..., head_dim]``."""
        if not kernels_read(self.key_quantization, self.value_quantization, states.shape[-1], self.page_size):
            return False
        parts = (*self.keys, *self.values)
        if self.key_quantization.kernel_format == "plain":
            fit = cuda.takes(states, *parts) and self.keys[0].stride() == self.values[0].stride()
        else:
            fit = all(part.is_contiguous() for part in parts)
        return fit and self.block_table.stride(1) == 1


def kernels_read(
    key_quantization: KVQuantization, value_quantization: KVQuantization, head_dim: int, page_size: int
) -> bool:
    """Return whether the compiled kernels read pages of these formats.

    They take heads of up to 256 elements, but of 64, 128 or 256 where keys and values are quantized in groups.
    """
    formats = key_quantization.kernel_format, value_quantization.kernel_format
    if formats not in _KERNEL_FORMATS or page_size % _TILE:
        return False
    if formats[0] in ("plain", "float8"):
        return head_dim <= _MAX_HEAD_DIM and head_dim % _PACK == 0
    return head_dim in _GROUPED_HEAD_DIMS
