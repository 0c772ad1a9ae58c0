"""CUDA graph capture and replay of decode passes, and of short prompts: a fixed number of tokens per sequence.

A graph serves a bucket of (sequences, tokens per sequence, pages), padded with idle rows. Its kernels read tokens,
positions and block tables from a :class:`~constrain.runtime.forward_batch.StaticBatch`, so the host launches a pass
with one call, and uploads nothing while the same sequences continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from constrain.kernels.graphs import Graph, Uploads
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2Lora
from constrain.model.forward_context import ForwardContext
from constrain.runtime.attention_metadata import DecodeAttention, DecodeAttentionBuilder
from constrain.runtime.forward_batch import BatchRow, StaticBatch
from constrain.runtime.graph_segments import CapturedSegment, run_segments

_MIN_PAGES = 4


@dataclass(eq=False)
class DecodeGraph:
    """Decode pass of one shape; ``states``: of its last run, ``[num_rows, hidden]``, the input of the head."""

    batch: StaticBatch
    context: ForwardContext
    replay: Callable[[], torch.Tensor]
    states: torch.Tensor


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
        """``history``, ``sampled``: see :class:`~constrain.runtime.model_runner.ModelRunner`."""
        self._model, self._history = model, history
        self._sampled, self._uploads = sampled, uploads
        self._captures = history.device.type == "cuda" and not model.config.no_graphs
        self._attention = DecodeAttentionBuilder(model, cache, page_size, history.device)
        self._graphs: dict[tuple[int, int, int, tuple[ExLlamaV2Lora, ...]], DecodeGraph] = {}

    def run(self, rows: Sequence[BatchRow], loras: tuple[ExLlamaV2Lora, ...]) -> DecodeGraph:
        """Run the tokens of each row through all layers.

        Rows are padded to a power of two of tokens, for which their pages must have room: see :func:`padded_width`.

        Returns:
            The graph, whose states are those of this pass until its next one.
        """
        width = padded_width(max(len(row.ids) for row in rows))
        pages = max(len(row.block_table) for row in rows)
        key = padded_sequences(len(rows)), width, max(_MIN_PAGES, 1 << (pages - 1).bit_length()), loras
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._capture(*key)
        graph.batch.prepare(rows, self._uploads)
        graph.states = graph.replay()
        return graph

    def _capture(self, sequences: int, width: int, pages: int, loras: tuple[ExLlamaV2Lora, ...]) -> DecodeGraph:
        batch = StaticBatch(sequences, width, pages, self._history)
        attention = self._attention.build(batch.sequence_lengths, batch.block_table)
        context = ForwardContext(attention, loras)
        if len(self._model.segments) > 1:
            replay = self._segmented(batch, context, attention)
        else:
            replay = self._captured(partial(self._compute, batch, context, attention))
        return DecodeGraph(batch, context, replay, torch.empty(0))

    def _captured(self, compute: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        return Graph(compute, self._history.device, self._model.shard_devices) if self._captures else compute

    def _segmented(
        self, batch: StaticBatch, context: ForwardContext, attention: DecodeAttention
    ) -> Callable[[], torch.Tensor]:
        """Return a pass in segments of layers, each of which is captured as a graph of its own device."""
        segments = [
            CapturedSegment(
                segment.device,
                partial(self._run_modules, context, segment.modules),
                self._captures and len(segment.modules) > 0,
            )
            for segment in self._model.segments
        ]
        return partial(run_segments, self._captured(partial(batch.enter, self._sampled)), segments, attention.refresh)

    def _compute(self, batch: StaticBatch, context: ForwardContext, attention: DecodeAttention) -> torch.Tensor:
        """Run a pass that is captured as one graph, of one device or several."""
        with torch.inference_mode():
            ids = batch.enter(self._sampled)
            attention.refresh()
            return self._model.layers(ids, context).flatten(0, 1)

    def _run_modules(self, context: ForwardContext, numbers: range, x: torch.Tensor) -> torch.Tensor:
        x = self._model.run_modules(numbers, x, context)
        return x.flatten(0, -2) if numbers.stop == self._model.head_layer_idx else x


def padded_width(tokens: int) -> int:
    """Return the tokens per sequence of a graph that serves ``tokens``: the next power of two."""
    return 1 << (tokens - 1).bit_length()


def padded_sequences(rows: int) -> int:
    """Return the number of sequences of the smallest graph that fits: 1, 2, 4, 8, or a multiple of 8."""
    return 1 << (rows - 1).bit_length() if rows <= 8 else -(-rows // 8) * 8
