"""Runs forward batches on a model: eagerly, or as CUDA graphs where the model and its KV cache support it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch

from constrain.errors import GenerationError
from constrain.kernels import TokenPages, cpu_reads_pages
from constrain.kernels import cuda as compiled
from constrain.kernels.graphs import Graph, Uploads
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2Lora
from constrain.model.embeddings import EMBEDDING_INDEX, IndexedEmbeddings, as_int32
from constrain.model.forward_context import AttentionMetadata, ForwardContext
from constrain.model.prompt_images import NO_IMAGES
from constrain.runtime.attention_metadata import DecodeAttentionBuilder, ragged_attention
from constrain.runtime.cuda_graphs import DecodeGraphRunner, padded_sequences, padded_width
from constrain.runtime.forward_batch import BatchRow, ForwardBatch, row_slots

T = TypeVar("T")

#: Most tokens of prompt chunks that decode graphs compute, with padding, and most positions of such a sequence.
_MAX_REPLAYED, _MAX_REPLAYED_LENGTH = 256, 2048


@dataclass(frozen=True)
class PassOutput:
    """Hidden states of a forward pass, and the data of its sequences that sampling needs.

    Attributes:
        states: ``[n, hidden]``, the input of the head.
        context: forward context of the head.
        history: the tokens of each row's sequence.
        lengths: int32 ``[n]``, length of the sequence up to and including each token; 0 for idle rows.
        starts: the row of the first token of each sequence.
        static: key of the tensors above if they are the same in every pass; ``None`` if they are not.
    """

    states: torch.Tensor
    context: ForwardContext
    history: TokenPages
    lengths: torch.Tensor
    starts: Sequence[int]
    static: Hashable | None = None


class ModelRunner:
    """Runs the tokens of sequences through a model, and records them alongside their keys and values.

    Attributes:
        model, cache: the model, and its KV cache.
        page_size, num_pages: positions per page, and number of pages that the concatenated rows of the cache hold.
        history: int32 ``[num_pages, page_size]`` on the device: the tokens at the positions of the pages.
        sampled: int64 ``[max_rows]`` on the device: the sampler writes sampled tokens here for the next pass.
        uploads: sends values to the device, and counts them.
        is_asynchronous: whether passes are only queued, so that the host can work while they run.
    """

    #: Maximum number of rows of a decode pass.
    max_rows = 256

    def __init__(self, model: ExLlamaV2, cache: ExLlamaV2CacheBase, page_size: int) -> None:
        """``cache``: of the loaded model; the length of its rows is a multiple of ``page_size``."""
        self.model, self.cache, self.page_size = model, cache, page_size
        self.num_pages = cache.batch_size * cache.max_seq_len // page_size
        device = model.modules[-1].device
        with torch.inference_mode(False):
            self.history = torch.zeros(self.num_pages, page_size, dtype=torch.int, device=device)
            self.sampled = torch.zeros(self.max_rows, dtype=torch.int64, device=device)
        self.uploads = Uploads(device)
        self.is_asynchronous = device.type == "cuda"

    @property
    def device(self) -> torch.device:
        """Device of the logits."""
        return self.sampled.device

    @property
    def has_graphs(self) -> bool:
        """Whether decode passes run as CUDA graphs."""
        return compiled.module is not None and self.device.type == "cuda" and self.model.capturable

    @cached_property
    def _graphs(self) -> DecodeGraphRunner:
        return DecodeGraphRunner(self.model, self.cache, self.page_size, self.history, self.sampled, self.uploads)

    @cached_property
    def _decode_attention(self) -> DecodeAttentionBuilder:
        return DecodeAttentionBuilder(self.model, self.cache, self.page_size, self.device)

    @property
    def _reads_pages(self) -> bool:
        """Whether a kernel on the CPU attends with all tokens of an eager pass at once."""
        model, cache = self.model, self.cache
        if self.device.type != "cpu" or model.config.attends_by_scores or not model.capturable or model.tp_context:
            return False
        return cpu_reads_pages((cache.key_quantization, cache.value_quantization), model.compute_dtype, cache.head_dim)

    def capture(self, compute: Callable[[], T]) -> Graph[T]:
        """Capture work on the device of the logits, which may use the other shards of the model, as a CUDA graph."""
        return Graph(compute, self.device, self.model.shard_devices)

    def prefill(
        self,
        rows: Sequence[BatchRow],
        loras: Sequence[ExLlamaV2Lora] = (),
        embeddings: Sequence[IndexedEmbeddings] = (),
    ) -> None:
        """Compute and store keys and values of prompt chunks, no two of which write to the same page.

        Raises:
            GenerationError: an id is outside the vocabulary.
        """
        self._check_ids((token for row in rows for token in row.ids), embeddings)
        if not embeddings and self._replays_prefill(rows):
            self._graphs.run(rows, tuple(loras))
            return
        batch = ForwardBatch(rows, self.page_size)
        ids = batch.ids()
        attention = ragged_attention(batch, self.model, self.cache)
        self.model.forward(
            ids, preprocess_only=True, loras=list(loras), indexed_embeddings=embeddings, attention=attention
        )
        tokens = torch.empty(ids.shape[1], dtype=torch.int, device=self.device)
        self.uploads.send(tokens, as_int32(ids[0]))  # penalties ignore ids of embeddings
        for row, place in zip(rows, batch.places, strict=True):
            slots = row_slots(row.block_table, self.page_size, row.past, row.end, self.device)
            self.history.view(-1)[slots] = tokens[place]

    def decode(
        self,
        rows: Sequence[BatchRow],
        loras: tuple[ExLlamaV2Lora, ...] = (),
        embeddings: Sequence[IndexedEmbeddings] = (),
    ) -> PassOutput:
        """Run the last tokens of sequences through all layers; at most :attr:`max_rows` of them.

        With ``embeddings``, which last tokens of prompts refer to, all ids are known, and the pass is eager.

        Raises:
            GenerationError: an id is outside the vocabulary.
        """
        self._check_ids([row.ids[0] for row in rows if row.source < 0], embeddings)
        if self.has_graphs and not embeddings:
            return self._replay(rows, loras)
        return self._run_eagerly(rows, loras, embeddings)

    def _replays_prefill(self, rows: Sequence[BatchRow]) -> bool:
        """Return whether a decode graph computes prompt chunks, which the host queues in a hundredth of the time.

        It takes a few tokens only: its padding costs time, and its attention reads the keys once for each few queries.
        Padding is written to the page of a chunk's last token at most: the next one may be shared, and have its tokens.
        """
        if not self.has_graphs or any(row.images is not NO_IMAGES for row in rows):
            return False
        width = padded_width(max(len(row.ids) for row in rows))
        if padded_sequences(len(rows)) * width > _MAX_REPLAYED or max(row.end for row in rows) > _MAX_REPLAYED_LENGTH:
            return False
        return all((row.past + width - 1) // self.page_size <= (row.end - 1) // self.page_size for row in rows)

    def _check_ids(self, ids: Iterable[int], embeddings: Sequence[IndexedEmbeddings]) -> None:
        size = self.model.config.vocab_size
        for id in ids:
            if not (0 <= id < size or (embeddings and id >= EMBEDDING_INDEX)):
                raise GenerationError(f"token id {id} is outside the model's vocabulary of {size}")

    def states_of(self, output: PassOutput, tokens: Sequence[int]) -> torch.Tensor:
        """Return the states ``[sequences, hidden]`` of one token per sequence of a pass, given by its index there."""
        rows = [start + token for start, token in zip(output.starts, tokens, strict=True)]
        if rows == list(range(len(rows))):
            return output.states[: len(rows)]
        index = torch.empty(len(rows), dtype=torch.int64, device=self.device)
        self.uploads.send(index, rows)
        return output.states[index]

    def room(self, past: int, block_table: Sequence[int]) -> int:
        """Return the maximum number of tokens of a decode pass after ``past`` positions on these pages."""
        left = len(block_table) * self.page_size - past
        return 1 << left.bit_length() >> 1 if self.has_graphs else left

    def width(self, tokens: int) -> int:
        """Return the number of rows that a sequence with this number of tokens takes in a decode pass."""
        return padded_width(tokens) if self.has_graphs else tokens

    def paged_tensors(self) -> list[torch.Tensor]:
        """Return all tensors that are stored by page, ``[num_pages, page_size, ...]``."""
        stored = [tensor.view(-1, self.page_size, *tensor.shape[2:]) for tensor in self.cache.all_tensors()]
        return [*stored, self.history]

    def _replay(self, rows: Sequence[BatchRow], loras: tuple[ExLlamaV2Lora, ...]) -> PassOutput:
        graph = self._graphs.run(rows, loras)
        batch = graph.batch
        starts = range(0, len(rows) * batch.width, batch.width)
        return PassOutput(graph.states, graph.context, batch.history, batch.lengths, starts, static=graph)

    def _run_eagerly(
        self,
        rows: Sequence[BatchRow],
        loras: tuple[ExLlamaV2Lora, ...],
        embeddings: Sequence[IndexedEmbeddings],
    ) -> PassOutput:
        batch = ForwardBatch(rows, self.page_size)
        ids = batch.ids()
        places = batch.places
        sources = [(place.start, row.source) for row, place in zip(rows, places, strict=True) if row.source >= 0]
        if sources:
            to, source = torch.tensor(sources, device=self.device).T
            ids = ids.to(self.device)
            ids[0, to] = self.sampled[source].clamp(min=0)
        self.history.view(-1)[batch.slots().to(self.device)] = as_int32(ids[0]).to(self.device)
        width = max(len(row.block_table) for row in rows)
        history = TokenPages(self.history, batch.block_tables(width).to(self.device))
        lengths = batch.lengths().to(self.device)
        attention: AttentionMetadata
        if self._reads_pages:
            attention, ids = self._decode_attention.build(lengths, history.block_table), ids.T
        else:
            attention = ragged_attention(batch, self.model, self.cache)
        context = ForwardContext(attention, loras, embeddings)
        with torch.inference_mode():
            states = self.model.layers(ids, context).flatten(0, 1)
        return PassOutput(states, context, history, lengths, [place.start for place in places])
