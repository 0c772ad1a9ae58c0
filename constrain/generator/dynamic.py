"""``ExLlamaV2DynamicGenerator``: the runtime under the names of exllamav2, driven by ``iterate``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any

from constrain.arguments import check_count, check_number, check_type, names_of, warn_of_misspelt
from constrain.errors import ConstrainError, GenerationError
from constrain.generator.arguments import check_event
from constrain.generator.base import check_loaded, check_parts
from constrain.generator.dynamic_options import Prompt, own_options
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.generator.prompt import embeddings_of
from constrain.generator.results import of_each
from constrain.generator.settings import Settings
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2Lora, ExLlamaV2MMEmbedding
from constrain.model.lora import check_adapters
from constrain.runtime import Runtime, SequenceState
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE
from constrain.runtime.speculative.draft_model import DraftModel
from constrain.runtime.speculative.ngram import NgramProposer
from constrain.runtime.speculative.proposer import Proposer
from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2DynamicGenerator:
    """Generates any number of sequences at the same time (continuous batching).

    Jobs share one KV cache, divided into pages of 256 tokens. Prompts with a common prefix share pages (prefix
    caching), and pages of finished jobs stay cached for later prompts with the same prefix.

    Threads may share a generator: calls of :meth:`generate` run one after another, and other methods between two steps.
    Results that :meth:`iterate` returns are not returned again, so one thread should call it.

    Args:
        model, tokenizer: the model, and its tokenizer.
        cache: has one row, of a multiple of 256 positions for all jobs together; its content is discarded.
        max_batch_size: most sequences that run at a time; by default as many as fit in a forward pass.
        max_seq_len: longest sequence; by default the model's.
        max_chunk_size: most prompt tokens per prefill chunk, a multiple of 256; other jobs sample in between.
        max_q_size: most tokens of a sequence that one forward pass verifies.
        draft_model, draft_cache: a smaller model with the same vocabulary, which drafts tokens; its cache is as
            large as ``cache``.
        num_draft_tokens: draft tokens per step; 0 without speculation.
        use_ngram_draft: draft from n-grams of the same sequence, instead of with a model.
        max_ngram: longest n-gram that is matched for that.
        max_sampling_threads, min_sampling_threads: accepted for compatibility.
        paged: divide the cache into pages. Otherwise one sequence runs at a time.
        filter_background_eval: compute filter masks while the model runs.
        jump_forward: run tokens that the filters force through the model in one forward pass, where it is cheap.
        filter_time_limit: seconds that a custom filter may take per token before its job fails; ``None``: no limit.
        kwargs: ignored, for compatibility; a name that is similar to one of the above causes a warning.

    Attributes:
        model, cache, draft_model, draft_cache, tokenizer: as given.
        max_batch_size, max_seq_len, max_chunk_size, num_draft_tokens: as given, or the defaults.
        max_total_tokens: tokens that the cache holds.
        page_size, max_pages: tokens in a page, and number of pages.
        padded_vocab_size: number of logits.
        current_loras: adapters in use; ``None`` before :meth:`set_loras`.
        runtime: the runtime that runs the jobs.

    Raises:
        ArgumentError: an argument is of the wrong type or out of range.
        GenerationError: the arguments contradict each other.
    """

    #: Class of the jobs that :meth:`generate` creates.
    job_type: type[ExLlamaV2DynamicJob] = ExLlamaV2DynamicJob
    #: Whether :meth:`generate` returns texts along with the last results, and then raises the errors of jobs.
    texts_with_results = False

    def __init__(
        self,
        model: ExLlamaV2,
        cache: ExLlamaV2CacheBase,
        tokenizer: ExLlamaV2Tokenizer,
        max_batch_size: int | None = None,
        max_seq_len: int | None = None,
        max_chunk_size: int | None = None,
        max_q_size: int = 8,
        draft_model: ExLlamaV2 | None = None,
        draft_cache: ExLlamaV2CacheBase | None = None,
        num_draft_tokens: int = 4,
        use_ngram_draft: bool = False,
        max_ngram: int = 4,
        max_sampling_threads: int = 16,
        min_sampling_threads: int = 3,
        paged: bool = True,
        filter_background_eval: bool = True,
        jump_forward: bool = True,
        filter_time_limit: float | None = None,
        **kwargs: Any,
    ) -> None:
        warn_of_misspelt(kwargs, names_of(ExLlamaV2DynamicGenerator.__init__))
        check_parts(model, cache, tokenizer)
        if draft_model is not None and draft_cache is not None:
            check_parts(draft_model, draft_cache, tokenizer)
        sizes = {"max_batch_size": max_batch_size, "max_seq_len": max_seq_len, "max_chunk_size": max_chunk_size}
        given = {name: number for name, number in sizes.items() if number is not None}
        for name, number in {**given, "max_q_size": max_q_size, "max_ngram": max_ngram}.items():
            check_count(name, number, 1)
        check_count("num_draft_tokens", num_draft_tokens)
        if filter_time_limit is not None:
            check_number("filter_time_limit", filter_time_limit, 0)
        config, size = model.config, PAGED_PAGE_SIZE if paged else cache.max_seq_len
        whole_pages = max(size, config.max_input_len // size * size)
        self.model, self.cache, self.tokenizer = model, cache, tokenizer
        self.draft_model, self.draft_cache = draft_model, draft_cache
        self.max_batch_size = max_batch_size or max(1, config.max_input_len * config.max_batch_size // max_q_size)
        self.max_seq_len = max_seq_len or config.max_seq_len
        self.max_chunk_size = max_chunk_size or (whole_pages if paged else config.max_input_len)
        self.max_total_tokens, self.padded_vocab_size = cache.max_seq_len, config.padded_vocab_size
        self.page_size, self.max_pages = size, cache.max_seq_len // size
        self.num_draft_tokens = num_draft_tokens if draft_model is not None or use_ngram_draft else 0
        self.current_loras: list[ExLlamaV2Lora] | None = None
        self._check_limits(max_q_size, use_ngram_draft, paged)
        self._time_limit = filter_time_limit
        self._jobs: dict[SequenceState, ExLlamaV2DynamicJob] = {}  # those that have not ended
        self._generating = threading.RLock()
        self.runtime = Runtime(
            model,
            cache,
            tokenizer,
            page_size=size,
            max_batch_size=self.max_batch_size,
            max_seq_len=self.max_seq_len,
            max_chunk_size=self.max_chunk_size,
            proposer=self._make_proposer(max_ngram),
            jump_forward=jump_forward,
            use_background=filter_background_eval,
        )

    def _check_limits(self, max_q_size: int, use_ngram_draft: bool, paged: bool) -> None:
        """Raise :class:`GenerationError` if the arguments contradict each other."""
        config, draft, rows, size = self.model.config, self.draft_model, self.max_batch_size, self.page_size
        room = max(max_q_size, config.max_batch_size * config.max_input_len)
        problem = None
        if rows * max_q_size > room:
            problem = f"max_batch_size={rows} times max_q_size={max_q_size} is more than a pass takes, {room} tokens"
        elif self.max_seq_len > config.max_seq_len:
            problem = f"max_seq_len={self.max_seq_len} is more than the model takes, {config.max_seq_len}"
        elif paged and self.max_chunk_size % size:
            problem = f"max_chunk_size={self.max_chunk_size} must be a multiple of {size}"
        elif self.num_draft_tokens > max_q_size:
            problem = f"num_draft_tokens={self.num_draft_tokens} is more than max_q_size={max_q_size}"
        elif (draft is None) != (self.draft_cache is None):
            problem = "a draft model needs a draft cache, and a draft cache a draft model"
        elif use_ngram_draft and draft is not None:
            problem = "use_ngram_draft and draft_model exclude each other"
        elif draft is not None and draft.config.max_seq_len < config.max_seq_len:
            problem = "the draft model takes shorter sequences than the model"
        for cache in filter(None, (self.cache, self.draft_cache)):
            if cache.batch_size != 1 or cache.max_seq_len % size or cache.max_seq_len != self.max_total_tokens:
                given = f"batch_size={cache.batch_size} and max_seq_len={cache.max_seq_len}"
                wanted = f"batch_size=1, and max_seq_len a multiple of {size} that all caches share"
                problem = problem or f"the cache must have {wanted}, not {given}"
        if problem is not None:
            raise GenerationError(problem)

    @property
    def pending_jobs(self) -> list[ExLlamaV2DynamicJob]:
        """Waiting jobs."""
        return self._jobs_of(self.runtime.scheduler.waiting)

    @property
    def active_jobs(self) -> list[ExLlamaV2DynamicJob]:
        """Running jobs."""
        return self._jobs_of(self.runtime.scheduler.running)

    def _jobs_of(self, sequences: Iterable[SequenceState]) -> list[ExLlamaV2DynamicJob]:
        """Return the jobs of sequences; the runtime may have others, of requests that were submitted to it."""
        return [job for each in sequences if (job := self._jobs.get(each)) is not None]

    def warmup(self) -> None:
        """Generate a few tokens, so that the first job pays no initialisation cost; then clear the KV cache."""
        self.generate("Once upon a time,", max_new_tokens=32, add_bos=True)
        self.reset_page_table()

    def generate(
        self,
        prompt: Prompt | list[Prompt],
        max_new_tokens: int,
        min_new_tokens: int = 0,
        seed: int | None = None,
        gen_settings: Settings | list[Settings] | None = None,
        token_healing: bool = False,
        encode_special_tokens: bool = False,
        decode_special_tokens: bool = False,
        stop_conditions: Sequence[int | str] | None = None,
        add_bos: bool = False,
        abort_event: threading.Event | None = None,
        completion_only: bool = False,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
        return_last_results: bool = False,
        embeddings: Sequence[ExLlamaV2MMEmbedding] | Sequence[list[ExLlamaV2MMEmbedding]] | None = None,
        banned_strings: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Generate an output for each prompt, and wait for all of them.

        Arguments that are not listed, ``kwargs`` among them, are those of :class:`ExLlamaV2DynamicJob`.

        Args:
            prompt: a prompt, or a list of them. For guidance each is a pair: with the condition and without it.
            gen_settings: sampling settings; one for all prompts, or a list with an entry for each.
            filters, embeddings: for a list of prompts, a list with a list (or ``None``) for each.
            seed: makes sampling reproducible; prompt ``i`` uses ``seed + i``.
            encode_special_tokens: encode the text of special tokens in a prompt as these tokens.
            add_bos: prepend the beginning-of-sequence token to the prompts.
            abort_event: set it (from another thread) to end early, which cancels all jobs of the generator.
            completion_only: return the outputs without the prompts.
            return_last_results: return the last result of each job instead of its text; see :meth:`iterate`.

        Returns:
            A text or a result; a list of them for a list of prompts. ``None`` if aborted.

        Raises:
            ArgumentError, GenerationError: an argument is invalid, or exceeds the limits of model and cache.
            ConstrainError: a job failed, unless ``return_last_results`` is set.
        """
        check_event(abort_event)
        warn_of_misspelt(kwargs, names_of(ExLlamaV2DynamicGenerator.generate) - names_of(ExLlamaV2DynamicJob.__init__))
        shared = kwargs | {
            "max_new_tokens": max_new_tokens,
            "min_new_tokens": min_new_tokens,
            "token_healing": token_healing,
            "decode_special_tokens": decode_special_tokens,
            "stop_conditions": stop_conditions,
            "filter_prefer_eos": filter_prefer_eos,
            "banned_strings": banned_strings,
        }
        encode = partial(self.tokenizer.encode, add_bos=add_bos, encode_special_tokens=encode_special_tokens)
        own = own_options(prompt, seed, filters=filters, embeddings=embeddings, gen_settings=gen_settings)
        jobs = [self._make_job(each, encode, **shared, **options) for each, options in own]
        last = self._run(jobs, abort_event)
        heads = ["" if completion_only else each if isinstance(each, str) else each[0] for each, _ in own]
        return None if last is None else self._answer(heads, last, not isinstance(prompt, list), return_last_results)

    def _answer(self, heads: list[str], last: list[dict[str, Any]], single: bool, return_last_results: bool) -> Any:
        """Return what :meth:`generate` does; ``heads``: texts before the outputs, ``last``: result of each job."""
        error = next((result["exception"] for result in last if "exception" in result), None)
        if error is not None and (self.texts_with_results or not return_last_results):
            raise error
        texts = [head + result["full_completion"] for head, result in zip(heads, last, strict=True)]
        answer, results = (texts[0], last[0]) if single else (texts, last)
        if not return_last_results:
            return answer
        return (answer, results) if self.texts_with_results else results

    def enqueue(self, job: ExLlamaV2DynamicJob | list[ExLlamaV2DynamicJob]) -> int | list[int]:
        """Add jobs to the queue; they run when :meth:`iterate` is called.

        Returns:
            The serial number of the job, or a list of them.

        Raises:
            ArgumentError: ``job`` is neither a job nor a list of jobs.
            GenerationError: a job can never fit in the cache, or was enqueued before, or the model is not loaded.
            FilterError: a filter follows another job that has not ended, or is given twice.
            BudgetError: the filters of a job allow no output within its ``max_new_tokens``.
        """
        with self.runtime.between_steps():
            if not isinstance(job, list):
                return self._enqueue(job)
            numbers = []
            try:
                for each in job:
                    numbers.append(self._enqueue(each))
            except BaseException:
                # Enqueue all jobs or none.
                for each in job[: len(numbers)]:
                    self.cancel(each)
                raise
            return numbers

    def iterate(self) -> list[dict[str, Any]]:
        """Run one step: start jobs, prefill chunks of prompts, and sample one or more tokens of each running job.

        Returns:
            Events, as dictionaries. All have ``job``, ``serial``, ``stage``, ``eos``, and ``identifier`` if the
            job has one. Stage ``"started"``: the job left the queue. Stage ``"prefill"``: ``curr_progress`` of
            ``max_progress`` prompt tokens are prefilled. Stage ``"streaming"``: a token was sampled; where they apply

            - ``text``: text that was released;
            - ``token_ids`` (1, n), ``token_probs`` (1, n), ``top_k_tokens`` and ``top_k_probs`` (1, n, k), ``logits``
              (1, n, padded vocabulary): its tokens, and the values that the job requested. They may be views of
              tensors of the whole batch: clone logits that are to be kept for long;
            - ``suppressed_text``, ``suppressed_tokens``: output with a banned string, which was rolled back.

            With ``eos`` true, the output is complete: ``eos_reason`` is one of ``"stop_token"`` (with
            ``eos_triggering_token_id`` and ``eos_triggering_token_str``), ``"stop_string"`` (with
            ``eos_triggering_string``), ``"max_new_tokens"``, ``"end_filter"``, and with ``exception``
            ``"filter_error"`` if a filter failed, ``"dead_end"`` if no token was allowed, and ``"error"``.
            ``full_completion`` is the output, ``held`` was generated but is not part of it; ``new_tokens``,
            ``prompt_tokens``, ``cached_pages``, ``cached_tokens`` are counts; ``time_enqueued``, ``time_prefill``,
            ``time_generate`` are seconds; ``accepted_draft_tokens`` and ``rejected_draft_tokens`` count draft tokens.
        """
        with self.runtime.between_steps():
            return self._refresh() + self._step()

    def _refresh(self) -> list[dict[str, Any]]:
        """Read the settings of all jobs; return the results of those that this ends, as theirs have become invalid."""
        results = []
        for job in self.active_jobs:
            try:
                job.refresh(self.tokenizer, self.padded_vocab_size)
            except Exception as error:
                self.cancel(job)
                results.append(job.failed(_typed(error), self.tokenizer, self.num_draft_tokens > 0))
        return results

    def _step(self) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        events = [(self._jobs[each.sequence], each) for each in self.runtime.step() if each.sequence in self._jobs]
        released = [event.update.released for _, event in events if event.update is not None]
        ids = of_each(released, attrgetter("id"))
        probs = of_each(released, attrgetter("prob")) if any(job.return_probs for job, _ in events) else repeat(None)
        for job, event in events:
            if event.update is not None:
                values = next(ids), next(probs)
                results.append(job.report(event.update, *values, self.tokenizer, self.num_draft_tokens > 0))
                if event.update.finish is not None:
                    del self._jobs[event.sequence]
            elif event.progress is not None:
                done, total = event.progress
                results.append(job.result("prefill", curr_progress=done, max_progress=total))
            else:
                results.append(job.result("started"))
        return results

    @property
    def unfinished_jobs(self) -> list[ExLlamaV2DynamicJob]:
        """Waiting and running jobs."""
        return [*self._jobs.values()]

    def num_remaining_jobs(self) -> int:
        """Return the number of waiting and running jobs."""
        return len(self._jobs)

    def cancel(self, job: ExLlamaV2DynamicJob) -> None:
        """Cancel a job, without a result; no-op if it is not in the generator."""
        with self.runtime.between_steps():
            if job.serial_number is not None and self._jobs.pop(job.sequence, None) is not None:
                self.runtime.cancel(job.sequence)

    def clear_queue(self) -> None:
        """Cancel all jobs."""
        with self.runtime.between_steps():
            for job in self.unfinished_jobs:
                self.cancel(job)

    def set_loras(self, loras: ExLlamaV2Lora | list[ExLlamaV2Lora] | None) -> None:
        """Use these adapters from now on, and clear the KV cache.

        Raises:
            ArgumentError: ``loras`` holds anything other than adapters.
            GenerationError: jobs are waiting or running, or an adapter is not attached to the model.
        """
        with self.runtime.between_steps():
            if self.num_remaining_jobs():
                raise GenerationError("adapters cannot be changed while there are jobs")
            adapters = ExLlamaV2Lora.listed(loras)
            check_adapters(self.model, adapters)
            self.current_loras = adapters
            self.runtime.allocator.reset()

    def reset_page_table(self) -> None:
        """Clear the KV cache.

        Raises:
            GenerationError: jobs are running.
        """
        with self.runtime.between_steps():
            self.runtime.allocator.reset()

    def defrag_cache(self) -> None:
        """Do nothing; kept for compatibility: pages are read as fast in any order."""

    def validate_cache(self) -> None:
        """Do nothing; kept for compatibility."""

    def print_page_list(self, short: bool = True) -> None:
        """Print one line for each page; with ``short`` only for those in use or cached."""
        for page in self.runtime.allocator.pages:
            if page.tokens or page.users or not short:
                print(f"page {page.index}: {len(page.tokens)} tokens, {page.users} users")

    def _make_proposer(self, max_ngram: int) -> Proposer | None:
        if not self.num_draft_tokens:
            return None
        if self.draft_model is None or self.draft_cache is None:
            return NgramProposer(max_ngram, self.num_draft_tokens)
        width = min(self.padded_vocab_size, self.tokenizer.get_vocab_size())
        return DraftModel(self.draft_model, self.draft_cache, self.page_size, width, self.num_draft_tokens)

    def _enqueue(self, job: ExLlamaV2DynamicJob) -> int:
        check_type("job", job, ExLlamaV2DynamicJob, "an ExLlamaV2DynamicJob, or a list of them")
        check_loaded(self.model, self.draft_model)
        request = job.request(self.tokenizer, self.padded_vocab_size, self.current_loras or (), self._time_limit)
        sequence = self.runtime.add(request)
        self._jobs[sequence] = job
        job.attach(sequence)
        return sequence.serial

    def _make_job(self, prompt: Prompt, encode: Callable[..., Any], **options: Any) -> ExLlamaV2DynamicJob:
        """Create the job of a prompt for :meth:`generate`."""
        check_type("a prompt", prompt, (str, tuple, list), "a str, or for guidance two of them")
        options["embeddings"] = embeddings_of(options["embeddings"])
        texts = (prompt,) if isinstance(prompt, str) else prompt
        return self.job_type([encode(text, embeddings=options["embeddings"]) for text in texts], **options)

    def _run(self, jobs: list[ExLlamaV2DynamicJob], abort_event: threading.Event | None) -> list[dict[str, Any]] | None:
        """Run jobs to completion; return the last result of each, or ``None`` if aborted."""
        with self._generating:
            self.enqueue(jobs)
            last: dict[ExLlamaV2DynamicJob, dict[str, Any]] = {}
            try:
                while self.num_remaining_jobs():
                    last |= {result["job"]: result for result in self.iterate() if result["eos"]}
                    if abort_event is not None and abort_event.is_set():
                        self.clear_queue()
                        return None
            finally:
                for job in jobs:
                    self.cancel(job)
        if any(job not in last for job in jobs):
            raise GenerationError("generate lost a job: another thread has cancelled it, or got its results of iterate")
        return [last[job] for job in jobs]


def _typed(error: Exception) -> Exception:
    """Return an error of invalid settings as one of this package."""
    if isinstance(error, ConstrainError):
        return error
    typed = GenerationError(f"the settings of the job are invalid: {type(error).__name__}: {error}")
    typed.__cause__ = error
    return typed
