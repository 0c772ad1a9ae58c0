"""Runs requests to completion: continuous batching over a paged KV cache.

A step starts sequences for which there are pages, prefills chunks of prompts, see :mod:`constrain.runtime.prefill`, and
decodes one or more tokens of running sequences, see :mod:`constrain.runtime.decode_loop`.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from time import monotonic, perf_counter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import torch

from constrain.errors import GenerationError
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2Lora
from constrain.model.lora import check_adapters
from constrain.model.prompt_images import prompt_images
from constrain.runtime.decode_loop import DecodeLoop, Outcome
from constrain.runtime.fair_lock import FairLock
from constrain.runtime.handle import Handle
from constrain.runtime.limits import check_request, check_room
from constrain.runtime.live_filters import LiveFilters
from constrain.runtime.mask_batch import native_workers
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.outputs import Finish, Update
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE, PageAllocator, chain_key
from constrain.runtime.prefill import Prefill
from constrain.runtime.request import Request
from constrain.runtime.sampler.batch_sampler import BatchSampler
from constrain.runtime.scheduler import Scheduler
from constrain.runtime.sequence import SequenceState
from constrain.runtime.smc.particles import Particles
from constrain.runtime.speculative.proposer import Proposer
from constrain.runtime.speculative.speculation import Speculation
from constrain.tokenizer import ExLlamaV2Tokenizer

#: Seconds to wait for a step at the end of the program: a filter may never return.
_END_TIMEOUT = 10
_runtimes: WeakSet[Runtime] = WeakSet()
_log = logging.getLogger(__name__)

#: Default number of prompt tokens of a forward pass on a CPU, where a pass takes seconds.
_CPU_CHUNK = 512
#: Seconds between checks of a thread that waits while another steps.
_WAIT_INTERVAL = 0.05


class Event(NamedTuple):
    """Progress of a sequence in a step.

    Attributes:
        sequence: the sequence, which left the queue, if neither of the following is given.
        update: the outcome of a token that was sampled.
        progress: number of prompt tokens that are cached, and number that have to be.
    """

    sequence: SequenceState
    update: Update | None = None
    progress: tuple[int, int] | None = None


class Runtime:
    """Runs requests on a model. Thread-safe: calls from different threads are serialised.

    Its tensors are changed in place by every caller, so none is made in the inference mode in which a caller may be.

    Attributes:
        model, cache, tokenizer: the model, its KV cache, and its tokenizer.
        runner: runs the forward passes.
        allocator: allocates the pages of the cache.
        scheduler: holds the waiting and running sequences.
        speculation: proposes draft tokens and forced text; its ``proposer`` may be replaced between steps.
        max_batch_size: maximum number of rows that run at a time.
        max_seq_len: maximum sequence length.
        decode_loop: decodes the running sequences.
        num_steps: number of steps so far.
    """

    def __init__(
        self,
        model: ExLlamaV2,
        cache: ExLlamaV2CacheBase,
        tokenizer: ExLlamaV2Tokenizer,
        *,
        page_size: int | None = None,
        max_batch_size: int = ModelRunner.max_rows,
        max_seq_len: int | None = None,
        max_chunk_size: int | None = None,
        proposer: Proposer | None = None,
        jump_forward: bool = True,
        use_background: bool = True,
    ) -> None:
        """
        Args:
            model, tokenizer: loaded.
            cache: its concatenated rows are divided into pages.
            page_size: positions per page, a divisor of the row length of the cache; by default 256, or less if that is
                no divisor.
            max_chunk_size: maximum number of prompt tokens in a step, between which others get their tokens and can be
                cancelled; by default as many as fit in a forward pass of the model, on a CPU at most 512.
            max_seq_len: maximum sequence length, at most the model's, which is the default.
            proposer: source of draft tokens for speculative decoding.
            jump_forward: run text that a constraint forces through the model in one forward pass.
            use_background: compute masks while the model runs.
        """
        self.model, self.cache, self.tokenizer = model, cache, tokenizer
        size = default_page_size(cache) if page_size is None else page_size
        self.runner = ModelRunner(model, cache, size)
        self.allocator = PageAllocator(self.runner.num_pages, size, self._paged_tensors)
        self.speculation = Speculation(self.runner, proposer, jump_forward)
        self.scheduler = Scheduler(self.speculation.drafts)
        self.max_batch_size = min(max_batch_size, ModelRunner.max_rows)
        longest = min(model.config.max_seq_len, self.runner.num_pages * size)  # attention has no more rotations
        self.max_seq_len = min(longest, max_seq_len or longest)
        with torch.inference_mode(False):
            sampler = BatchSampler(self.runner, min(tokenizer.get_vocab_size(), model.config.padded_vocab_size))
        workers = native_workers() if use_background else None
        self.decode_loop = DecodeLoop(self.runner, self.scheduler, self.speculation, sampler, workers)
        self._prefill = Prefill(self.runner, max_chunk_size or default_chunk_size(self.runner))
        self._particles = Particles(self.allocator)
        self.num_steps = 0
        self._serials = count()
        self._stepped_in: int | None = None  # id of a process
        self._lora_numbers: WeakKeyDictionary[ExLlamaV2Lora, int] = WeakKeyDictionary()
        self._next_lora = count(1)
        self._handles: dict[SequenceState, Handle] = {}
        self._events: list[Event] = []  # of steps that were not taken by `step`
        self._filters = LiveFilters()
        self._thread: threading.Thread | None = None
        self._is_ending = False
        _runtimes.add(self)
        self.lock = FairLock()
        self._progress = threading.Condition()  # notified after each step, and after what is done between steps
        _log.info("KV cache of %d pages of %d tokens", self.runner.num_pages, size)

    @property
    def has_work(self) -> bool:
        """Whether any sequence is waiting or running."""
        return bool(self.scheduler.waiting or self.scheduler.running)

    def add(self, request: Request, block_tables: Sequence[Sequence[int]] = (), position: int = 0) -> SequenceState:
        """Enqueue a request.

        Args:
            request: the request.
            block_tables: pages of the cache to use, for each prompt; by default they come from the allocator. The
                caller must ensure that they are not used elsewhere.
            position: number of leading tokens whose keys and values these pages already hold.

        Raises:
            GenerationError: the request can never fit, or its prompt has ids that the model does not know.
            BudgetError: every output that the constraint allows is longer than the request allows.
            FilterError: a filter follows another request that has not ended.
        """
        sequence = self._sequence_of(request, block_tables, position)
        self._enqueue(sequence)
        return sequence

    def submit(self, request: Request) -> Handle:
        """Enqueue a request, without waiting for a running step; waiting for its handle steps the runtime.

        Errors as for :meth:`add`.
        """
        sequence = self._sequence_of(request)
        sequence.has_handle = True
        handle = self._handles[sequence] = Handle(sequence, self)
        self._enqueue(sequence)
        if handle.done:  # perhaps by an error of a step before the sequence was enqueued
            self.cancel(sequence)
        return handle

    def _sequence_of(
        self, request: Request, block_tables: Sequence[Sequence[int]] = (), position: int = 0
    ) -> SequenceState:
        """Return the sequence of a request, whose filters follow it from now on; arguments and errors as for `add`."""
        self._check_process()
        filters = _filters_of(request)
        self._filters.add(filters)
        try:
            return self._checked_sequence(request, block_tables, position)
        except BaseException:
            self._filters.remove(filters)
            raise

    def _checked_sequence(
        self, request: Request, block_tables: Sequence[Sequence[int]], position: int
    ) -> SequenceState:
        limit = request.max_new_tokens
        if limit is None:
            limit = max(1, self.max_seq_len - max(ids.shape[-1] for ids in request.prompt))
        if not block_tables:
            check_room(request, limit, self.allocator, self.max_seq_len)
        check_request(request, limit, self.max_batch_size, self.model)
        traits, embeddings = self.model.config.arch.lm, request.embeddings
        images = [prompt_images(traits, ids[0].tolist(), embeddings) for ids in request.prompt if embeddings]
        with torch.inference_mode(False):
            width = self.model.config.padded_vocab_size
            sequence = SequenceState(request, limit, self.tokenizer, width, next(self._serials))
        for row, found in zip(sequence.rows, images, strict=False):
            row.images = found
            if found.end == len(row.sequence_ids):
                raise GenerationError("a prompt cannot end within an image of this model: let its end token follow")
        if block_tables:
            self._use_pages(sequence, block_tables, position)
        return sequence

    def _use_pages(self, sequence: SequenceState, block_tables: Sequence[Sequence[int]], position: int) -> None:
        with self.between_steps():
            for row, table in zip(sequence.rows, block_tables, strict=False):
                self.allocator.forget(table)
                row.start_at(table, position)

    def _enqueue(self, sequence: SequenceState) -> None:
        sequence.mark("enqueued")
        self.scheduler.add(sequence)
        _log.debug("request %d: %d tokens, at most %d more", sequence.serial, len(sequence), sequence.max_new_tokens)

    def _check_process(self) -> None:
        """Raise in a fork of the process that has run the model: it has none of the threads, and would wait forever."""
        if self._stepped_in not in (None, os.getpid()):
            raise GenerationError(
                "the model has run in the process that this one is a fork of: load it in each process, or start "
                "processes by the method 'spawn'"
            )

    def cancel(self, sequence: SequenceState) -> None:
        """Cancel a sequence without an event, and its handle; no-op if it is neither waiting nor running."""
        with self.between_steps():
            if (handle := self._handles.pop(sequence, None)) is not None:
                handle.end()
            self._events = [event for event in self._events if event.sequence is not sequence]
            if self.scheduler.remove(sequence):
                self._release(sequence)
                _log.debug("request %d cancelled after %d tokens", sequence.serial, sequence.new_tokens)

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """Hold the lock, so that no other thread steps; other work on the model's devices may be done meanwhile."""
        try:
            with self.lock:
                yield
        finally:
            self._notify()

    def _notify(self) -> None:
        with self._progress:
            self._progress.notify_all()

    def run_until(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Step, or wait while another thread steps, until a condition holds; return whether it does.

        Args:
            done: the condition; only a step or a cancellation may make it true.
            timeout: seconds after which to give up; ``None``: never.
        """
        deadline = math.inf if timeout is None else perf_counter() + timeout
        while not done():
            if perf_counter() >= deadline:
                return False
            with self._progress:  # so that no notification is missed: it follows the release of the lock
                if not self.lock.acquire(blocking=False):
                    self._progress.wait(_WAIT_INTERVAL)
                    continue
            try:
                if not done():
                    self._step_or_fail()
            finally:
                self.lock.release()
                self._notify()
        return True

    def run_in_background(self) -> None:
        """Step on a daemon thread as long as there are handles."""
        with self._progress:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="constrain-runtime", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._is_ending:
            with self._progress:
                if not self._handles:
                    self._thread = None
                    return
            try:
                self.run_until(lambda: self._is_ending or not self._handles)
            except Exception:  # every handle has received it
                _log.debug("the runtime failed", exc_info=True)

    def _end(self) -> None:
        """End the background thread, and cancel what is waiting or running."""
        self._is_ending = True
        if (thread := self._thread) is not None:
            thread.join(_END_TIMEOUT)
        for sequence in list(self._handles):
            self.cancel(sequence)

    def _step_or_fail(self) -> None:
        """Step, and keep the events without a handle for :meth:`step`; an error of the runtime fails every handle."""
        try:
            self._events = [event for event in self.step() if not event.sequence.has_handle]
        except BaseException as error:
            for sequence, handle in list(self._handles.items()):
                handle.fail(error)
                self.cancel(sequence)
            raise
        finally:
            self.num_steps += 1

    def step(self) -> list[Event]:
        """Start sequences that fit, prefill chunks of prompts, and decode one or more tokens of each sequence.

        Returns:
            The events of this step, and those of sequences without a handle from steps that were run for handles.
        """
        with self.lock, torch.inference_mode(False):
            self._stepped_in = os.getpid()
            events = [Event(sequence) for sequence in self.scheduler.admit(self._start)]
            failed = self._check_adapters()
            running = [each for each in self.scheduler.running if each.finish is None]
            waiting = [each for each in running if not each.is_prefilled]
            computed = self._prefill.step(waiting, self.speculation.proposer)
            events += [Event(each, progress=_progress(each)) for each in computed]
            ready = [each for each in running if each.is_prefilled] if waiting else running
            for sequence, update in [*failed, *self._particles.step(ready, self.decode_loop.step)]:
                sequence.mark("first_token")
                if update.finish is not None and self.scheduler.remove(sequence):
                    self._release(sequence)
                    _log_finish(sequence, update.finish)
                self._deliver(sequence, update)
                events.append(Event(sequence, update))
            earlier, self._events = self._events, []
            return earlier + events

    def _check_adapters(self) -> list[Outcome]:
        """End the running sequences whose adapters have been unloaded; return their updates."""
        running = self.scheduler.running
        lost = [each for each in running if not all(lora.loaded for lora in each.request.loras)]
        updates = [(each, each.guarded(check_adapters, self.model, each.request.loras)) for each in lost]
        return [(sequence, update) for sequence, update in updates if update is not None]

    def _deliver(self, sequence: SequenceState, update: Update) -> None:
        handle = self._handles.get(sequence) if update.finish is None else self._handles.pop(sequence, None)
        if handle is not None:
            handle.push(update)

    def prefill(self, sequence: SequenceState, aborted: Callable[[], bool] = lambda: False) -> None:
        """Prefill a sequence without sampling yet; ``aborted`` is called after each chunk."""
        with self.lock, torch.inference_mode(False):
            self.scheduler.admit(self._start)
            while sequence.is_running and not sequence.is_prefilled and not aborted():
                self._prefill.step([sequence], self.speculation.proposer)

    def flush(self, sequence: SequenceState) -> None:
        """Discard the in-flight token of a sequence, so that it is sampled again under new conditions."""
        with self.lock:
            sequence.epoch += 1

    # Starting and ending

    def _paged_tensors(self) -> list[torch.Tensor]:
        proposer = self.speculation.proposer
        return self.runner.paged_tensors() + (proposer.paged_tensors() if proposer is not None else [])

    def _start(self, sequence: SequenceState) -> bool:
        """Allocate pages for a sequence; return whether it fits."""
        rows, request = sequence.rows, sequence.request
        if self.scheduler.num_rows + request.num_rows > self.max_batch_size:
            return False
        if not sequence.is_running:
            for row in rows:
                root = self._prefix_root(request.loras, row.images.shift)
                if not row.start(self.allocator, sequence.max_new_tokens, root, request.particles):
                    for other in rows:
                        other.stop()
                    return False
        sequence.mark("started")
        return True

    def _prefix_root(self, loras: Sequence[ExLlamaV2Lora], shift: int) -> bytes:
        """Return the root of page keys, which separates prefixes of different adapters, or with raised positions."""
        numbers = [self._lora_numbers.setdefault(lora, next(self._next_lora)) for lora in loras]
        # Numbers of adapters are positive.
        marks = [-shift, *numbers] if shift else numbers
        return chain_key(b"", marks) if marks else b""

    def _release(self, sequence: SequenceState) -> None:
        self._particles.drop(sequence)
        for row in sequence.rows:
            row.stop()
        sequence.constraint.close()
        self._filters.remove(_filters_of(sequence.request))


def _filters_of(request: Request) -> Sequence[Any]:
    return () if request.constraint is None else request.constraint.filters


def _progress(sequence: SequenceState) -> tuple[int, int]:
    return sum(row.position for row in sequence.rows), sum(row.prompt_end for row in sequence.rows)


def _log_finish(sequence: SequenceState, finish: Finish) -> None:
    seconds = monotonic() - sequence.times["enqueued"]
    _log.debug("request %d: %s after %d tokens, %.3f s", sequence.serial, finish.reason, sequence.new_tokens, seconds)


def default_page_size(cache: ExLlamaV2CacheBase) -> int:
    """Return the default page size: the greatest common divisor of 256 and the row length of a cache.

    If that is too small for the attention kernels, a page is a whole row.
    """
    size = math.gcd(cache.max_seq_len, PAGED_PAGE_SIZE)
    return size if size >= 16 else cache.max_seq_len


def default_chunk_size(runner: ModelRunner) -> int:
    """Return the default number of prompt tokens of a forward pass: whole pages, on a CPU few of them."""
    longest = runner.model.config.max_input_len
    longest = longest if runner.is_asynchronous else min(longest, _CPU_CHUNK)
    return max(runner.page_size, longest // runner.page_size * runner.page_size)


@atexit.register
def _end_runtimes() -> None:
    """Leave no work to the end of the interpreter, when torch aborts the process if a thread or a generator uses it."""
    for runtime in list(_runtimes):
        runtime._end()
