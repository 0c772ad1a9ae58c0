"""Batch of a forward pass: tokens of many sequences, whose keys and values lie in pages of one KV cache."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from typing import NamedTuple

import torch

from constrain.kernels import KVQuantization, Parts, attention
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase
from constrain.model.forward_context import AttentionLayer, full_and_sliding, rotated, rotations, visible
from constrain.model.prompt_images import NO_IMAGES, PromptImages
from constrain.model.rope import RotaryTable

#: Positions in the concatenated rows of the cache: a range, or int64 ``[n]``.
Slots = slice | torch.Tensor
#: Rows are alone in attention if they have more keys for each query: where rows are joined, their keys are copied.
_MAX_KEYS_PER_QUERY = 8


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
    """Attention metadata of consecutive rows for one kind of layers, all with as many new positions and keys.

    Attributes:
        place: slice of the pass.
        read: slots of the keys, row by row.
        mask, causal: see :func:`constrain.kernels.attention`.
        num_rows: number of rows.
    """

    place: slice
    read: Slots
    mask: torch.Tensor | None
    causal: bool
    num_rows: int = 1

    def to(self, device: torch.device) -> _Span:
        return replace(
            self, read=_slots_to(self.read, device), mask=None if self.mask is None else self.mask.to(device)
        )


@dataclass(frozen=True)
class _View:
    """Attention metadata of one kind of layers, full or sliding.

    Attributes:
        cos, sin: rotations of the new positions.
        write: slots of the new positions.
        spans: the rows, in order.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    write: Slots
    spans: list[_Span] = field(repr=False)

    def to(self, device: torch.device) -> _View:
        spans = [span.to(device) for span in self.spans]
        return _View(self.cos.to(device), self.sin.to(device), _slots_to(self.write, device), spans)


@dataclass(frozen=True)
class RaggedAttention:
    """Attention metadata of a :class:`ForwardBatch`.

    Attention runs row by row, except for prompt chunks of the same shape, which are one call: the host needs longer to
    queue a call for each layer and row than a GPU to compute it.
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
        _store(self.cache.key_quantization, keys, k, view.write)
        _store(self.cache.value_quantization, values, v, view.write)
        out = [
            attention(
                q[0, span.place].view(span.num_rows, -1, *q.shape[2:]),
                _load(self.cache.key_quantization, keys, span, k.dtype),
                _load(self.cache.value_quantization, values, span, v.dtype),
                scale=layer.scale,
                mask=span.mask,
                causal=span.causal,
                cap=layer.cap,
                sinks=layer.sinks,
            ).flatten(0, 1)
            for span in view.spans
        ]
        return (out[0] if len(out) == 1 else torch.cat(out)).unsqueeze(0)


def _store(quantization: KVQuantization, stored: Parts, new: torch.Tensor, slots: Slots) -> None:
    """Store new keys or values ``[1, width, kv_heads, head_dim]`` in the cache."""
    for tensor, part in zip(stored, quantization.quantize(new), strict=True):
        tensor.flatten(0, 1)[slots] = part[0]


def _load(quantization: KVQuantization, stored: Parts, span: _Span, dtype: torch.dtype) -> torch.Tensor:
    """Return the keys or values ``[rows, keys, kv_heads, head_dim]`` that the rows of a span attend to."""
    parts = tuple(tensor.flatten(0, 1)[span.read].view(span.num_rows, -1, *tensor.shape[2:]) for tensor in stored)
    return quantization.dequantize(parts, dtype)


def ragged_attention(batch: ForwardBatch, model: ExLlamaV2, cache: ExLlamaV2CacheBase) -> RaggedAttention:
    """Build the attention metadata of a batch, on the first device of the model."""
    device, dtype, size = model.modules[0].device, model.compute_dtype, batch.page_size

    def view(table: RotaryTable, window: int | None) -> _View:
        # Row by row: with some scaling methods, the rotation depends on the sequence length.
        turned = [rotations(table, row.past, row.end, row.images, device) for row in batch.rows]
        cos, sin = (torch.cat(parts, dim=1) for parts in zip(*turned, strict=True))
        write = _concatenated(
            [row_slots(row.block_table, size, row.past, row.end, device) for row in batch.rows], device
        )
        return _View(cos, sin, write, [span(rows, place, window) for rows, place in _of_one_shape(batch)])

    def span(rows: Sequence[BatchRow], place: slice, window: int | None) -> _Span:
        first = rows[0]
        start, mask, causal = visible(first.past, len(first.ids), window, None, dtype, device, first.images.both_ways)
        read = [row_slots(row.block_table, size, start, row.end, device) for row in rows]
        return _Span(place, _concatenated(read, device), mask, causal, len(rows))

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


def _of_one_shape(batch: ForwardBatch) -> Iterator[tuple[Sequence[BatchRow], slice]]:
    """Yield consecutive rows that attention can compute together, and their slice of the pass."""
    for _, group in groupby(zip(batch.rows, batch.places, strict=True), key=_shape):
        rows, places = zip(*group, strict=True)
        yield rows, slice(places[0].start, places[-1].stop)


def _shape(placed: tuple[BatchRow, slice]) -> Hashable:
    """Return a value that rows share only if they are prompt chunks of the same shape and mask."""
    row, place = placed
    is_alone = row.end > _MAX_KEYS_PER_QUERY * len(row.ids) or row.images.both_ways
    return place.start if is_alone else (row.past, len(row.ids))


def _concatenated(parts: Sequence[Slots], device: torch.device) -> Slots:
    if len(parts) == 1:
        return parts[0]
    # Ranges are made on the device, as a copy from the host would wait for what the device still computes.
    return torch.cat([torch.arange(s.start, s.stop, device=device) if isinstance(s, slice) else s for s in parts])


def _slots_to(slots: Slots, device: torch.device) -> Slots:
    return slots if isinstance(slots, slice) else slots.to(device)
