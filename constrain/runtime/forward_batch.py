"""Batch of a forward pass: new tokens of many sequences, their positions, block tables, and slots in the KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch

from constrain.model.prompt_images import NO_IMAGES, PromptImages

#: Positions in the concatenated rows of the cache: a range, or int64 ``[n]``.
Slots = slice | torch.Tensor


class BatchRow(NamedTuple):
    """The tokens of one sequence in a forward pass.

    Attributes:
        ids: the new tokens; the first may not be known yet.
        past: number of positions before them.
        block_table: the pages of the sequence, in order.
        source: row of the previous pass whose sampled token is the first of ``ids``; -1: ``ids`` has it.
        images: the images of the prompt that the tokens are a part of.
    """

    ids: Sequence[int]
    past: int
    block_table: Sequence[int]
    source: int = -1
    images: PromptImages = NO_IMAGES

    @property
    def end(self) -> int:
        """Number of positions after the pass."""
        return self.past + len(self.ids)

    def pages(self, page_size: int) -> Sequence[int]:
        """Return the pages that hold the new tokens."""
        return self.block_table[self.past // page_size : (self.end - 1) // page_size + 1]


@dataclass(frozen=True)
class ForwardBatch:
    """Rows of any widths, concatenated into a batch of one.

    Attributes:
        rows: the rows.
        page_size: positions per page.
    """

    rows: Sequence[BatchRow]
    page_size: int

    @property
    def places(self) -> list[slice]:
        """Slice of the pass that each row takes."""
        ends = list(accumulate(len(row.ids) for row in self.rows))
        return [slice(end - len(row.ids), end) for row, end in zip(self.rows, ends, strict=True)]

    def ids(self) -> torch.Tensor:
        """Return the tokens, int64 ``[1, tokens]`` on the CPU."""
        return torch.tensor([[token for row in self.rows for token in row.ids]])

    def slots(self) -> torch.Tensor:
        """Return the cache slot of each token, int64 ``[tokens]``."""
        size = self.page_size
        return torch.tensor(
            [row.block_table[at // size] * size + at % size for row in self.rows for at in range(row.past, row.end)]
        )

    def block_tables(self, width: int) -> torch.Tensor:
        """Return the block table of each token's sequence, int32 ``[tokens, width]``, padded with zeros."""
        tables = [[*row.block_table, *[0] * (width - len(row.block_table))] for row in self.rows for _ in row.ids]
        return torch.tensor(tables, dtype=torch.int)

    def lengths(self) -> torch.Tensor:
        """Return the length of the sequence up to and including each token, int32 ``[tokens]``."""
        return torch.tensor([at + 1 for row in self.rows for at in range(row.past, row.end)], dtype=torch.int)


def row_slots(block_table: Sequence[int], page_size: int, start: int, end: int, device: torch.device) -> Slots:
    """Return the slots of positions ``start`` to ``end - 1`` of a sequence.

    A range, which needs no copy, if its pages are contiguous.
    """
    first = start // page_size
    pages = block_table[first : (end - 1) // page_size + 1]
    shift = start - first * page_size
    if all(pages[0] + i == page for i, page in enumerate(pages)):
        begin = pages[0] * page_size + shift
        return slice(begin, begin + end - start)
    positions = torch.tensor(pages, device=device).unsqueeze(1) * page_size + torch.arange(page_size, device=device)
    return positions.flatten()[shift : shift + end - start]
