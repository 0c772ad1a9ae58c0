"""``ExLlamaV2BaseGenerator``: batch generation under the names of exllamav2."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import count
from typing import Any, TypeVar

import torch

from constrain.arguments import check_count, check_type, texts_of
from constrain.errors import GenerationError
from constrain.filters.combined import filters_of
from constrain.generator.arguments import check_event, key_of
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.generator.prompt import PromptBatch, encode_prompts, split_embeddings
from constrain.generator.settings import Settings, check_settings
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2Lora
from constrain.runtime import Request, Runtime, SequenceState
from constrain.runtime.fair_lock import FairLock
from constrain.runtime.sequence import can_heal
from constrain.tokenizer import ExLlamaV2Tokenizer

Prompt = TypeVar("Prompt", str, list[str])


def check_parts(model: ExLlamaV2, cache: ExLlamaV2CacheBase, tokenizer: ExLlamaV2Tokenizer) -> None:
    """Raise :class:`ArgumentError` if the model, cache or tokenizer is of the wrong type."""
    check_type("model", model, ExLlamaV2, "an ExLlamaV2")
    check_type("cache", cache, ExLlamaV2CacheBase, "an ExLlamaV2Cache")
    check_type("tokenizer", tokenizer, ExLlamaV2Tokenizer, "an ExLlamaV2Tokenizer")


def check_loaded(*models: ExLlamaV2 | None) -> None:
    """Raise :class:`GenerationError` if a model is not loaded, or has been unloaded."""
    if not all(model is None or model.loaded for model in models):
        raise GenerationError("the model has no weights: it was not loaded, or was unloaded; load one again")


class ExLlamaV2BaseGenerator:
    """Generates a batch of outputs in one call.

    Threads may share a generator: their calls run one after another.

    Attributes:
        model, cache, tokenizer: as given.
        sequence_ids: the tokens of the last call, prompts included, int64 of shape (batch, n); ``None`` before.
        abort_event: the event that stops the running call, if it was given one.
    """

    def __init__(self, model: ExLlamaV2, cache: ExLlamaV2CacheBase, tokenizer: ExLlamaV2Tokenizer) -> None:
        check_parts(model, cache, tokenizer)
        self.model = model
        self.cache = cache
        self.tokenizer = tokenizer
        self.sequence_ids: torch.Tensor | None = None
        self.abort_event: threading.Event | None = None
        self._lock = FairLock()

    @cached_property
    def runtime(self) -> Runtime:
        """The runtime that runs the requests; created on first use."""
        return Runtime(self.model, self.cache, self.tokenizer)

    def warmup(self) -> None:
        """Run a tiny forward pass, so that the first real one pays no initialisation cost."""
        self.model.forward(torch.zeros((1, 2), dtype=torch.long))

    def full(self) -> bool:
        """Return whether the sequence of the last call has reached the model's maximum length."""
        return self.sequence_ids is not None and self.sequence_ids.shape[-1] >= self.model.config.max_seq_len

    def generate_simple(
        self,
        prompt: Prompt,
        gen_settings: Settings,
        num_tokens: int,
        seed: int | None = None,
        token_healing: bool = False,
        encode_special_tokens: bool = False,
        decode_special_tokens: bool = False,
        loras: ExLlamaV2Lora | list[ExLlamaV2Lora] | None = None,
        stop_token: int | None = -1,
        add_bos: bool = False,
        abort_event: threading.Event | None = None,
        input_embeddings: torch.Tensor | None = None,
        completion_only: bool = False,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
        complete_within_budget: bool = True,
    ) -> Prompt:
        """Generate a continuation of each prompt.

        Arguments that are not listed are those of :meth:`ExLlamaV2DynamicGenerator.generate`.

        Args:
            prompt: a prompt, or a list of prompts that run as a batch. With ``cfg_scale`` in the settings, two: with
                the condition and without it.
            num_tokens: the most tokens to generate. Prompts that leave no room for them are truncated on the left.
            seed: by default it is taken from Python's ``random``; prompt ``i`` uses ``seed + i``.
            loras: adapters to apply.
            stop_token: id that ends an output; -1 for the tokenizer's end-of-sequence token, ``None`` for none.
            abort_event: set it (from another thread) to end early. It is cleared first.
            input_embeddings: of shape (batch, n, hidden size), inserted at ``{{EMBED_HERE}}`` in each prompt.
            filters: constraints on the output, for a single prompt.

        Returns:
            The text, or a list of texts for a list of prompts. Empty if aborted before the first token.

        Raises:
            ArgumentError, GenerationError: an argument is invalid, or exceeds the limits of model and cache.
            FilterError: a filter failed; :class:`DeadEnd` if the filters allow no token.
            BudgetError: the filters allow no output within ``num_tokens``.
        """
        prompts = [prompt] if isinstance(prompt, str) else texts_of("prompt", prompt)
        check_count("num_tokens", num_tokens)
        with self._exclusive(abort_event, clear=True):
            batch = self._encode(prompts, num_tokens, add_bos, encode_special_tokens, input_embeddings)
            requests = self._requests(
                batch,
                num_tokens,
                seed,
                ExLlamaV2Lora.listed(loras),
                gen_settings=gen_settings,
                stop_conditions=_stop_conditions(self.tokenizer, stop_token),
                filters=filters_of(filters),
                filter_prefer_eos=filter_prefer_eos,
                token_healing=token_healing and can_heal(self.tokenizer, batch.rows),
                complete_within_budget=complete_within_budget,
            )
            texts = self._generate(batch, requests, num_tokens, completion_only, decode_special_tokens)
        return texts[0] if isinstance(prompt, str) else texts

    @contextmanager
    def _exclusive(self, abort_event: threading.Event | None, clear: bool = False) -> Iterator[None]:
        """Hold the lock of the generator, with the abort event of a call; ``clear``: clear that event first."""
        check_event(abort_event, clear)
        with self._lock:
            self.abort_event = abort_event
            yield

    def _requests(
        self, batch: PromptBatch, num_tokens: int, seed: int | None, loras: Sequence[ExLlamaV2Lora], **options: Any
    ) -> list[Request]:
        """Return a request for each prompt, for guidance one of both; ``options``: those of its job."""
        check_settings(options["gen_settings"])
        key, is_guided = key_of(seed), options["gen_settings"].cfg_scale is not None
        prompts = [batch.rows] if is_guided else [[row] for row in batch.rows]
        if options["filters"] and len(prompts) > 1:
            raise GenerationError(f"filters constrain a single sequence, but there are {len(prompts)} prompts")
        jobs = [
            ExLlamaV2DynamicJob(rows, max(1, num_tokens), seed=key + i, embeddings=batch.embeddings, **options)
            for i, rows in enumerate(prompts)
        ]
        fields = {
            "max_new_tokens": num_tokens - options["token_healing"],  # the healed token counts towards num_tokens
            "constrain_healing": True,
            "stop_before_hook": True,
        }
        return [job.request(self.tokenizer, self.model.config.padded_vocab_size, loras, **fields) for job in jobs]

    def _generate(
        self, batch: PromptBatch, requests: Sequence[Request], num_tokens: int, completion_only: bool, special: bool
    ) -> list[str]:
        """Run the requests, and return the texts; ``special``: show special tokens."""
        self.sequence_ids, ends = batch.ids, [batch.ids.shape[1]] * len(batch.ids)
        if num_tokens:
            sequences = self._run(requests)
            if sequences is None:
                return [""] * len(batch.ids)
            ends = self._store_ids(batch, sequences)
        return self._texts(batch, ends, requests[0].heal, completion_only, special)

    def _encode(
        self,
        prompts: list[str],
        num_tokens: int,
        add_bos: bool,
        encode_special_tokens: bool,
        input_embeddings: torch.Tensor | None,
    ) -> PromptBatch:
        limit = min(self.model.config.max_seq_len, self.cache.max_seq_len)
        if num_tokens >= limit:
            raise GenerationError(f"num_tokens={num_tokens} leaves no room for a prompt in {limit} positions")
        if not prompts:
            raise GenerationError("the list of prompts is empty")
        if len(prompts) > self.cache.batch_size:
            raise GenerationError(f"{len(prompts)} prompts do not fit a cache with batch_size={self.cache.batch_size}")
        embeddings = [] if input_embeddings is None else split_embeddings(self.model, input_embeddings, len(prompts))
        batch = encode_prompts(self.tokenizer, prompts, add_bos, encode_special_tokens, embeddings)
        return batch.cut_left(limit - num_tokens)

    def _run(self, requests: Sequence[Request]) -> list[SequenceState] | None:
        """Run requests to completion, each on its own cache rows; ``None`` if aborted before the first token."""
        check_loaded(self.model)
        self._end_sequences()
        runtime = self.runtime
        sequences: list[SequenceState] = []
        rows = count()
        try:
            for request in requests:
                sequences.append(runtime.add(request, [self.row_pages(next(rows)) for _ in request.prompt]))
            while any(sequence.is_running for sequence in sequences) and not self._aborted():
                for event in runtime.step():
                    finish = event.update.finish if event.update is not None else None
                    if finish is not None and finish.error is not None:
                        raise finish.error
        finally:
            self._end_sequences()
        return None if self._aborted() and all(sequence.new_tokens <= 0 for sequence in sequences) else sequences

    def _end_sequences(self) -> None:
        """Cancel what still uses the rows of the cache: a stream, or what a call left that was interrupted."""
        scheduler = self.runtime.scheduler
        for sequence in [*scheduler.waiting, *scheduler.running]:
            self.runtime.cancel(sequence)

    def row_pages(self, row: int) -> range:
        """Return the indices of the pages that make up a row of the cache."""
        pages = self.cache.max_seq_len // self.runtime.allocator.page_size
        return range(row * pages, (row + 1) * pages)

    def _store_ids(self, batch: PromptBatch, sequences: Sequence[SequenceState]) -> list[int]:
        """Store all sequences as ``sequence_ids``, padded like the prompts and on the right; return where each ends."""
        rows: list[torch.Tensor] = []
        for sequence in sequences:
            stops = sequence.finish is not None and sequence.finish.reason == "stop_token"
            rows += [row.sequence_ids.torch()[0, : len(row.sequence_ids) - stops] for row in sequence.rows]
        starts = batch.padding.tolist()
        ends = [start + len(row) for start, row in zip(starts, rows, strict=True)]
        self.sequence_ids = torch.full((len(rows), max(ends)), self.tokenizer.pad_token_id)
        for target, row, start, end in zip(self.sequence_ids, rows, starts, ends, strict=True):
            target[start:end] = row
        self.cache.current_seq_len = max(sequence.rows[0].position for sequence in sequences)
        return ends

    def _texts(
        self, batch: PromptBatch, ends: Sequence[int], healed: bool, completion_only: bool, special: bool
    ) -> list[str]:
        """Return the text of each sequence; ``ends``: where it ends in ``sequence_ids``."""
        assert self.sequence_ids is not None
        decode = partial(self.tokenizer.decode, decode_special_tokens=special)
        start = batch.ids.shape[1]
        texts = []
        for row, prompt, pad, end in zip(self.sequence_ids, batch.ids, batch.padding.tolist(), ends, strict=True):
            if completion_only and not healed:
                texts.append(decode(row[start:end]))
            else:
                shown = len(decode(prompt[pad:])) if completion_only else 0
                texts.append(decode(row[pad:end])[shown:])
        return texts

    def _aborted(self) -> bool:
        return self.abort_event is not None and self.abort_event.is_set()


def _stop_conditions(tokenizer: ExLlamaV2Tokenizer, stop_token: int | None) -> list[int]:
    """Return the stop conditions of a job; -1 stands for the end-of-sequence token."""
    if stop_token is not None:
        check_count("stop_token", stop_token, minimum=None)
    stop = tokenizer.eos_token_id if stop_token == -1 else stop_token
    return [] if stop is None else [stop]
