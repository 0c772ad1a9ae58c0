"""``ExLlamaV2BaseGenerator``: batch generation under the names of exllamav2."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch

from constrain.arguments import check_count, texts_of
from constrain.errors import GenerationError
from constrain.filters import ExLlamaV2Filter, combine
from constrain.filters.combined import filters_of
from constrain.generator.hooks import ExLlamaV2PostSamplingHook, ExLlamaV2PostSamplingResult, as_hook
from constrain.generator.limits import check_event, check_parts
from constrain.generator.prompt import PromptBatch, encode_prompts, split_embeddings
from constrain.generator.sampler import ExLlamaV2Sampler
from constrain.generator.seeds_and_stops import key_of
from constrain.generator.settings import Settings, check_settings
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2Lora
from constrain.runtime import Request, Runtime, SequenceState
from constrain.runtime.sequence import can_heal
from constrain.tokenizer import ExLlamaV2Tokenizer

__all__ = [
    "ExLlamaV2BaseGenerator",
    "ExLlamaV2Filter",
    "ExLlamaV2PostSamplingHook",
    "ExLlamaV2PostSamplingResult",
    "ExLlamaV2Sampler",
]

Prompt = TypeVar("Prompt", str, list[str])


class ExLlamaV2BaseGenerator:
    """Generates a batch of outputs in one call.

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
        self._lengths: list[int] = []
        self._runtime: Runtime | None = None

    @property
    def runtime(self) -> Runtime:
        """The runtime that runs the requests; created on first use."""
        if self._runtime is None:
            self._runtime = Runtime(self.model, self.cache, self.tokenizer)
        return self._runtime

    def warmup(self) -> None:
        """Run a tiny forward pass, so that the first real one pays no initialisation cost."""
        self.model.forward(torch.zeros((1, 2), dtype=torch.long))

    def full(self) -> bool:
        """Return whether the sequence of the last call has reached the model's maximum length."""
        return self.sequence_ids is not None and self.sequence_ids.shape[-1] >= self.model.config.max_seq_len

    @torch.inference_mode()
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

        Args:
            prompt: a prompt, or a list of prompts that run as a batch. With ``cfg_scale`` in the settings, two: with
                the condition and without it.
            gen_settings: sampling settings.
            num_tokens: the most tokens to generate. Prompts that leave no room for them are truncated on the left.
            seed: makes sampling reproducible; prompt ``i`` uses ``seed + i``. By default it is drawn from Python's
                ``random``.
            token_healing: replace the last prompt token by a generated one whose text begins with it. Ignored where a
                prompt has a single token, or its last token is special or a part of a character.
            encode_special_tokens: encode the text of special tokens in the prompt as these tokens.
            decode_special_tokens: show special tokens in the result.
            loras: adapters to apply.
            stop_token: id that ends an output; -1 for the tokenizer's end-of-sequence token, ``None`` for none.
            add_bos: prepend the beginning-of-sequence token to the prompts.
            abort_event: set it (from another thread) to end early. It is cleared first.
            input_embeddings: of shape (batch, n, hidden size), inserted at ``{{EMBED_HERE}}`` in each prompt.
            completion_only: return the output without the prompt.
            filters: constraints on the output, for a single prompt.
            filter_prefer_eos: end the output as soon as the filters allow it.
            complete_within_budget: mask out tokens after which a JSON Schema, regular expression or grammar could not
                be completed within ``num_tokens``.

        Returns:
            The text, or a list of texts for a list of prompts. Empty if aborted before the first token.

        Raises:
            ArgumentError: an argument is of the wrong type or out of range.
            GenerationError: the arguments contradict each other, or exceed the limits of model and cache.
            FilterError: a filter failed; :class:`DeadEnd` if the filters allow no token.
            BudgetError: the filters allow no output within ``num_tokens``.
        """
        prompts = [prompt] if isinstance(prompt, str) else texts_of("prompt", prompt)
        check_settings(gen_settings)
        check_count("num_tokens", num_tokens)
        check_event(abort_event)
        for name, number in {"seed": seed, "stop_token": stop_token}.items():
            if number is not None:
                check_count(name, number, minimum=None)
        constraints = filters_of(filters)
        lora_list = ExLlamaV2Lora.listed(loras)
        self.abort_event = abort_event
        if abort_event is not None:
            abort_event.clear()
        batch = self._encode(prompts, num_tokens, add_bos, encode_special_tokens, input_embeddings)
        self._check(batch, gen_settings, constraints)

        heal = token_healing and can_heal(self.tokenizer, batch.rows)
        stop = self.tokenizer.eos_token_id if stop_token == -1 else stop_token
        width = self.model.config.padded_vocab_size
        request = Request(
            prompt=(),
            sampling=gen_settings.params(self.tokenizer, width),
            # The healed token counts towards num_tokens.
            max_new_tokens=num_tokens - heal,
            stop_tokens=frozenset() if stop is None else frozenset({stop}),
            stop_before_hook=True,
            constraint=combine(constraints, self.tokenizer, width) if constraints else None,
            prefer_eos=filter_prefer_eos,
            within_budget=complete_within_budget,
            heal=heal,
            constrain_healing=True,
            hook=as_hook(gen_settings),
            loras=tuple(lora_list),
            embeddings=batch.embeddings,
        )
        sequences = self._run(self._requests(batch, request, key_of(seed))) if num_tokens else None
        if sequences is None:
            self.sequence_ids = batch.ids
            empty = [""] * len(prompts) if num_tokens else self._texts(batch, heal, completion_only, False)
            return empty[0] if isinstance(prompt, str) else empty
        self._keep(batch, heal, sequences)
        answers = self._texts(batch, heal, completion_only, decode_special_tokens)
        return answers[0] if isinstance(prompt, str) else answers

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
        embeddings = [] if input_embeddings is None else split_embeddings(self.model, input_embeddings, len(prompts))
        batch = encode_prompts(self.tokenizer, prompts, add_bos, encode_special_tokens, embeddings)
        return batch.cut_left(limit - num_tokens)

    def _check(self, batch: PromptBatch, settings: Settings, filters: Sequence[Any]) -> None:
        rows = batch.ids.shape[0]
        if rows > self.cache.batch_size:
            raise GenerationError(f"{rows} prompts do not fit a cache with batch_size={self.cache.batch_size}")
        if settings.cfg_scale is not None and rows != 2:
            raise GenerationError(f"cfg_scale needs two prompts (with and without condition), not {rows}")
        if filters and rows > 1 and settings.cfg_scale is None:
            raise GenerationError(f"filters constrain a single sequence, but there are {rows} prompts")

    def _requests(self, batch: PromptBatch, request: Request, seed: int) -> list[Request]:
        """Return one request per prompt, or a single one for both prompts under guidance."""
        rows = batch.rows
        if request.sampling.guidance is not None:
            return [replace(request, prompt=rows, seed=seed)]
        return [replace(request, prompt=[row], seed=key_of(seed + i)) for i, row in enumerate(rows)]

    def _run(self, requests: Sequence[Request]) -> list[SequenceState] | None:
        """Run requests to completion, each on its own cache rows; ``None`` if aborted before the first token."""
        runtime = self.runtime
        sequences: list[SequenceState] = []
        first_row = 0
        try:
            for request in requests:
                tables = [self.row_pages(first_row + i) for i in range(len(request.prompt))]
                sequences.append(runtime.add(request, tables))
                first_row += len(tables)
            while any(sequence.finish is None for sequence in sequences):
                if self._aborted():
                    break
                for event in runtime.step():
                    finish = event.update.finish if event.update is not None else None
                    if finish is not None and finish.error is not None:
                        raise finish.error
        finally:
            for sequence in sequences:
                runtime.cancel(sequence)
        return sequences if any(sequence.new_tokens > 0 for sequence in sequences) or not self._aborted() else None

    def row_pages(self, row: int) -> range:
        """Return the indices of the pages that make up a row of the cache."""
        pages = self.cache.max_seq_len // self.runtime.allocator.page_size
        return range(row * pages, (row + 1) * pages)

    def _keep(self, batch: PromptBatch, heal: bool, sequences: Sequence[SequenceState]) -> None:
        """Store all sequences as ``sequence_ids``, padded left like the prompts and right to the longest sequence."""
        pad = self.tokenizer.pad_token_id
        rows = [row.sequence_ids.torch()[0] for sequence in sequences for row in sequence.rows]
        stopped = [
            sequence.finish is not None and sequence.finish.reason == "stop_token"
            for sequence in sequences
            for _ in sequence.rows
        ]
        rows = [row[: len(row) - stops] for row, stops in zip(rows, stopped, strict=True)]
        lengths = batch.padding + torch.tensor([len(row) for row in rows])
        ids = torch.full((len(rows), int(lengths.max())), pad)
        for target, row, padding in zip(ids, rows, batch.padding.tolist(), strict=True):
            target[padding : padding + len(row)] = row
        self.sequence_ids, self._lengths = ids, lengths.tolist()
        self.cache.current_seq_len = max(sequence.rows[0].position for sequence in sequences)

    def _texts(self, batch: PromptBatch, healed: bool, completion_only: bool, special: bool) -> list[str]:
        """Return the text of each sequence."""
        assert self.sequence_ids is not None
        decode = partial(self.tokenizer.decode, decode_special_tokens=special)
        start = batch.ids.shape[1]
        lengths = self._lengths if self.sequence_ids is not batch.ids else [start] * len(batch.ids)
        texts = []
        for row, prompt, pad, end in zip(self.sequence_ids, batch.ids, batch.padding.tolist(), lengths, strict=True):
            if not completion_only:
                texts.append(decode(row[pad:end]))
            elif healed:
                texts.append(decode(row[pad:end])[len(decode(prompt[pad:])) :])
            else:
                texts.append(decode(row[start:end]))
        return texts

    def _aborted(self) -> bool:
        return self.abort_event is not None and self.abort_event.is_set()
