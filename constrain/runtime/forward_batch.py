"""Batch of a forward pass: new tokens of many sequences, their positions, block tables, and slots in the KV cache.

:class:`ForwardBatch` is that of prefill and of eager passes, whose rows have any number of tokens; :class:`StaticBatch`
is that of CUDA graphs: tensors that stay in place. Attention metadata is built from both in ``attention_metadata.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch

from constrain.kernels import StepTokens, TokenPages, enter_tokens
from constrain.kernels.graphs import Uploads
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
    """Rows of any widths, concatenated into a batch of one."""

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


class StaticBatch:
    """Decode batch of one shape, over static tensors: sequences with ``width`` tokens each, padded with idle ones.

    Attributes:
        num_rows: number of tokens, those of idle sequences included.
        lengths: int32 ``[num_rows]``, length of the sequence up to and including each token; 0 for idle ones.
        sequence_lengths: int32 ``[sequences]``, length of each up to its last token.
        block_table: int32 ``[sequences, pages]``.
        history: the tokens of each row's sequence.
    """

    def __init__(self, sequences: int, width: int, pages: int, history: torch.Tensor) -> None:
        device = history.device
        self.sequences, self.width, self.num_rows = sequences, width, sequences * width
        self._given = torch.zeros(2, self.num_rows, dtype=torch.int, device=device)
        self._given[1] = -1
        ids, self.lengths = torch.zeros(2, self.num_rows, dtype=torch.int, device=device)
        self._tokens = StepTokens(self._given[0], self._given[1], ids, self.lengths)
        self.sequence_lengths = self.lengths if width == 1 else torch.zeros_like(self.lengths[:sequences])
        self.block_table = torch.zeros(sequences, pages, dtype=torch.int, device=device)
        rows = self.block_table.repeat_interleave(width, dim=0) if width > 1 else self.block_table
        self.history = TokenPages(history, rows)
        self._tables: list[Sequence[int]] = []
        self._expected: list[int] = []

    def prepare(self, rows: Sequence[BatchRow], uploads: Uploads) -> None:
        """Upload the tokens, positions and block tables of a decode batch that differ from those on the device."""
        padded = [
            (~row.source if row.source >= 0 else row.ids[0], *row.ids[1:], *[0] * (self.width - len(row.ids)))
            for row in rows
        ]
        tokens = [token for row in padded for token in row]
        past = [row.past + i for row in rows for i in range(self.width)]
        busy, idle = len(past), self.num_rows - len(past)
        given = [*tokens, *[0] * idle, *past, *[-1] * idle]
        # The next tokens of the same sequences need no upload.
        if given != self._expected:
            uploads.send(self._given, given)
        self._expected = [*range(-1, ~busy, -1), *[0] * idle, *[each + 1 for each in past], *[-1] * idle]
        self._send_block_tables([row.block_table for row in rows], uploads)

    def enter(self, sampled: torch.Tensor) -> torch.Tensor:
        """Write tokens and lengths of a pass, as a part of its graph, and return the ids ``[sequences, width]``.

        Args:
            sampled: int64 ``[rows]``, the tokens sampled in the previous pass.
        """
        with torch.inference_mode():
            enter_tokens(self._tokens, sampled, self.history)
            if self.width > 1:
                self.sequence_lengths.copy_(self.lengths.view(self.sequences, self.width)[:, -1])
            return self._tokens.ids.view(self.sequences, self.width)

    def _send_block_tables(self, tables: list[Sequence[int]], uploads: Uploads) -> None:
        if tables == self._tables:
            return
        self._tables = tables
        width = self.block_table.shape[1]
        filled = [page for own in tables for page in (*own, *[0] * (width - len(own)))]
        uploads.send(self.block_table, filled + [0] * ((self.sequences - len(tables)) * width))
        if self.width > 1:
            self.history.block_table.copy_(self.block_table.repeat_interleave(self.width, dim=0))


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
