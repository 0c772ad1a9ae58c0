"""CUDA graph capture and replay of decode passes: a fixed number of tokens per sequence, over static buffers.

A graph serves a bucket of (sequences, tokens per sequence, pages), padded with idle rows. Its kernels read tokens,
positions and block tables from static tensors, so the host launches a pass with one call, and uploads nothing while the
same sequences continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from constrain.kernels import AttentionWorkspace, Pages, StepTokens, TokenPages, enter_tokens
from constrain.kernels.graphs import Graph, Uploads
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2Lora
from constrain.model.forward_context import ForwardContext
from constrain.runtime.attention_metadata import DecodeAttention, Rotation
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.graph_segments import CapturedSegment, run_segments

_MIN_PAGES = 4
_MIN_ROTATED = 16


class DecodeGraph:
    """Decode pass of one shape, over static tensors.

    Attributes:
        num_rows: number of tokens, those of idle sequences included.
        width: tokens per sequence.
        lengths: int32 ``[num_rows]``, length of the sequence up to and including each token; 0 for idle ones.
        history: the tokens of each row's sequence.
        states: hidden states ``[num_rows, hidden]``, the input of the head, once a pass has run.
        context: forward context of its layers and the head.
    """

    def __init__(self, sequences: int, width: int, pages: int, history: torch.Tensor) -> None:
        device = history.device
        self.sequences, self.width, self.num_rows = sequences, width, sequences * width
        self.moving = torch.zeros(2, self.num_rows, dtype=torch.int, device=device)
        self.moving[1] = -1
        ids, self.lengths = torch.zeros(2, self.num_rows, dtype=torch.int, device=device)
        self.tokens = StepTokens(self.moving[0], self.moving[1], ids, self.lengths)
        self.block_table = torch.zeros(sequences, pages, dtype=torch.int, device=device)
        rows = self.block_table.repeat_interleave(width, dim=0) if width > 1 else self.block_table
        self.row_tables = rows
        self.history = TokenPages(history, rows)
        #: Length of each sequence, up to its last token.
        self.sequence_lengths = self.lengths if width == 1 else torch.zeros_like(self.lengths[:sequences])
        self.states = torch.empty(0)
        self.context: ForwardContext
        self.replay: Callable[[], torch.Tensor]
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
        moving = [*tokens, *[0] * idle, *past, *[-1] * idle]
        # The next tokens of the same sequences need no upload.
        if moving != self._expected:
            uploads.send(self.moving, moving)
        self._expected = [*range(-1, ~busy, -1), *[0] * idle, *[each + 1 for each in past], *[-1] * idle]
        self._send_block_tables([row.block_table for row in rows], uploads)

    def _send_block_tables(self, tables: list[Sequence[int]], uploads: Uploads) -> None:
        if tables == self._tables:
            return
        self._tables = tables
        width = self.block_table.shape[1]
        filled = [page for own in tables for page in (*own, *[0] * (width - len(own)))]
        uploads.send(self.block_table, filled + [0] * ((self.sequences - len(tables)) * width))
        if self.width > 1:
            self.row_tables.copy_(self.block_table.repeat_interleave(self.width, dim=0))


class DecodeGraphRunner:
    """Captures and replays decode passes of a model over the pages of a KV cache. Without a GPU they run eagerly."""

    def __init__(
        self,
        model: ExLlamaV2,
        cache: ExLlamaV2CacheBase,
        page_size: int,
        history: torch.Tensor,
        sampled: torch.Tensor,
        uploads: Uploads,
    ) -> None:
        """
        Args:
            model, cache: loaded; what enters and leaves a pass is on the device of the head.
            page_size: positions per page.
            history: int32 ``[pages, page_size]``, the tokens at the positions of the pages.
            sampled: int64 ``[rows]``, the tokens sampled in the previous pass.
            uploads: sends values to the device.
        """
        self._model, self._history = model, history
        self._sampled, self._uploads = sampled, uploads
        self._captures = history.device.type == "cuda" and not model.config.no_graphs
        self._quantizations = cache.key_quantization, cache.value_quantization
        self._layers = [
            tuple(tuple(part.view(-1, page_size, *part.shape[2:]) for part in parts) for parts in cache.parts(layer))
            for layer in range(cache.num_entries)
        ]
        length = min(cache.max_seq_len, model.config.max_seq_len)
        self._others = [device for device in model.devices if device != history.device]
        self._rotations = {device: self._rotations_on(device, length) for device in (history.device, *self._others)}
        self._graphs: dict[tuple[int, int, int, tuple[ExLlamaV2Lora, ...]], DecodeGraph] = {}

    def run(self, rows: Sequence[BatchRow], loras: tuple[ExLlamaV2Lora, ...]) -> DecodeGraph:
        """Run the tokens of each row through all layers.

        Rows are padded to a power of two of tokens, for which their pages must have room: see :func:`padded_width`.

        Returns:
            The graph, whose states are those of this pass until its next one.
        """
        width = padded_width(max(len(row.ids) for row in rows))
        pages = max(len(row.block_table) for row in rows)
        key = _bucket(len(rows)), width, max(_MIN_PAGES, 1 << (pages - 1).bit_length()), loras
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._capture(*key)
        graph.prepare(rows, self._uploads)
        graph.states = graph.replay()
        return graph

    def _capture(self, sequences: int, width: int, pages: int, loras: tuple[ExLlamaV2Lora, ...]) -> DecodeGraph:
        graph = DecodeGraph(sequences, width, pages, self._history)
        attention = self._attention_metadata(graph.sequence_lengths, graph.block_table)
        for device in self._others:
            lengths, block_table = (each.to(device) for each in (graph.sequence_lengths, graph.block_table))
            attention.copies[device] = self._attention_metadata(lengths, block_table)
        graph.context = ForwardContext(attention, loras)
        if len(self._model.segments) > 1:
            graph.replay = self._segmented(graph, attention)
        else:
            graph.replay = self._captured(partial(self._compute, graph, attention))
        return graph

    def _rotations_on(self, device: torch.device, length: int) -> tuple[Rotation, Rotation, Rotation]:
        """Return the rotations of full and of sliding layers, and one by zero of the fewest features for kernels."""
        full, sliding = (table.whole(length, device) for table in self._model.rotary_tables)
        cos, sin = (each[..., :_MIN_ROTATED] for each in full)
        return full, sliding, (torch.ones_like(cos), torch.zeros_like(sin))

    def _attention_metadata(self, lengths: torch.Tensor, block_table: torch.Tensor) -> DecodeAttention:
        """Build the attention metadata of a graph, on the device of ``lengths``."""
        layers = [Pages(keys, values, block_table, *self._quantizations) for keys, values in self._layers]
        rotations, window = self._rotations[lengths.device], self._model.config.sliding_window
        # Each graph has its own workspace, since a shared one would move when it grows.
        return DecodeAttention(lengths, *rotations, window, layers, AttentionWorkspace())

    def _captured(self, compute: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        return Graph(compute, self._history.device, self._model.shard_devices) if self._captures else compute

    def _segmented(self, graph: DecodeGraph, attention: DecodeAttention) -> Callable[[], torch.Tensor]:
        """Return a pass in segments of layers, each of which is captured as a graph of its own device."""
        enter = self._captured(partial(self._enter, graph))
        segments = [
            CapturedSegment(
                segment.device,
                partial(self._run_modules, graph, segment.modules),
                self._captures and len(segment.modules) > 0,
            )
            for segment in self._model.segments
        ]
        return partial(run_segments, enter, segments, attention.refresh)

    def _compute(self, graph: DecodeGraph, attention: DecodeAttention) -> torch.Tensor:
        """Run a pass that is captured as one graph, of one device or several."""
        with torch.inference_mode():
            ids = self._enter(graph)
            attention.refresh()
            return self._model.layers(ids, graph.context).flatten(0, 1)

    def _enter(self, graph: DecodeGraph) -> torch.Tensor:
        """Write tokens and lengths of a pass, and return the ids ``[sequences, width]``."""
        with torch.inference_mode():
            enter_tokens(graph.tokens, self._sampled, graph.history)
            if graph.width > 1:
                graph.sequence_lengths.copy_(graph.lengths.view(graph.sequences, graph.width)[:, -1])
            return graph.tokens.ids.view(graph.sequences, graph.width)

    def _run_modules(self, graph: DecodeGraph, numbers: range, x: torch.Tensor) -> torch.Tensor:
        x = self._model.run_modules(numbers, x, graph.context)
        return x.flatten(0, -2) if numbers.stop == self._model.head_layer_idx else x


def padded_width(tokens: int) -> int:
    """Return the tokens per sequence of a graph that serves ``tokens``: the next power of two."""
    return 1 << (tokens - 1).bit_length()


def _bucket(rows: int) -> int:
    """Return the number of sequences of the smallest graph that fits: 1, 2, 4, 8, or a multiple of 8."""
    return 1 << (rows - 1).bit_length() if rows <= 8 else -(-rows // 8) * 8
