"""Attention metadata of a forward pass: which keys each new token attends to, and where its own are stored.

:func:`ragged_attention` builds that of prefill and of eager passes, whose rows have any number of tokens.
:class:`DecodeAttentionBuilder` builds that of decode passes whose kernels read lengths and block tables from tensors:
CUDA graphs, in which these stay in place, and eager passes on the CPU.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import torch

from constrain.kernels import AttentionWorkspace, KVQuantization, Pages, Parts, attention, paged_attention
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase
from constrain.model.forward_context import AttentionLayer, full_and_sliding, rotated, rotations, visible
from constrain.model.rope import RotaryTable
from constrain.runtime.forward_batch import BatchRow, ForwardBatch, Slots, row_slots

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines by position."""

#: Rows are alone in attention if they have more keys for each query: where rows are joined, their keys are copied.
_MAX_KEYS_PER_QUERY = 8
#: Features of a rotation by zero, the fewest that kernels take.
_MIN_ROTATED = 16


@dataclass(frozen=True)
class _Span:
    """Attention metadata of consecutive rows for one kind of layers, all with as many new positions and keys.

    Attributes:
        place: slice of the pass.
        read: slots of the keys, row by row.
        mask, causal: see :func:`constrain.kernels.attention`.
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
class _LayerMetadata:
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

    def to(self, device: torch.device) -> _LayerMetadata:
        spans = [span.to(device) for span in self.spans]
        return _LayerMetadata(self.cos.to(device), self.sin.to(device), _slots_to(self.write, device), spans)


@dataclass(frozen=True)
class RaggedAttention:
    """Attention metadata of a :class:`ForwardBatch`.

    Attention runs row by row, except for prompt chunks of the same shape, which are one call: the host needs longer to
    queue a call for each layer and row than a GPU to compute it.
    """

    full: _LayerMetadata
    sliding: _LayerMetadata
    cache: ExLlamaV2CacheBase

    def to(self, device: torch.device) -> RaggedAttention:
        full = self.full.to(device)
        return replace(self, full=full, sliding=full if self.sliding is self.full else self.sliding.to(device))

    def attend(self, layer: AttentionLayer, qkv: torch.Tensor) -> torch.Tensor:
        view = self.sliding if layer.sliding else self.full
        q, k, v = rotated(layer, qkv, view.cos, view.sin)
        keys, values = self.cache.parts(layer.index)
        of_keys, of_values = self.cache.key_quantization, self.cache.value_quantization
        _store(of_keys, keys, k, view.write)
        _store(of_values, values, v, view.write)
        out = [
            attention(
                q[0, span.place].view(span.num_rows, -1, *q.shape[2:]),
                _load(of_keys, keys, span, k.dtype),
                _load(of_values, values, span, v.dtype),
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

    def view(table: RotaryTable, window: int | None) -> _LayerMetadata:
        turned = [rotations(table, row.past, row.end, row.images, device) for row in batch.rows]
        cos, sin = (torch.cat(parts, dim=1) for parts in zip(*turned, strict=True))
        write = _concatenated(
            [row_slots(row.block_table, size, row.past, row.end, device) for row in batch.rows], device
        )
        return _LayerMetadata(cos, sin, write, [span(rows, place, window) for rows, place in _of_one_shape(batch)])

    def span(rows: Sequence[BatchRow], place: slice, window: int | None) -> _Span:
        first = rows[0]
        start, mask, causal = visible(first.past, len(first.ids), window, None, dtype, device, first.images.both_ways)
        read = [row_slots(row.block_table, size, start, row.end, device) for row in rows]
        return _Span(place, _concatenated(read, device), mask, causal, len(rows))

    end = max(row.end for row in batch.rows)
    return RaggedAttention(*full_and_sliding(view, model.rotary_tables, model.config.sliding_window, end), cache)


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


@dataclass(frozen=True)
class DecodeAttention:
    """Attention metadata of a decode pass: the last positions of many sequences, read from pages without the host.

    Attributes:
        lengths: int32 ``[sequences]``, length of each after the pass; 0 for an idle one.
        full, sliding: cosines and sines by position, ``[positions, 1, d]``, of the two kinds of layers.
        unrotated: those of no rotation, for layers without.
        window: number of positions that queries of sliding layers see.
        pages: pages of the KV cache, by layer.
        workspace: memory of the attention kernels.
        copies: the metadata on the other devices of the model.
    """

    lengths: torch.Tensor
    full: Rotation
    sliding: Rotation
    unrotated: Rotation
    window: int | None
    pages: Sequence[Pages]
    workspace: AttentionWorkspace
    copies: dict[torch.device, DecodeAttention] = field(default_factory=dict)

    def to(self, device: torch.device) -> DecodeAttention:
        return self.copies.get(device, self)

    def refresh(self) -> None:
        """Copy lengths and block tables, which change from pass to pass, to the other devices."""
        for copy in self.copies.values():
            copy.lengths.copy_(self.lengths)
            copy.pages[0].block_table.copy_(self.pages[0].block_table)

    def attend(self, layer: AttentionLayer, qkv: torch.Tensor) -> torch.Tensor:
        rotations = self.sliding if layer.sliding else self.full
        return paged_attention(
            qkv,
            *(rotations if layer.rotary else self.unrotated),
            self.pages[layer.index],
            self.lengths,
            scale=layer.scale,
            window=self.window if layer.sliding else None,
            cap=layer.cap,
            sinks=layer.sinks,
            workspace=self.workspace,
        )


class DecodeAttentionBuilder:
    """Builds the attention metadata of decode passes, which share rotations and the pages of a KV cache."""

    def __init__(self, model: ExLlamaV2, cache: ExLlamaV2CacheBase, page_size: int, device: torch.device) -> None:
        self._model, self._quantizations = model, (cache.key_quantization, cache.value_quantization)
        self._layers = [
            tuple(tuple(part.view(-1, page_size, *part.shape[2:]) for part in parts) for parts in cache.parts(layer))
            for layer in range(cache.num_entries)
        ]
        length = min(cache.batch_size * cache.max_seq_len, model.config.max_seq_len)
        self._others = [other for other in model.devices if other != device]
        self._rotations = {each: self._rotations_on(each, length) for each in (device, *self._others)}

    def build(self, lengths: torch.Tensor, block_table: torch.Tensor) -> DecodeAttention:
        """Return the metadata of sequences of some lengths, on all devices of the model."""
        attention = self._on_device(lengths, block_table)
        for device in self._others:
            attention.copies[device] = self._on_device(lengths.to(device), block_table.to(device))
        return attention

    def _on_device(self, lengths: torch.Tensor, block_table: torch.Tensor) -> DecodeAttention:
        layers = [Pages(keys, values, block_table, *self._quantizations) for keys, values in self._layers]
        rotations, window = self._rotations[lengths.device], self._model.config.sliding_window
        # Each graph has its own workspace, since a shared one would move when it grows.
        return DecodeAttention(lengths, *rotations, window, layers, AttentionWorkspace())

    def _rotations_on(self, device: torch.device, length: int) -> tuple[Rotation, Rotation, Rotation]:
        """Return the rotations of full and of sliding layers, and one by zero for layers without."""
        full, sliding = (table.whole(length, device) for table in self._model.rotary_tables)
        cos, sin = (each[..., :_MIN_ROTATED] for each in full)
        return full, sliding, (torch.ones_like(cos), torch.zeros_like(sin))
