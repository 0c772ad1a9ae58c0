"""Batch of a forward pass: tokens of many sequences, whose keys and values lie in pages of one KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

import torch

from constrain.kernels import KVQuantization, Parts, attention
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase
from constrain.model.forward_context import AttentionLayer, full_and_sliding, rotated, rotations, visible
from constrain.model.prompt_images import NO_IMAGES, PromptImages
from constrain.model.rope import RotaryTable

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


@dataclass(frozen=True)
class _Span:
    """Attention metadata of one row for one kind of layers: its slice of the pass, cache slots and mask."""

    place: slice
    write: Slots
    read: Slots
    mask: torch.Tensor | None
    causal: bool

    def to(self, device: torch.device) -> _Span:
        write, read = (s if isinstance(s, slice) else s.to(device) for s in (self.write, self.read))
        return replace(self, write=write, read=read, mask=None if self.mask is None else self.mask.to(device))


@dataclass(frozen=True)
class _View:
    """Attention metadata of one kind of layers, full or sliding: rotations of the new positions, and a span per row."""

    cos: torch.Tensor
    sin: torch.Tensor
    spans: list[_Span] = field(repr=False)

    def to(self, device: torch.device) -> _View:
        return _View(self.cos.to(device), self.sin.to(device), [span.to(device) for span in self.spans])


@dataclass(frozen=True)
class RaggedAttention:
    """Attention metadata of a :class:`ForwardBatch`.

    Attention runs row by row, so that the result of a row does not depend on the rest of the batch.
    """

    full: _View
    sliding: _View
    cache: ExLlamaV2CacheBase

    def to(self, device: torch.device) -> RaggedAttention:
        full = self.full.to(device)
        return replace(self, full=full, sliding=full if self.sliding is self.full else self.sliding.to(device))

    def attend(self, layer: AttentionLayer, qkv: torch.Tensor) -> torch.Tensor:
        view = self.sliding if layer.sliding else self.full
        q, k, v = rotated(layer, qkv, view.cos, view.sin)
        keys, values = self.cache.parts(layer.index)
        out = []
        for span in view.spans:
            at = span.place
            read_keys = _extend(self.cache.key_quantization, keys, k[:, at], span)
            read_values = _extend(self.cache.value_quantization, values, v[:, at], span)
            out.append(
                attention(
                    q[:, at],
                    read_keys,
                    read_values,
                    scale=layer.scale,
                    mask=span.mask,
                    causal=span.causal,
                    cap=layer.cap,
                    sinks=layer.sinks,
                )
            )
        return out[0] if len(out) == 1 else torch.cat(out, dim=1)


def _extend(quantization: KVQuantization, stored: Parts, new: torch.Tensor, span: _Span) -> torch.Tensor:
    """Store keys or values ``[1, width, kv_heads, head_dim]``, and return all that the row attends to."""
    parts = []
    for tensor, part in zip(stored, quantization.quantize(new), strict=True):
        slots = tensor.flatten(0, 1)
        slots[span.write] = part[0]
        parts.append(slots[span.read].unsqueeze(0))
    return quantization.dequantize(tuple(parts), new.dtype)


def ragged_attention(batch: ForwardBatch, model: ExLlamaV2, cache: ExLlamaV2CacheBase) -> RaggedAttention:
    """Build the attention metadata of a batch, on the first device of the model."""
    device, dtype, size = model.modules[0].device, model.compute_dtype, batch.page_size

    def view(table: RotaryTable, window: int | None) -> _View:
        turned, spans = [], []
        for row, place in zip(batch.rows, batch.places, strict=True):
            both_ways = row.images.both_ways
            start, mask, causal = visible(row.past, len(row.ids), window, None, dtype, device, both_ways)
            # Row by row: with some scaling methods, the rotation depends on the sequence length.
            turned.append(rotations(table, row.past, row.end, row.images, device))
            write = row_slots(row.block_table, size, row.past, row.end, device)
            spans.append(_Span(place, write, row_slots(row.block_table, size, start, row.end, device), mask, causal))
        cos, sin = (torch.cat(parts, dim=1) for parts in zip(*turned, strict=True))
        return _View(cos, sin, spans)

    end = max(row.end for row in batch.rows)
    return RaggedAttention(*full_and_sliding(view, model.rotary_tables, model.config.sliding_window, end), cache)


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
