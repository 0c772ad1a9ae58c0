"""Keys and values in pages, of which every sequence has its own list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from constrain.kernels import cuda
from constrain.kernels.cache_coding import Coding, Parts

# Of keys and values, in the order of the codings that the kernels know.
_KERNEL_BITS = {(16, 16), (8, 8), (8, 4), (4, 4)}
_MOST_HEAD_DIM = 256
_CODED_HEAD_DIMS = {64, 128, 256}
_TILE, _PACK = 16, 8


@dataclass(frozen=True)
class Pages:
    """The pages of one layer, and which of them a batch of sequences has.

    Attributes:
        keys, values: what the codings make of ``[pages, page_size, kv_heads, head_dim]``.
        block_table: int32 ``[batch, blocks]``: position ``i`` of a sequence is slot ``i % page_size`` of page
            ``block_table[row, i // page_size]``.
        key_coding, value_coding: how keys and values are written down.
    """

    keys: Parts
    values: Parts
    block_table: torch.Tensor
    key_coding: Coding
    value_coding: Coding

    @property
    def page_size(self) -> int:
        """Positions of a page."""
        return self.keys[0].shape[1]

    @property
    def kv_heads(self) -> int:
        """Heads of keys, and of values."""
        return self.keys[0].shape[2]

    @property
    def capacity(self) -> int:
        """Positions that the block table has room for."""
        return self.block_table.shape[1] * self.page_size

    def gather(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the sequences in order, ``[batch, capacity, kv_heads, head_dim]``."""
        table = self.block_table.long()
        keys, values = (tuple(part[table].flatten(1, 2) for part in parts) for parts in (self.keys, self.values))
        return self.key_coding.decode(keys, dtype), self.value_coding.decode(values, dtype)

    def write(self, k: torch.Tensor, v: torch.Tensor, past: torch.Tensor) -> None:
        """Store ``[batch, width, kv_heads, head_dim]`` behind ``past`` positions of each row; none where negative."""
        position = past.long().unsqueeze(1) + torch.arange(k.shape[1], device=k.device)
        rows, columns = (past >= 0).unsqueeze(1).expand_as(position).nonzero(as_tuple=True)
        position = position[rows, columns]
        page, slot = self.block_table.long()[rows, position // self.page_size], position % self.page_size
        new = (*self.key_coding.encode(k[rows, columns]), *self.value_coding.encode(v[rows, columns]))
        for stored, part in zip((*self.keys, *self.values), new, strict=True):
            stored[page, slot] = part

    def for_kernels(self, head_dim: int) -> Any:
        """The view that the compiled kernels take."""
        keys, key_scales, values, value_scales = (
            cuda.address(part) for parts in (self.keys, self.values) for part in (*parts, None)[:2]
        )
        page, slot, head, _ = self.keys[0].stride()
        if len(self.keys) > 1:  # codes, where strides count states
            head, slot, page = head_dim, self.kv_heads * head_dim, self.page_size * self.kv_heads * head_dim
        return cuda.module.Pages(
            keys=keys,
            values=values,
            key_scales=key_scales,
            value_scales=value_scales,
            key_bits=self.key_coding.kernel_bits,
            value_bits=self.value_coding.kernel_bits,
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
        """Whether the compiled kernels can read these pages for new states ``[..., head_dim]``."""
        parts = (*self.keys, *self.values)
        if len(parts) == 2:
            fit = cuda.takes(states, *parts) and self.keys[0].stride() == self.values[0].stride()
        else:
            fit = all(part.is_contiguous() for part in parts)
        return (
            fit
            and kernels_read(self.key_coding, self.value_coding, states.shape[-1], self.page_size)
            and self.block_table.stride(1) == 1
        )


def kernels_read(key_coding: Coding, value_coding: Coding, head_dim: int, page_size: int) -> bool:
    """Whether the compiled kernels read pages of this kind: of floats with heads of up to 256, or of codes with heads
    of 64, 128 or 256."""
    bits = key_coding.kernel_bits, value_coding.kernel_bits
    if bits not in _KERNEL_BITS or page_size % _TILE:
        return False
    return head_dim in _CODED_HEAD_DIMS or (bits[0] == 16 and head_dim <= _MOST_HEAD_DIM and head_dim % _PACK == 0)
