"""``ExLlamaV2StreamingGenerator``: streams one sequence, under the names of exllamav2."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import torch

from constrain.arguments import check_count, names_of, refused, warn_of_misspelt
from constrain.errors import GenerationError
from constrain.generator.arguments import split_stop_conditions
from constrain.generator.base import ExLlamaV2BaseGenerator, check_loaded
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.generator.prompt import PromptBatch, ids_of, left_padding, prepend_embeddings
from constrain.generator.results import joined, token_ids
from constrain.generator.settings import Settings
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2Lora
from constrain.runtime import SequenceState
from constrain.runtime.outputs import SampledToken, Update
from constrain.runtime.sequence import can_heal
from constrain.runtime.speculative.draft_model import DraftModel
from constrain.runtime.speculative.ngram import NgramProposer
from constrain.runtime.speculative.proposer import Proposer
from constrain.tokenizer import ExLlamaV2Tokenizer


class _Stream:
    """Identity of a stream."""


#: The last stream that a thread or task has begun.
_OWN_STREAM: ContextVar[_Stream | None] = ContextVar("own stream", default=None)


class ExLlamaV2StreamingGenerator(ExLlamaV2BaseGenerator):
    """Streams one sequence: call ``begin_stream_ex`` once, then ``stream_ex`` until ``eos``.

    Threads may share a generator, but it has one stream at a time: the next one ends the one before, and
    ``stream_ex`` raises in the thread or task that has begun that.

    The KV cache of the prefix that a prompt shares with the previous sequence is reused.

    Attributes:
        stop_tokens, stop_strings: stop conditions of the output; by default the end-of-sequence token.
        speculative_ngram: draft tokens from n-grams that occurred before in the sequence.
        speculative_ngram_min, speculative_ngram_threshold: accepted for compatibility.
        speculative_ngram_max, speculative_ngram_max_inf: longest n-gram that is matched, and most draft tokens.
        num_speculative_tokens: most draft tokens of the draft model per step.
        speculative_prob_threshold: the draft model stops at a token with a lower probability than this.
        total_tokens, total_draft_tokens, accepted_draft_tokens: number of tokens sampled, of draft tokens, and of those
            that were accepted, since :meth:`reset_sd_stats`.
    """

    #: Whether ``stream_ex`` returns a single token even if more are ready.
    one_token_per_call = False
    #: Whether reported logits are the model's, before the sampler modifies them.
    raw_logits = True

    def __init__(
        self,
        model: ExLlamaV2,
        cache: ExLlamaV2CacheBase,
        tokenizer: ExLlamaV2Tokenizer,
        draft_model: ExLlamaV2 | None = None,
        draft_cache: ExLlamaV2CacheBase | None = None,
        num_speculative_tokens: int = 5,
    ) -> None:
        """Create a generator.

        Args:
            model: the model.
            cache: limits the length of the sequence; guidance needs two rows.
            tokenizer: the tokenizer of the model.
            draft_model: a smaller model with the same vocabulary, which drafts tokens.
            draft_cache: cache of the draft model; by default created with the length of ``cache``.
            num_speculative_tokens: most draft tokens per step.

        Raises:
            GenerationError: the draft cache has several rows, or its length differs from that of ``cache``.
        """
        super().__init__(model, cache, tokenizer)
        self.stop_tokens: set[int] = set() if tokenizer.eos_token_id is None else {tokenizer.eos_token_id}
        self.stop_strings: set[str] = set()
        self.num_speculative_tokens = num_speculative_tokens
        self.speculative_prob_threshold = 0.25
        self.speculative_ngram = False
        self.speculative_ngram_min, self.speculative_ngram_threshold = 1, 1
        self.speculative_ngram_max, self.speculative_ngram_max_inf = 5, 3
        self.draft_model = draft_model
        self.draft_cache = draft_cache
        if draft_model is not None and draft_cache is None:
            self.draft_cache = type(cache)(draft_model, max_seq_len=cache.max_seq_len)
        if self.draft_cache is not None and (
            self.draft_cache.batch_size != 1 or self.draft_cache.max_seq_len != cache.max_seq_len
        ):
            raise GenerationError(
                f"the draft cache must have batch_size=1 and max_seq_len={cache.max_seq_len}, not "
                f"batch_size={self.draft_cache.batch_size} and max_seq_len={self.draft_cache.max_seq_len}"
            )
        self.total_tokens = self.total_draft_tokens = self.accepted_draft_tokens = 0
        self._preloaded: list[int] = []
        self._draft: DraftModel | None = None
        self._job: ExLlamaV2DynamicJob | None = None
        self._prompt, self._start = torch.empty(1, 0, dtype=torch.long), 0
        self._updates: deque[Update] = deque()
        self._last_ids: torch.Tensor | None = None
        self._conditions: tuple[Any, ...] | None = None
        self._stream: _Stream | None = None  # that has not ended
        self._replaced: WeakSet[_Stream] = WeakSet()

    def set_stop_conditions(self, stop_conditions: Collection[int | str]) -> None:
        """Replace the stop conditions, from the next output on.

        Raises:
            ArgumentError: a condition is neither an id nor a string.
        """
        if stop_conditions is None:
            raise refused("stop conditions", None, "a list, tuple or set")
        tokens, strings = split_stop_conditions(stop_conditions)
        self.stop_tokens, self.stop_strings = set(tokens), set(strings)

    def ngram_preload(self, input_ids: torch.Tensor | Sequence[int]) -> None:
        """Add tokens to search for n-grams, used if ``speculative_ngram`` is set."""
        self._preloaded = input_ids.flatten().tolist() if isinstance(input_ids, torch.Tensor) else list(input_ids)

    def reset_sd_stats(self) -> None:
        """Reset the counts of sampled and draft tokens."""
        self.total_tokens = self.total_draft_tokens = self.accepted_draft_tokens = 0

    def get_sd_stats(self) -> tuple[float, float, int, int, int]:
        """Return accepted drafts per token and per draft, and the numbers of tokens, drafts and accepted drafts."""
        total, drafted, accepted = self.total_tokens, self.total_draft_tokens, self.accepted_draft_tokens
        return accepted / total if total else 0.0, accepted / drafted if drafted else 0.0, total, drafted, accepted

    def begin_stream(
        self,
        input_ids: torch.Tensor,
        gen_settings: Settings,
        token_healing: bool = False,
        loras: ExLlamaV2Lora | list[ExLlamaV2Lora] | None = None,
        input_mask: torch.Tensor | None = None,
        position_offsets: torch.Tensor | None = None,
        abort_event: threading.Event | None = None,
        **kwargs: Any,
    ) -> None:
        """Call :meth:`begin_stream_ex` with the arguments of older versions."""
        self.begin_stream_ex(
            input_ids,
            gen_settings,
            token_healing,
            loras,
            input_mask,
            position_offsets,
            abort_event=abort_event,
            **kwargs,
        )

    def begin_stream_ex(
        self,
        input_ids: torch.Tensor,
        gen_settings: Settings,
        token_healing: bool = False,
        loras: ExLlamaV2Lora | list[ExLlamaV2Lora] | None = None,
        input_mask: torch.Tensor | None = None,
        position_offsets: torch.Tensor | None = None,
        return_probabilities: bool = False,
        return_top_tokens: int = 0,
        return_logits: bool = False,
        abort_event: threading.Event | None = None,
        input_embeddings: torch.Tensor | None = None,
        decode_special_tokens: bool = False,
        banned_strings: Sequence[str] | None = None,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
        max_new_tokens: int | None = None,
        trigger: str | None = None,
        complete_within_budget: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Begin a sequence: prefill the prompt.

        Other arguments are those of :meth:`generate_simple` and :class:`ExLlamaV2DynamicJob`, ``kwargs`` among them.

        Args:
            input_ids: integers of shape (1, n); (2, n) for guidance, with the condition and without it.
            input_mask, position_offsets: left padding of prompts, as for :meth:`ExLlamaV2.forward`.
            abort_event: set it (from another thread) to end early; then the next call of ``stream_ex`` is the last.
            input_embeddings: of shape (rows, n, hidden size), prepended to the prompt.
            max_new_tokens: by default as many as fit in the context, without regard to ``complete_within_budget``.

        Raises:
            ArgumentError, GenerationError: an argument is invalid, or exceeds the limits of model and cache.
            BudgetError: the filters allow no output within ``max_new_tokens``.
        """
        warn_of_misspelt(kwargs, names_of(ExLlamaV2StreamingGenerator.begin_stream_ex))
        batch = self._prompts(input_ids, input_mask, position_offsets, input_embeddings)
        job = ExLlamaV2DynamicJob(
            batch.rows,
            self._room(batch.rows, token_healing, max_new_tokens),
            gen_settings=gen_settings,
            seed=seed,
            stop_conditions=[*self.stop_tokens, *self.stop_strings],
            decode_special_tokens=decode_special_tokens,
            return_top_tokens=return_top_tokens,
            return_logits=return_logits,
            return_probs=return_probabilities,
            filters=filters,
            filter_prefer_eos=filter_prefer_eos,
            token_healing=token_healing,
            banned_strings=banned_strings,
            embeddings=batch.embeddings,
            trigger=trigger,
            complete_within_budget=complete_within_budget and max_new_tokens is not None,
        )
        with self._exclusive(abort_event):
            self._start_job(job, ExLlamaV2Lora.listed(loras), batch)

    def _prompts(
        self,
        input_ids: torch.Tensor,
        input_mask: torch.Tensor | None,
        position_offsets: torch.Tensor | None,
        input_embeddings: torch.Tensor | None,
    ) -> PromptBatch:
        input_ids = ids_of(input_ids)
        padding = left_padding(input_ids, input_mask, position_offsets)
        if input_embeddings is None:
            return PromptBatch(input_ids, padding)
        input_ids, embeddings = prepend_embeddings(self.model, input_ids, input_embeddings)
        if padding.any():
            raise GenerationError("input_embeddings take no padding: give prompts of one length")
        return PromptBatch(input_ids, padding, tuple(embeddings))

    def _room(self, prompts: Sequence[torch.Tensor], token_healing: bool, max_new_tokens: int | None) -> int:
        """Return the maximum number of output tokens: not more than fit in the context after the prompts."""
        context = min(self.model.config.max_seq_len, self.cache.max_seq_len)
        heals = token_healing and can_heal(self.tokenizer, prompts)
        length = max(ids.shape[1] for ids in prompts) - heals
        if length >= context:
            raise GenerationError(f"the prompt has {length} tokens, which leaves no room in {context} positions")
        if max_new_tokens is None:
            return context - length
        check_count("max_new_tokens", max_new_tokens, 1)
        return min(context - length, max_new_tokens)

    def _start_job(self, job: ExLlamaV2DynamicJob, loras: Sequence[ExLlamaV2Lora], batch: PromptBatch) -> None:
        """Start a job, reusing the KV cache of the prefix that it shares with the previous sequence."""
        check_loaded(self.model, self.draft_model)
        prompt, is_plain = batch.ids, not (batch.embeddings or batch.padding.any())
        conditions = (len(prompt), *loras) if is_plain else None
        width = self.model.config.padded_vocab_size
        request = job.request(self.tokenizer, width, loras, constrain_healing=True, raw_logits=self.raw_logits)
        common = draft_position = 0
        if self._job is not None:
            last = self._job.sequence
            common = self._common(last, prompt, conditions)
            draft_position = min(last.rows[0].draft_position, common)
        self._end_sequences()
        self.runtime.speculation.proposer = None if request.embeddings else self._proposer()
        tables = [self.row_pages(row) for row in range(len(request.prompt))]
        self._job = None
        sequence = self.runtime.add(request, tables, common)
        sequence.rows[0].draft_position = draft_position
        self.runtime.prefill(sequence, self._aborted)
        job.attach(sequence)
        self._job, self._conditions = job, conditions
        self._prompt, self._start = prompt[:, : prompt.shape[1] - sequence.is_healing], len(sequence)
        self._updates.clear()
        self.cache.current_seq_len = sequence.rows[0].position
        self.sequence_ids = self._last_ids = self._ids(sequence)
        self._own_stream()

    def _own_stream(self) -> None:
        """Record that this thread or task owns the stream; one that has not ended is replaced."""
        if self._stream is not None:
            self._replaced.add(self._stream)
        self._stream = _Stream()
        _OWN_STREAM.set(self._stream)

    def _end_sequences(self) -> None:
        super()._end_sequences()
        self._conditions = None  # what comes next writes over the cached prefix

    def _common(self, last: SequenceState, prompt: torch.Tensor, conditions: tuple[Any, ...] | None) -> int:
        """Return the length of the prompt prefix in the KV cache; 0 if anything else the cache depends on changed."""
        if conditions is None or conditions != self._conditions or self.sequence_ids is not self._last_ids:
            return 0
        width = min(len(last), prompt.shape[1] - 1, min(row.position for row in last.rows))
        cached = torch.cat([row.sequence_ids.torch()[:, :width] for row in last.rows])
        differs = (cached != prompt[:, :width]).any(dim=0).nonzero()
        return int(differs[0]) if len(differs) else width

    def _ids(self, sequence: SequenceState) -> torch.Tensor:
        """Return the sequence with its prompt, int64 of shape (rows, n), without tokens not yet returned."""
        row = sequence.rows[0]
        if not row.is_prefilled:  # aborted
            return self._prompt[:, : row.position]
        unread = sum(len(update.released.tokens) for update in self._updates)
        new = row.sequence_ids.torch()[:, self._start : len(sequence) - unread]
        return torch.cat([self._prompt, new.expand(len(self._prompt), -1)], dim=1)

    def stream_ex(self, ban_tokens: torch.Tensor | Sequence[int] | None = None, **kwargs: Any) -> dict[str, Any]:
        """Continue the output.

        Args:
            ban_tokens: ids that are not sampled in this call.
            kwargs: ignored, for compatibility.

        Returns:
            A dictionary with one or more tokens:

            - ``chunk``: text that was released, possibly empty;
            - ``eos``: whether the output has ended, with ``eos_reason`` as in the results of the dynamic generator, or
              ``"aborted"``, also by a call of :meth:`generate_simple`; calls after the end return it again, with an
              empty chunk;
            - ``chunk_token_ids``: its tokens, int64 of shape (1, n); without those from which a stop condition ends
              the output, also where ``chunk`` has text that was held until then;
            - ``probs``: if requested, their probabilities, float32 of shape (n,);
            - ``top_tokens``: if requested, pairs of id and probability, ``return_top_tokens`` for each token, the
              most likely first;
            - ``logits``: if requested, float32 of shape (1, n, padded vocabulary);
            - ``suppressed``: output with a banned string, which was rolled back.

            A call returns several tokens if draft tokens were accepted, or the filters forced tokens.

        Raises:
            ArgumentError: ``ban_tokens`` are not token ids.
            GenerationError: no sequence was begun, or another thread or task has begun the next one.
            FilterError: a filter failed; :class:`DeadEnd` if the filters allow no token.
        """
        with self._lock:
            if self._job is None:
                raise GenerationError("call begin_stream_ex before stream_ex")
            if _OWN_STREAM.get() in self._replaced:
                raise GenerationError(
                    "another thread or task has begun a stream, which has ended this one: a streaming generator has "
                    "one stream at a time; a dynamic generator has any number"
                )
            sequence = self._job.sequence
            self._ban(sequence, [] if ban_tokens is None else ban_tokens)
            healing = sequence.is_healing
            updates = self._next_updates(self._job)
            if healing and updates and sequence.finish is None:
                updates += self._next_updates(self._job)
            self.total_tokens += len(updates)
            self.cache.current_seq_len = min(sequence.rows[0].position, len(sequence) - 1)
            self.sequence_ids = self._last_ids = self._ids(sequence)
            return self._result(self._job, updates)

    def _next_updates(self, job: ExLlamaV2DynamicJob) -> list[Update]:
        """Return the updates of the next tokens; empty if aborted, or if the output has already ended."""
        sequence = job.sequence
        while not self._updates and sequence.is_running and not self._aborted():
            before = sequence.sampling
            job.refresh(self.tokenizer, self.model.config.padded_vocab_size)
            if sequence.sampling != before:
                self.runtime.flush(sequence)
            accepted, rejected = sequence.accepted_draft_tokens, sequence.rejected_draft_tokens
            self._updates += [event.update for event in self.runtime.step() if event.update is not None]
            accepted = sequence.accepted_draft_tokens - accepted
            self.accepted_draft_tokens += accepted
            self.total_draft_tokens += accepted + sequence.rejected_draft_tokens - rejected
        if self._aborted():
            return []
        count = min(1, len(self._updates)) if self.one_token_per_call else len(self._updates)
        return [self._updates.popleft() for _ in range(count)]

    def _ban(self, sequence: SequenceState, tokens: torch.Tensor | Sequence[int]) -> None:
        """Ban tokens in this call only; if the bans changed, drop the in-flight token, sampled under the old ones."""
        if not isinstance(tokens, (torch.Tensor, list, tuple)):
            raise refused("ban_tokens", tokens, "a list of ids")
        ids: list[int] = tokens.flatten().tolist() if isinstance(tokens, torch.Tensor) else list(tokens)
        for token in ids:
            check_count("a token of ban_tokens", token, 0, self.model.config.padded_vocab_size - 1)
        if list(sequence.banned_tokens) != ids:
            sequence.banned_tokens = ids
            self.runtime.flush(sequence)

    def stream(self, ban_tokens: torch.Tensor | Sequence[int] | None = None, **kwargs: Any) -> tuple[Any, ...]:
        """Call :meth:`stream_ex`; return a tuple of chunk, eos, token ids, and, if requested, probs and logits."""
        result = self.stream_ex(ban_tokens)
        if "logits" in result:
            result["logits"] = result["logits"][0]
        return tuple(result[key] for key in ("chunk", "eos", "chunk_token_ids", "probs", "logits") if key in result)

    def _result(self, job: ExLlamaV2DynamicJob, updates: list[Update]) -> dict[str, Any]:
        """Build the result of a call from its updates; none: the call was aborted, or the output has ended before."""
        end = next((update.finish for update in updates if update.finish is not None), None)
        if end is not None or not updates:
            self._stream = None
        if end is not None and end.error is not None:
            raise end.error
        chunk = "".join(update.released.text for update in updates)
        if end is not None and end.reason == "stop_token":
            pieces = self.tokenizer.get_id_to_piece_list(job.sequence.request.decode_special_tokens)
            chunk += end.held.text.removesuffix(pieces[end.held.tokens[-1].id])
        stopped = end is not None and end.reason in ("stop_token", "stop_string")
        tokens = [t for update in updates if not (stopped and update.finish) for t in update.released.tokens]
        result = {"chunk": chunk, "eos": not updates or end is not None, "chunk_token_ids": token_ids(tokens)}
        result |= self._token_keys(job, tokens)
        suppressed = [update.suppressed.text for update in updates if update.suppressed is not None]
        if suppressed:
            result["suppressed"] = suppressed[0]
        if result["eos"]:
            # Without an update, the output was aborted, unless it had ended before and all of it was read.
            end = end or (None if updates or self._updates else job.sequence.finish)
            result["eos_reason"] = "aborted" if end is None else end.reason
        return result

    def _token_keys(self, job: ExLlamaV2DynamicJob, tokens: list[SampledToken]) -> dict[str, Any]:
        """Return the requested values of released tokens."""
        result: dict[str, Any] = {}
        if job.return_probs:
            result["probs"] = torch.tensor([token.prob for token in tokens])
        if job.sequence.request.return_top_tokens:
            tops = [token.top for token in tokens if token.top is not None]
            result["top_tokens"] = [
                pair for ids, probs in tops for pair in zip(ids[0, 0].tolist(), probs[0, 0].tolist(), strict=True)
            ]
        if job.sequence.request.return_logits:
            width = self.model.config.padded_vocab_size
            rows = [token.logits for token in tokens if token.logits is not None]
            result["logits"] = joined(rows) if rows else torch.empty(1, 0, width)
        return result

    def _proposer(self) -> Proposer | None:
        if self.draft_model is not None and self.draft_cache is not None:
            if not self.num_speculative_tokens:
                return None
            if self._draft is None:
                width = min(self.model.config.padded_vocab_size, self.tokenizer.get_vocab_size())
                size = self.runtime.allocator.page_size
                self._draft = DraftModel(self.draft_model, self.draft_cache, size, width, 0)
            self._draft.num_tokens = self.num_speculative_tokens
            self._draft.min_probability = self.speculative_prob_threshold
            return self._draft
        if not self.speculative_ngram or not self.speculative_ngram_max_inf:
            return None
        ngrams = NgramProposer(self.speculative_ngram_max, self.speculative_ngram_max_inf)
        ngrams.preload(self._preloaded)
        return ngrams
