"""The loop that takes requests to their end: continuous batching over a paged KV cache.

A step takes one token, or several that are proposed, of each running sequence through the model. Where passes run on a
GPU they are queued ahead of the host: while a pass runs, the host accepts the tokens of the previous one, and
constraints compute the masks of the next::

    GPU    layers, step n           | head, masks, sample n | layers, step n+1 ...
    host   accept n-1: output,      | queue sampling of n   | accept n ...
           stop strings; masks of n |                       |

What was computed after the end of a sequence, or after a proposal that was not sampled, is discarded.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from time import perf_counter, sleep
from weakref import WeakKeyDictionary

import torch

from constrain.errors import BudgetError
from constrain.filters.adapter import new_step
from constrain.kernels.graphs import Event as DeviceEvent
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2Lora
from constrain.runtime.batch import BatchRow
from constrain.runtime.constraints import MaskWorkers
from constrain.runtime.events import SampledToken, Update
from constrain.runtime.handle import Handle
from constrain.runtime.in_flight import InFlightStep, ScheduledSequence
from constrain.runtime.limits import check_request
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.page_table import PAGED_PAGE_SIZE, PageAllocator
from constrain.runtime.request import Request
from constrain.runtime.sampler.batch_sampler import BatchSampler, SampledBatch, SamplingRow
from constrain.runtime.sampler.params import GREEDY, TokenBias
from constrain.runtime.scheduler import Scheduler
from constrain.runtime.sequence import SequenceState
from constrain.runtime.speculation import MAX_FORCED, DraftModel, Proposer, max_proposals
from constrain.tokenizer import ExLlamaV2Tokenizer

#: Keys of digests are at most this long.
_MAX_ROOT_BYTES = 64
#: At most this share of a batch may skip a step because their masks are late.
_LATE_SHARE = 1 / 8
#: Seconds that late masks are waited for nevertheless, since a step costs more; and between looks at which are ready.
_PATIENCE, _POLL_INTERVAL = 5e-4, 5e-5
#: Seconds after which a thread that waits for another to step looks again.
_WAIT_INTERVAL = 0.05


@dataclass(frozen=True)
class Event:
    """Something that happened to a sequence.

    Attributes:
        sequence: the sequence.
        stage: ``"started"``: it left the queue; ``"prefill"``: a part of its prompt is cached; ``"streaming"``: a token
            was sampled.
        update: the outcome of the token.
        progress: tokens of the prompt that are cached, and how many have to be.
    """

    sequence: SequenceState
    stage: str
    update: Update | None = None
    progress: tuple[int, int] = (0, 0)


class Runtime:
    """Runs requests on a model. Thread-safe: calls of different threads take turns.

    Attributes:
        model, cache, tokenizer: what it runs on.
        runner: runs the passes.
        allocator: hands out the pages of the cache.
        scheduler: the sequences that wait and run.
        max_batch_size: most rows that run at a time.
        max_seq_len: longest sequence.
        max_chunk_size: most tokens of a prompt that go through the model between two tokens of other sequences.
        proposer: proposes tokens for speculative decoding; ``None``: nobody does.
        num_draft_tokens: most tokens that it is asked for.
        jump_forward: whether text that a constraint leaves no choice about goes through the model in one pass.
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
        num_draft_tokens: int = 0,
        jump_forward: bool = True,
        use_background: bool = True,
    ) -> None:
        """
        Args:
            model: loaded.
            cache: its rows, one after the other, are divided into pages.
            tokenizer: of the model.
            page_size: positions of a page, which divides the rows of the cache; by default 256, or less where they are
                no multiple of that.
            max_batch_size, max_chunk_size, proposer, num_draft_tokens, jump_forward: see the attributes.
            max_seq_len: longest sequence; by default the model's.
            use_background: compute masks while the model runs.
        """
        self.model, self.cache, self.tokenizer = model, cache, tokenizer
        size = default_page_size(cache) if page_size is None else page_size
        self.runner = ModelRunner(model, cache, size)
        self.allocator = PageAllocator(self.runner.num_pages, size, self._paged_tensors)
        self.scheduler = Scheduler()
        self.max_batch_size = min(max_batch_size, ModelRunner.max_rows)
        self.max_seq_len = min(model.config.max_seq_len if max_seq_len is None else max_seq_len, cache_length(cache))
        self.max_chunk_size = max_chunk_size or max(size, model.config.max_input_len // size * size)
        self.num_draft_tokens, self.jump_forward = num_draft_tokens, jump_forward
        self.proposer = proposer
        self._sampler = BatchSampler(self.runner, min(tokenizer.get_vocab_size(), model.config.padded_vocab_size))
        self._workers = MaskWorkers() if use_background else None
        self._in_flight = InFlightStep()
        self._num_added = 0
        self._next_loras: tuple[ExLlamaV2Lora, ...] = ()
        self._lora_numbers: WeakKeyDictionary[ExLlamaV2Lora, int] = WeakKeyDictionary()
        self._counter = count(1)
        self._handles: dict[SequenceState, Handle] = {}
        self._num_submitting = 0
        self._thread: threading.Thread | None = None
        self.lock = threading.RLock()
        #: Notified after each step.
        self._progress = threading.Condition()

    @property
    def has_work(self) -> bool:
        """Whether sequences wait or run."""
        return bool(self.scheduler.waiting or self.scheduler.running)

    def add(self, request: Request, block_tables: Sequence[Sequence[int]] = (), position: int = 0) -> SequenceState:
        """Put a request into the queue.

        Args:
            request: what is asked for.
            block_tables: pages of the cache to use, for each prompt; by default the allocator gives them. The caller
                sees to it that nobody else uses them.
            position: number of first tokens whose keys and values these pages hold already.

        Raises:
            GenerationError: there can never be room for the request, or its prompt is not one of this model.
            BudgetError: no output that the constraint allows has as few tokens as the request.
        """
        check_request(
            request,
            page_size=self.allocator.page_size,
            num_pages=None if block_tables else len(self.allocator.pages),
            max_batch_size=self.max_batch_size,
            max_seq_len=self.max_seq_len,
            vocab_size=self.model.config.vocab_size,
        )
        check_budget(request)
        with self.lock:
            width = self.model.config.padded_vocab_size
            sequence = SequenceState(request, self.tokenizer, width, self._num_added)
            self._num_added += 1
            for row, table in zip(sequence.rows, block_tables, strict=False):
                row.start_at(table, position)
            sequence.mark("enqueued")
            self.scheduler.add(sequence)
            return sequence

    def submit(self, request: Request) -> Handle:
        """Put a request into the queue; whoever waits for the handle steps the runtime.

        Raises:
            GenerationError: there can never be room for the request, or its prompt is not one of this model.
            BudgetError: no output that the constraint allows has as few tokens as the request.
        """
        self._num_submitting += 1
        with self.lock:
            self._num_submitting -= 1
            sequence = self.add(request)
            handle = self._handles[sequence] = Handle(sequence, self)
        with self._progress:
            self._progress.notify_all()
        return handle

    def cancel(self, sequence: SequenceState) -> None:
        """Drop a sequence, without an event; nothing happens to one that is not there."""
        with self.lock:
            self._handles.pop(sequence, None)
            if self.scheduler.remove(sequence):
                self._release(sequence)

    def run_until(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Step, or wait while another thread does, until a condition holds; returns whether it does.

        Args:
            done: the condition; only a step, a new request or a cancellation may make it true.
            timeout: seconds after which to give up; ``None``: never.
        """
        deadline = math.inf if timeout is None else perf_counter() + timeout
        while not done():
            if perf_counter() >= deadline:
                return False
            if not self.lock.acquire(blocking=False):
                with self._progress:
                    self._progress.wait(_WAIT_INTERVAL)
                continue
            try:
                if not done():
                    self._step_or_fail()
            finally:
                self.lock.release()
            while self._num_submitting:  # locks are not fair: whoever steps would take it again at once
                sleep(_POLL_INTERVAL)
        return True

    def run_in_background(self) -> None:
        """Have a daemon thread step as long as there is work."""
        with self._progress:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="constrain-runtime", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._progress:
                if not self.has_work:
                    self._thread = None
                    return
            self.run_until(lambda: not self.has_work)

    def _step_or_fail(self) -> None:
        """Step; an error of the runtime itself is handed to everybody who waits."""
        try:
            self.step()
        except BaseException as error:
            for sequence, handle in list(self._handles.items()):
                handle.fail(error)
                self.cancel(sequence)
            raise
        finally:
            with self._progress:
                self._progress.notify_all()

    def step(self) -> list[Event]:
        """Start sequences for which there is room, compute parts of prompts, and sample a token or more of each."""
        with self.lock:
            events = [Event(sequence, "started") for sequence in self.scheduler.start(self._start)]
            for sequence in self.scheduler.running:
                if not sequence.is_prefilled and self._prefill(sequence):
                    rows = sequence.rows
                    progress = sum(row.position for row in rows), sum(row.prompt_end for row in rows)
                    events.append(Event(sequence, "prefill", progress=progress))
            events += self._decode()
            for event in events:
                if event.update is not None:
                    event.sequence.mark("first_token")
                    if event.update.finish is not None and self.scheduler.remove(event.sequence):
                        self._release(event.sequence)
                    self._deliver(event.sequence, event.update)
            return events

    def _deliver(self, sequence: SequenceState, update: Update) -> None:
        handle = self._handles.get(sequence) if update.finish is None else self._handles.pop(sequence, None)
        if handle is not None:
            handle.push(update)

    def prefill(self, sequence: SequenceState, aborted: Callable[[], bool] = lambda: False) -> None:
        """Compute the prompt of a sequence without sampling yet; ``aborted`` is asked after each part of it."""
        with self.lock:
            self.scheduler.start(self._start)
            while sequence.is_running and not sequence.is_prefilled and not aborted():
                self._prefill(sequence)

    def flush(self, sequence: SequenceState) -> None:
        """Drop the token of a sequence that is in flight: it is to be sampled again, under other conditions."""
        with self.lock:
            sequence.epoch += 1

    # Starting and ending

    def _paged_tensors(self) -> list[torch.Tensor]:
        draft = [self.proposer.runner] if isinstance(self.proposer, DraftModel) else []
        return [tensor for runner in (self.runner, *draft) for tensor in runner.paged_tensors()]

    def _start(self, sequence: SequenceState) -> bool:
        """Give a sequence its pages, if there is room for it."""
        rows, request = sequence.rows, sequence.request
        if self.scheduler.num_rows + len(rows) > self.max_batch_size:
            return False
        if not sequence.is_running:
            root = self._prefix_root(request.loras)
            limit = self.max_seq_len - len(sequence) if request.max_new_tokens is None else request.max_new_tokens
            for number, row in enumerate(rows):
                if not row.start(self.allocator, limit, root):
                    for other in rows[:number]:
                        other.stop(self.allocator)
                    return False
        sequence.mark("started")
        return True

    def _prefix_root(self, loras: Sequence[ExLlamaV2Lora]) -> bytes:
        """Tells apart prefixes that were computed with different adapters."""
        numbers = [self._lora_numbers.setdefault(lora, next(self._counter)) for lora in loras]
        return array("q", numbers).tobytes()[:_MAX_ROOT_BYTES]

    def _release(self, sequence: SequenceState) -> None:
        owned = any(row.pages for row in sequence.rows)
        for row in sequence.rows:
            row.stop(self.allocator)
        sequence.close()
        if owned and not self.has_work:
            self.allocator.defragment()

    def _prefill(self, sequence: SequenceState) -> bool:
        """Take a part of a prompt through the model; returns whether any of it was computed, or copied."""
        limit, computed, request = self.max_chunk_size, False, sequence.request
        for row in sequence.rows:
            row.skip_cached(self.allocator)
            chunk = row.prompt_chunk(self.allocator.page_size, limit)
            if chunk is None:
                continue
            self.runner.prefill(chunk, request.loras, request.embeddings)
            drafts = self.proposer is not None and len(sequence.rows) == 1 and not request.embeddings
            if self.proposer is not None and drafts and row.draft_position == chunk.past:
                self.proposer.prefill(chunk)
                row.draft_position = chunk.end
            row.computed(self.allocator, chunk.end, chunk.end)
            row.skip_cached(self.allocator)
            limit -= len(chunk.ids)
            computed = True
            if limit <= 0:
                break
        return computed or any(row.copied for row in sequence.rows)

    # A step

    def _decode(self) -> list[Event]:
        new_step()
        events = self._begin_constraints()
        previous, step = self._in_flight, self._launch()
        if previous.scheduled and not step.scheduled:
            # Whoever runs has to know the tokens in flight first.
            events += self._collect(previous)
            self._in_flight = previous = InFlightStep()
            step = self._launch()
        self._in_flight = step
        freely = step.samples_freely
        if freely:
            for each in step.scheduled:
                each.masks_after = [None] * (len(each.rows[0].ids) - 1)
            self._sample(step)
        events += self._collect(previous)
        if not freely:
            # Those that wait for a token to be generated anew: it may have come just now.
            events += self._begin_constraints()
            events += self._await_masks(step)
            self._sample(step)
        if not self.runner.is_asynchronous:
            self._in_flight = InFlightStep()
            events += self._collect(step)
        return events

    def _begin_constraints(self) -> list[Event]:
        updates = [(each, each.begin()) for each in self.scheduler.running if each.is_prefilled]
        return [Event(sequence, "streaming", update) for sequence, update in updates if update is not None]

    def _launch(self) -> InFlightStep:
        """Queue a pass of the running sequences."""
        scheduled = self._schedule()
        if not scheduled:
            return InFlightStep()
        self._propose(scheduled)
        self._prefetch(each for each in scheduled if each.ahead == 0)
        rows = [row for each in scheduled for row in each.rows]
        output = self.runner.decode(rows, scheduled[0].sequence.request.loras)
        starts = iter(output.starts)
        for each in scheduled:
            each.place, *_ = [next(starts) for _ in each.rows]
        return InFlightStep(scheduled, output)

    def _schedule(self) -> list[ScheduledSequence]:
        """The sequences of the next pass: those that share adapters, as many as have room."""
        ready = [each for each in self.scheduler.running if each.is_prefilled and each.finish is None]
        groups = list(dict.fromkeys(each.request.loras for each in ready))
        if len(groups) > 1:
            turn = groups.index(self._next_loras) if self._next_loras in groups else 0
            self._next_loras = groups[(turn + 1) % len(groups)]
            ready = [each for each in ready if each.request.loras == groups[turn]]
        scheduled: list[ScheduledSequence] = []
        room = self.runner.max_rows
        for sequence in ready:
            if len(sequence.rows) <= room and (each := self._schedule_one(sequence)) is not None:
                scheduled.append(each)
                room -= len(sequence.rows)
        return scheduled

    def _schedule_one(self, sequence: SequenceState) -> ScheduledSequence | None:
        """What takes a sequence on from where it will be when the step in flight turns out as expected."""
        before = self._in_flight.of.get(sequence)
        going = before if before is not None and before.continues else None
        ahead = 0 if going is None else 1 + len(going.proposals)
        if not sequence.may_continue(ahead):
            return None
        if going is not None and (going.is_drafted or self._waits_for_tokens(sequence)):
            return None
        past = len(sequence) - 1 + ahead
        token = (0,) if going is not None else (sequence.last_token,)
        source = -1 if going is None else going.place + ahead - 1
        rows = [BatchRow(token, past, sequence.rows[0].block_table, source)]
        for other in sequence.rows[1:]:
            # Before the first token of the output, each prompt ends in its own.
            last = len(other.sequence_ids) - 1
            own = token if going is not None else other.tokens(last)
            rows.append(BatchRow(own, last + ahead, other.block_table, source))
        return ScheduledSequence(sequence, rows, sequence.epoch, ahead)

    def _waits_for_tokens(self, sequence: SequenceState) -> bool:
        """Whether a sequence is scheduled only when all of its tokens are known."""
        if sequence.request.hook is not None:
            return True
        return self.proposer is not None and self._may_draft(sequence) and self.proposer.wants(sequence)

    def _may_draft(self, sequence: SequenceState) -> bool:
        return len(sequence.rows) == 1 and not sequence.is_healing and not sequence.request.embeddings

    # Speculation

    def _propose(self, scheduled: Sequence[ScheduledSequence]) -> None:
        """Append proposed tokens to the rows of sequences, as many as cost little."""
        num_rows = sum(len(each.rows) for each in scheduled)
        room = min(self.runner.room(row.past, row.block_table) for each in scheduled for row in each.rows)
        limit = min(max_proposals(num_rows), room - 1, MAX_FORCED)
        if limit <= 0:
            return
        candidates = [each for each in scheduled if len(each.rows) == 1 and each.sequence.request.hook is None]
        for each in candidates if self.jump_forward else ():
            self._propose_forced(each, limit)
        drafting = [
            each
            for each in candidates
            if self.proposer is not None
            and len(each.rows[0].ids) == 1
            and each.ahead == 0
            and self._may_draft(each.sequence)
        ]
        if self.proposer is None or not drafting:
            return
        most = [min(limit, self.num_draft_tokens, self._left(each) - 1) for each in drafting]
        for each, tokens in zip(drafting, self.proposer.propose([e.sequence for e in drafting], most), strict=True):
            if tokens:
                each.rows[0] = each.rows[0]._replace(ids=(*each.rows[0].ids, *tokens))
                each.is_drafted = True

    def _propose_forced(self, each: ScheduledSequence, limit: int) -> None:
        forced = each.sequence.forced_tokens(min(limit + each.ahead, self._left(each) - 1 + each.ahead))
        proposals = forced[each.ahead :][:limit]
        if not proposals:
            return
        if each.ahead:
            each.expected = forced[each.ahead - 1]
        each.rows[0] = each.rows[0]._replace(ids=(*each.rows[0].ids, *proposals))

    def _left(self, each: ScheduledSequence) -> int:
        """Tokens that may come from this step on."""
        remaining = each.sequence.remaining
        return self.max_seq_len if remaining is None else remaining - each.ahead

    # Masks

    def _prefetch(self, scheduled: Iterable[ScheduledSequence]) -> None:
        """Have masks computed that are not yet being computed."""
        if self._workers is None:
            return
        batch = self._workers.batch()
        for each in scheduled:
            each.sequence.prefetch(batch)
        batch.start()

    def _await_masks(self, step: InFlightStep) -> list[Event]:
        """Collect the masks of a step, but do not wait for a few that take longer than the layers."""
        waiting = [each for each in step.scheduled if each.continues]
        self._prefetch(waiting)
        layers, most_late = DeviceEvent(self.runner.device), int(len(waiting) * _LATE_SHARE)
        events: list[Event] = []
        deadline = math.inf
        while waiting:
            ready = [each for each in waiting if most_late == 0 or each.sequence.mask_ready]
            for each in ready:
                events += self._set_mask(each)
            waiting = [each for each in waiting if not each.is_masked]
            if deadline == math.inf and layers.passed:
                deadline = perf_counter() + _PATIENCE
            if len(waiting) <= most_late and perf_counter() >= deadline:
                break
            if waiting and not ready:
                sleep(_POLL_INTERVAL)
        for each in waiting:
            each.is_late = True
        return events

    def _set_mask(self, each: ScheduledSequence) -> list[Event]:
        """Ask the constraint of a sequence which tokens may come, and which after its proposals."""
        sequence, each.is_masked = each.sequence, True
        each.mask, failed = sequence.guarded_mask()
        if failed is not None:
            return [Event(sequence, "streaming", failed)]
        if each.expected is None or each.expected == sequence.last_token:
            each.masks_after = sequence.masks_after(each.rows[0].ids[1:])
        return []

    # Sampling

    def _sample(self, step: InFlightStep) -> None:
        """Queue the sampling of a step."""
        if step.output is None:
            return
        width = self.runner.width(max(len(row.ids) for each in step.scheduled for row in each.rows))
        last = step.scheduled[-1].rows[-1]
        size = step.output.starts[-1] + (width if step.output.static is not None else len(last.ids))
        rows = [SamplingRow(GREEDY, 0)] * size
        for each in step.scheduled:
            self._fill(rows, each, step.output.starts)
        step.sampled = self._sampler.sample(step.output, rows)

    def _fill(self, rows: list[SamplingRow], each: ScheduledSequence, starts: Sequence[int]) -> None:
        sequence, request = each.sequence, each.sequence.request
        bias = sequence.bias
        row = SamplingRow(
            sequence.sampling,
            request.seed,
            each.mask if each.is_masked else None,
            top_tokens=request.return_top_tokens,
            raw=request.return_logits and request.raw_logits,
            final=request.hook is not None or (request.return_logits and not request.raw_logits),
            bias=None if bias is None else TokenBias(bias),
        )
        partner = -1
        if len(each.rows) > 1:
            partner = starts[starts.index(each.place) + 1]
            rows[partner] = SamplingRow(GREEDY, 0, pair=each.place)
        rows[each.place] = row._replace(partner=partner)
        for place, mask in enumerate(each.masks_after, each.place + 1):
            rows[place] = row._replace(mask=mask)

    def _collect(self, step: InFlightStep) -> list[Event]:
        """Give the tokens of a step to their sequences."""
        events: list[Event] = []
        if step.sampled is None:
            return events
        sampled = step.sampled.wait()
        going = [each for each in step.scheduled if each.continues]
        if self._workers is not None:
            batch = self._workers.batch()
            for each in going:
                if len(each.rows[0].ids) == 1:
                    each.sequence.prefetch(batch, sampled.tokens[each.place])
            batch.start()
        for each in going:
            events += [Event(each.sequence, "streaming", update) for update in self._take(each, sampled)]
        return events

    def _take(self, each: ScheduledSequence, sampled: SampledBatch) -> list[Update]:
        """Verify the proposals of a sequence, and take the tokens up to the first that was not proposed."""
        sequence, proposals = each.sequence, each.proposals
        updates: list[Update] = []
        constrained = sequence.is_constrained
        for place, proposal in enumerate([*proposals, None], each.place):
            # All were sampled under the conditions of the first: these may have changed with the last token.
            if updates and (sequence.has_own_conditions or sequence.is_constrained != constrained):
                break
            epoch = sequence.epoch
            updates.append(sequence.take(_token(sequence, sampled, place)))
            if sequence.finish is not None or sequence.epoch != epoch or sampled.tokens[place] != proposal:
                break
        accepted = len(updates) - 1
        if each.is_drafted:
            sequence.accepted_draft_tokens += accepted
            sequence.rejected_draft_tokens += len(each.rows[0].ids) - 1 - accepted
        if self.proposer is not None:
            self.proposer.observe(sequence, accepted, len(each.rows[0].ids) - 1 if each.is_drafted else 0)
        if sequence.sampling.mirostat is not None:
            mirostat = sequence.sampling.mirostat.after(sampled.probabilities[each.place])
            sequence.sampling = sequence.sampling._replace(mirostat=mirostat)
        for row in sequence.rows:
            length = len(row.sequence_ids)
            # The last token has not been through the model.
            row.computed(self.allocator, length - 1, length - sequence.num_uncommitted)
        return updates


def _token(sequence: SequenceState, sampled: SampledBatch, place: int) -> SampledToken:
    """A sampled token, with what was asked for."""
    request, count = sequence.request, sequence.request.return_top_tokens
    token = SampledToken(sampled.tokens[place], False, sampled.probabilities[place])
    if count and sampled.top_ids is not None and sampled.top_probabilities is not None:
        token.top = sampled.top_ids[place, :count], sampled.top_probabilities[place, :count]
    if request.return_logits:
        logits = sampled.raw if request.raw_logits else sampled.final
        token.logits = None if logits is None else logits[place]
    if request.hook is not None and sampled.final is not None:
        token.final_logits = sampled.final[place]
    return token


def check_budget(request: Request) -> None:
    """Raise :class:`BudgetError` where no output that the constraint allows has as few tokens as the request."""
    constraint, limit = request.constraint, request.max_new_tokens
    if constraint is None or limit is None or not request.within_budget or request.trigger is not None:
        return
    needed = constraint.min_tokens()
    # The token after the end need not fit.
    if needed is not None and needed - 1 > limit:
        raise BudgetError(limit, needed - 1)


def default_page_size(cache: ExLlamaV2CacheBase) -> int:
    """Positions of a page: 256, or what divides the rows of a cache and the attention kernels read; else whole rows."""
    size = math.gcd(cache.max_seq_len, PAGED_PAGE_SIZE)
    return size if size >= 16 else cache.max_seq_len


def cache_length(cache: ExLlamaV2CacheBase) -> int:
    """Positions that one sequence can have."""
    return cache.batch_size * cache.max_seq_len
