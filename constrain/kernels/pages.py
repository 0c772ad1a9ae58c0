"""Keys and values in pages, of which every sequence has its own list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from constrain.kernels import cuda
from constrain.kernels.rotary import rotate


@dataclass(frozen=True)
class Pages:
    """The pages of one layer, and which of them a batch of sequences has.

    Attributes:
        keys, values: ``[pages, page_size, kv_heads, head_dim]``, of the same strides.
        block_table: int32 ``[batch, blocks]``: position ``i`` of a sequence is slot ``i % page_size`` of page
            ``block_table[row, i // page_size]``.
    """

    keys: torch.Tensor
    values: torch.Tensor
    block_table: torch.Tensor

    @property
    def page_size(self) -> int:
        """Positions of a page."""
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        """Positions that the block table has room for."""
        return self.block_table.shape[1] * self.page_size

    def gather(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the sequences in order, ``[batch, capacity, kv_heads, head_dim]``."""
        table = self.block_table.long()
        return self.keys[table].flatten(1, 2), self.values[table].flatten(1, 2)

    def write(self, k: torch.Tensor, v: torch.Tensor, past: torch.Tensor) -> None:
        """Store ``[batch, width, kv_heads, head_dim]`` behind ``past`` positions of each row; none where negative."""
        position = past.long().unsqueeze(1) + torch.arange(k.shape[1], device=k.device)
        rows, columns = (past >= 0).unsqueeze(1).expand_as(position).nonzero(as_tuple=True)
        position = position[rows, columns]
        page, slot = self.block_table.long()[rows, position // self.page_size], position % self.page_size
        self.keys[page, slot] = k[rows, columns]
        self.values[page, slot] = v[rows, columns]

    def for_kernels(self) -> Any:
        """The view that the compiled kernels take."""
        page, slot, head, _ = self.keys.stride()
        return cuda.module.Pages(
            keys=cuda.address(self.keys),
            values=cuda.address(self.values),
            page_stride=page,
            slot_stride=slot,
            head_stride=head,
            block_table=cuda.address(self.block_table),
            block_table_stride=self.block_table.stride(0),
            page_size=self.page_size,
            kv_heads=self.keys.shape[2],
            head_dim=self.keys.shape[3],
        )

    def fit_kernels(self) -> bool:
        """Whether the compiled kernels can read these pages."""
        return (
            cuda.takes(self.keys, self.values)
            and self.keys.stride() == self.values.stride()
            and self.page_size % 16 == 0
            and self.block_table.stride(1) == 1
        )


def rotate_into_pages(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, past: torch.Tensor, pages: Pages
) -> torch.Tensor:
    """Rotate queries and keys to their positions, and store keys and values.

    Args:
        qkv: ``[batch, width, heads + 2 * kv_heads, head_dim]``, contiguous; may be overwritten.
        cos, sin: by position, ``[positions, 1, d]``, in the form that :func:`constrain.kernels.rotate` takes.
        past: int32 ``[batch]``, the position of the first token of each row; negative: the row is idle.
        pages: where keys and values go.

    Returns:
        The rotated queries ``[batch, width, heads, head_dim]``.
    """
    kv_heads = pages.keys.shape[2]
    heads = qkv.shape[2] - 2 * kv_heads
    if cuda.takes(qkv, cos, sin) and cos.shape[-1] % 16 == 0 and pages.fit_kernels():
        _rotate_cuda(qkv, cos, sin, past, pages, heads)
        return qkv[:, :, :heads]
    position = (past.long().unsqueeze(1) + torch.arange(qkv.shape[1], device=qkv.device)).clamp_(min=0)
    turned = rotate(qkv[:, :, : heads + kv_heads], cos[position], sin[position])
    pages.write(turned[:, :, heads:], qkv[:, :, heads + kv_heads :], past)
    return turned[:, :, :heads]


def _rotate_cuda(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, past: torch.Tensor, pages: Pages, heads: int
) -> None:
    with torch.cuda.device(qkv.device):
        cuda.module.rotate_into_pages(
            qkv=cuda.address(qkv),
            cos=cuda.address(cos),
            sin=cuda.address(sin),
            past=cuda.address(past),
            pages=pages.for_kernels(),
            batch=qkv.shape[0],
            width=qkv.shape[1],
            heads=heads,
            rotary_dim=cos.shape[-1],
            dtype=cuda.DTYPES[qkv.dtype],
            stream=cuda.stream(qkv),
        )
