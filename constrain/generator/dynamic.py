"""``ExLlamaV2DynamicGenerator``: many texts at once, over one cache that is divided into pages."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from constrain.arguments import check_count, check_type
from constrain.errors import ConstrainError, GenerationError
from constrain.generator.draft import Drafter, ModelDrafter, NgramDrafter
from constrain.generator.generate import Prompt, failure, make_jobs, spread
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.generator.limits import check_event, check_generator, check_job, check_numbers, check_parts
from constrain.generator.pages import PAGED_PAGE_SIZE, PageTable
from constrain.generator.results import ids_of_each
from constrain.generator.runner import PagedRunner
from constrain.generator.scheduler import Scheduler
from constrain.generator.settings import Settings
from constrain.model import ExLlamaV2Lora

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2MMEmbedding
    from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2DynamicGenerator:
    """Generates any number of texts at the same time.

    Jobs share one cache: it is divided into pages of 256 tokens, equal beginnings of prompts share pages, and what
    finished jobs leave behind is reused where a later prompt begins with it. A job gives the same text whatever runs
    beside it. Not to be shared by threads.

    Attributes:
        model, cache, draft_model, draft_cache, tokenizer: as given.
        max_batch_size: most sequences that run at a time.
        max_seq_len: longest sequence.
        max_chunk_size: most tokens of a prompt that go through the model between two tokens of other jobs.
        max_total_tokens: tokens that the cache holds.
        page_size, max_pages: tokens in a page, and number of pages.
        padded_vocab_size: number of logits.
        num_draft_tokens: number of tokens that are drafted at a time; 0 without drafts.
        current_loras: adapters in use; ``None`` before :meth:`set_loras`.
    """

    #: Class of the jobs that :meth:`generate` makes.
    job_type: type[ExLlamaV2DynamicJob] = ExLlamaV2DynamicJob

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
        """Make a generator.

        Args:
            model: what it runs on.
            tokenizer: of the model.
            cache: has one row, of a multiple of 256 positions for all jobs together; what is in it is lost.
            max_batch_size: most sequences that run at a time; by default as many as a pass of the model takes.
            max_seq_len: longest sequence; by default the model's.
            max_chunk_size: most tokens of a prompt that go through the model at once, a multiple of 256.
            max_q_size: most tokens of a sequence that are checked in a pass.
            draft_model, draft_cache: a smaller model with the same vocabulary, which guesses tokens; its cache is as
                large as the other.
            num_draft_tokens: tokens that are guessed at a time.
            use_ngram_draft: guess by what occurred before in the same text, instead of by a model.
            max_ngram: most tokens that are compared for that.
            max_sampling_threads, min_sampling_threads: accepted for compatibility.
            paged: divide the cache into pages. Otherwise one sequence runs at a time.
            filter_background_eval: evaluate filters while the model runs.
            jump_forward: take text that filters leave no choice about through the model in one pass.
            filter_time_limit: seconds that a filter that is not built in may take for a token before its job ends with
                an error; ``None``: any time.
            kwargs: ignored, for compatibility.

        Raises:
            ArgumentError: an argument is of the wrong type, or out of its bounds.
            GenerationError: the arguments do not fit together.
        """
        check_parts(model, cache, tokenizer)
        if draft_model is not None and draft_cache is not None:
            check_parts(draft_model, draft_cache, tokenizer)
        sizes = {"max_batch_size": max_batch_size, "max_seq_len": max_seq_len, "max_chunk_size": max_chunk_size}
        check_numbers(sizes, max_q_size, max_ngram, num_draft_tokens, filter_time_limit)
        config, size = model.config, PAGED_PAGE_SIZE if paged else cache.max_seq_len
        whole_pages = max(size, config.max_input_len // size * size)
        self.model, self.cache, self.tokenizer = model, cache, tokenizer
        self.draft_model, self.draft_cache = draft_model, draft_cache
        self.max_batch_size = max_batch_size or max(1, config.max_input_len * config.max_batch_size // max_q_size)
        self.max_seq_len = max_seq_len or config.max_seq_len
        self.max_chunk_size = max_chunk_size or (whole_pages if paged else config.max_input_len)
        self.max_total_tokens = cache.max_seq_len
        self.page_size, self.max_pages = size, cache.max_seq_len // size
        self.padded_vocab_size = config.padded_vocab_size
        self.num_draft_tokens = num_draft_tokens if draft_model is not None or use_ngram_draft else 0
        self.current_loras: list[ExLlamaV2Lora] | None = None
        check_generator(self, max_q_size, use_ngram_draft, paged)
        self._table = PageTable([cache] if draft_cache is None else [cache, draft_cache], size)
        self._scheduler = Scheduler()
        self._jobs_enqueued = 0
        self._time_limit = filter_time_limit
        self._runner = PagedRunner(
            model,
            cache,
            self._table,
            self._make_drafter(max_ngram if use_ngram_draft else 0),
            self.num_draft_tokens,
            _filter_pool() if filter_background_eval else None,
            jump_forward,
            (tokenizer.get_vocab_size(), self.padded_vocab_size),
        )

    @property
    def pending_jobs(self) -> list[ExLlamaV2DynamicJob]:
        """Jobs that wait."""
        return self._scheduler.pending

    @property
    def active_jobs(self) -> list[ExLlamaV2DynamicJob]:
        """Jobs that run."""
        return self._scheduler.active

    def warmup(self) -> None:
        """Generate a little, so that the first job has nothing left to initialise; then forget it."""
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
        """Generate a text for each prompt, and wait for them.

        Args:
            prompt: a prompt, or a list of them. For guidance each is a pair: with the condition and without it.
            gen_settings: how tokens are drawn; settings for all prompts, or a list with an entry for each.
            seed: makes the draws reproducible; the prompts have this number and those that follow it.
            encode_special_tokens: the text of special tokens in a prompt means these tokens.
            add_bos: put the beginning-of-sequence token before the prompts.
            abort_event: set it (from another thread) to end early.
            completion_only: return the texts without the prompts.
            filters: constraints on the text; with a list of prompts, a list of filters (or ``None``) for each.
            embeddings: what aliases in the prompt stand for; with a list of prompts, a list (or ``None``) for each.
            return_last_results: return the last result of each job instead of its text; see :meth:`iterate`.
            kwargs: further arguments of each :class:`ExLlamaV2DynamicJob`, which also says what those are that are not
                named here.

        Returns:
            A text or a result; a list of them for a list of prompts. ``None`` where it was aborted; then all jobs of
            the generator are gone.

        Raises:
            ArgumentError: an argument is of the wrong type, or out of its bounds.
            GenerationError: the arguments do not fit together, or into model and cache.
            ConstrainError: what ended a text before its time, where it is not returned as part of a result.
        """
        if seed is not None:
            check_count("seed", seed, least=None)
        check_event(abort_event)
        single = not isinstance(prompt, list)
        prompts: list[Prompt] = [prompt] if not isinstance(prompt, list) else prompt
        settings = gen_settings if isinstance(gen_settings, list) else [gen_settings] * len(prompts)
        each = {
            "filters": spread("filters", filters, prompts, single),
            "embeddings": spread("embeddings", embeddings, prompts, single),
            "gen_settings": spread("gen_settings", settings, prompts, False),
            "seed": [None if seed is None else seed + number for number in range(len(prompts))],
        }
        jobs = make_jobs(
            self.job_type,
            self.tokenizer,
            prompts,
            each,
            add_bos,
            encode_special_tokens,
            max_new_tokens=max_new_tokens,
            min_new_tokens=min_new_tokens,
            token_healing=token_healing,
            decode_special_tokens=decode_special_tokens,
            stop_conditions=stop_conditions,
            filter_prefer_eos=filter_prefer_eos,
            banned_strings=banned_strings,
            **kwargs,
        )
        last = self._run(jobs, abort_event)
        if last is None:
            return None
        error = failure(last)
        if error is not None and not return_last_results:
            raise error
        return self._answer(prompts, last, single, completion_only, return_last_results)

    def enqueue(self, job: ExLlamaV2DynamicJob | list[ExLlamaV2DynamicJob]) -> int | list[int]:
        """Give jobs to the generator; they run when :meth:`iterate` is called.

        Returns:
            The serial number of the job, or a list of those of the jobs.

        Raises:
            ArgumentError: something is no job.
            GenerationError: there can never be room for a job, or it was enqueued before.
            BudgetError: no text that a filter allows has as few tokens as the job.
        """
        if not isinstance(job, list):
            return self._enqueue(job)
        numbers = []
        try:
            for each in job:
                numbers.append(self._enqueue(each))
        except ConstrainError:
            # All of them or none.
            for each in job[: len(numbers)]:
                self.cancel(each)
            raise
        return numbers

    def iterate(self) -> list[dict[str, Any]]:
        """Start jobs that there is room for, take prompts on by a part, and texts by a token or more.

        Returns:
            What happened, as dictionaries. All have ``job``, ``serial``, ``stage``, ``eos``, and ``identifier`` if the
            job has one. Stage ``"started"``: the job left the queue. Stage ``"prefill"``: ``curr_progress`` of
            ``max_progress`` tokens of the prompt are done. Stage ``"streaming"``: a token was drawn; what there is of

            - ``text``: text that was released;
            - ``token_ids`` (1, n), ``token_probs`` (1, n), ``top_k_tokens`` and ``top_k_probs`` (1, n, k), ``logits``
              (1, n, padded vocabulary): its tokens, and what was asked for of them;
            - ``suppressed_text``, ``suppressed_tokens``: a text with a banned string, which was taken back.

            With ``eos`` true, the text is complete: ``eos_reason`` is one of ``"stop_token"`` (with
            ``eos_triggering_token_id`` and ``eos_triggering_token_str``), ``"stop_string"`` (with
            ``eos_triggering_string``), ``"max_new_tokens"``, ``"end_filter"``, and with ``exception``
            ``"filter_error"`` where a filter failed, ``"dead_end"`` where no token was left to go on with, and
            ``"error"``. ``full_completion`` is the text, ``held`` what was generated but is no part of it;
            ``new_tokens``, ``prompt_tokens``, ``cached_pages``, ``cached_tokens`` count; ``time_enqueued``,
            ``time_prefill``, ``time_generate`` are seconds; ``accepted_draft_tokens`` and ``rejected_draft_tokens``
            count drafts.
        """
        results = [job.result("started") for job in self._scheduler.start(self._start)]
        ready = []
        for job in self.active_jobs:
            if not job.ready:
                results += self._prefill(job)
            if job.ready:
                ready.append(job)
        outcomes = self._runner.decode(ready)
        ids_of = ids_of_each([outcome.released for _, outcome in outcomes])
        for (job, outcome), ids in zip(outcomes, ids_of, strict=True):
            job.mark("first_token")
            results.append(job.report(outcome, ids, self.tokenizer, self.num_draft_tokens > 0))
            if outcome.end is not None:
                self._forget(job)
        return results

    def num_remaining_jobs(self) -> int:
        """Number of jobs that wait or run."""
        return len(self.pending_jobs) + len(self.active_jobs)

    def cancel(self, job: ExLlamaV2DynamicJob) -> None:
        """Take a job back, without a result; nothing happens to one that is not there."""
        if job in self.pending_jobs or job in self.active_jobs:
            self._forget(job)

    def clear_queue(self) -> None:
        """Take all jobs back."""
        for job in [*self.pending_jobs, *self.active_jobs]:
            self._forget(job)

    def set_loras(self, loras: ExLlamaV2Lora | list[ExLlamaV2Lora] | None) -> None:
        """Use these adapters from now on; what is cached without them is forgotten.

        Raises:
            ArgumentError: something is no adapter.
            GenerationError: there are jobs.
        """
        if self.num_remaining_jobs():
            raise GenerationError("adapters cannot be changed while there are jobs")
        self.current_loras = ExLlamaV2Lora.listed(loras)
        self._runner.loras = self.current_loras
        self._table.reset()

    def reset_page_table(self) -> None:
        """Forget all that is cached.

        Raises:
            GenerationError: jobs are running.
        """
        self._table.reset()

    def defrag_cache(self) -> None:
        """Lay cached texts out in one piece each; happens by itself whenever the last job is done.

        Raises:
            GenerationError: jobs are running.
        """
        self._table.defragment()

    def validate_cache(self) -> None:
        """Nothing to do; here for compatibility."""

    def print_page_list(self, short: bool = True) -> None:
        """Print what the pages hold, one a line; with ``short`` only those that hold something."""
        for page in self._table.pages:
            if page.tokens or page.users or not short:
                print(f"page {page.index}: {len(page.tokens)} tokens, {page.users} users")

    def _make_drafter(self, max_ngram: int) -> Drafter | None:
        if max_ngram:
            return NgramDrafter(max_ngram)
        if self.draft_model is None or self.draft_cache is None:
            return None
        return ModelDrafter(self.draft_model, self.draft_cache, self._table, self.padded_vocab_size)

    def _enqueue(self, job: ExLlamaV2DynamicJob) -> int:
        check_type("job", job, ExLlamaV2DynamicJob, "an ExLlamaV2DynamicJob, or a list of such")
        check_job(self, job)
        job.prepare(self.tokenizer, self.padded_vocab_size, self._time_limit, self._jobs_enqueued)
        self._jobs_enqueued += 1
        self.pending_jobs.append(job)
        return self._jobs_enqueued - 1

    def _start(self, job: ExLlamaV2DynamicJob) -> bool:
        """Give a job its pages, if there is room for it."""
        if self._scheduler.running + len(job.sequences) > self.max_batch_size or not job.start(self._table):
            return False
        job.mark("prefill")
        return True

    def _prefill(self, job: ExLlamaV2DynamicJob) -> list[dict[str, Any]]:
        computed = self._runner.prefill(job, self.max_chunk_size)
        return [job.progress()] if computed or job.copied else []

    def _forget(self, job: ExLlamaV2DynamicJob) -> None:
        job.stop(self._table)
        self._scheduler.remove(job)
        if not self.num_remaining_jobs():
            self._table.defragment()

    def _run(self, jobs: list[ExLlamaV2DynamicJob], abort_event: threading.Event | None) -> list[dict[str, Any]] | None:
        """The last result of each job, or ``None`` where it was aborted."""
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
        return [last[job] for job in jobs]

    def _answer(
        self, prompts: list[Prompt], last: list[dict[str, Any]], single: bool, completion_only: bool, results: bool
    ) -> Any:
        """What :meth:`generate` returns."""
        if results:
            return last[0] if single else last
        heads = ["" if completion_only else each if isinstance(each, str) else each[0] for each in prompts]
        texts = [head + result["full_completion"] for head, result in zip(heads, last, strict=True)]
        return texts[0] if single else texts


def _filter_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(16, (os.cpu_count() or 1) + 1), thread_name_prefix="constrain-filter")
