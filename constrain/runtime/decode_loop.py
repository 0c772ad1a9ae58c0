"""The decode loop: one forward pass after another for all running sequences, queued on a GPU ahead of the host.

While a pass runs, the host accepts the tokens of the previous one, and constraints compute the masks of the next::

    GPU    layers, step n           | head, masks, sample n | layers, step n+1 ...
    host   accept n-1: output,      | queue sampling of n   | accept n ...
           stop strings; masks of n |                       |

Tokens computed after the end of a sequence, or after a rejected proposal, are discarded. The parts of a step::

    form the batch       Scheduler.schedule (scheduler.py), Speculation.propose (speculative/)
    its tensors          StaticBatch, ForwardBatch (forward_batch.py), attention_metadata.py
    forward pass         ModelRunner.decode (model_runner.py): CUDA graphs (cuda_graphs.py), or eager
    token masks          MaskBatch (mask_batch.py), SequenceState.mask (sequence.py), Matcher.mask (csrc/engine/)
    sample               BatchSampler.sample (sampler/batch_sampler.py)
    verify drafts        verify (speculative/verification.py)
    stop strings         SequenceState.accept (sequence.py), StopStringMatcher.match (stop_strings.py)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from time import perf_counter, sleep
from typing import TypeAlias

from constrain.engine.advance import Workers
from constrain.filters.id_masks import new_step
from constrain.kernels.graphs import Event as DeviceEvent
from constrain.runtime.mask_batch import MaskBatch
from constrain.runtime.measurements import Measurements
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.outputs import Update
from constrain.runtime.sampler.batch_sampler import BatchSampler, SampledBatch
from constrain.runtime.sampler.inputs import SamplingRow
from constrain.runtime.sampler.params import GREEDY, TokenBias
from constrain.runtime.scheduler import DecodeBatch, ScheduledSequence, Scheduler
from constrain.runtime.sequence import SequenceState
from constrain.runtime.speculative.speculation import Speculation
from constrain.runtime.speculative.verification import verify

#: At most this share of a batch may skip a step because their masks are late.
_LATE_SHARE = 1 / 8
#: Seconds to wait for late masks, since skipping a step costs more; and between checks for masks that are ready.
_PATIENCE, _POLL_INTERVAL = 5e-4, 5e-5

#: A sequence, and the outcome of one of its tokens.
Outcome: TypeAlias = tuple[SequenceState, Update]


class DecodeLoop:
    """Decodes running sequences by one token per step, or by several if proposed tokens are accepted.

    Attributes:
        num_tokens: number of tokens that sequences have got so far.
    """

    def __init__(
        self,
        runner: ModelRunner,
        scheduler: Scheduler,
        speculation: Speculation,
        sampler: BatchSampler,
        workers: Workers | None,
    ) -> None:
        """``workers``: compute masks while the model runs; ``None``: masks are computed when they are needed."""
        self.num_tokens = 0
        self._runner, self._scheduler, self._speculation, self._sampler = runner, scheduler, speculation, sampler
        self._workers = workers
        self._measurements = Measurements(runner.model, sampler.width)
        self._in_flight = DecodeBatch()

    def step(self, running: Sequence[SequenceState]) -> list[Outcome]:
        """Queue a forward pass, and return the outcomes of the previous one, or of this one if it ran synchronously."""
        new_step()
        outcomes = _begin_constraints(running)
        previous, batch = self._in_flight, self._launch(running)
        if previous.scheduled and not batch.scheduled:
            # The running sequences can only be scheduled once their in-flight tokens are known.
            outcomes += self._collect(previous)
            self._in_flight = previous = DecodeBatch()
            batch = self._launch(running)
        self._in_flight = batch
        freely = batch.samples_freely
        if freely:
            for each in batch.scheduled:
                each.masks_after = [None] * (len(each.rows[0].ids) - 1)
            self._sample(batch)
        outcomes += self._collect(previous)
        if not freely:
            # Some constraints wait for a regenerated token (token healing), which may just have been collected.
            outcomes += _begin_constraints(running)
            outcomes += self._await_masks(batch)
            self._sample(batch)
        if not self._runner.is_asynchronous:
            self._in_flight = DecodeBatch()
            outcomes += self._collect(batch)
        return outcomes

    def _launch(self, running: Sequence[SequenceState]) -> DecodeBatch:
        """Form a decode batch, and queue its forward pass."""
        scheduled = self._scheduler.schedule(running, self._in_flight)
        if not scheduled:
            return DecodeBatch()
        self._speculation.propose(scheduled)
        self._prefetch((each.sequence, None) for each in scheduled if each.ahead == 0)
        rows = [row for each in scheduled for row in each.rows]
        output = self._runner.decode(rows, *scheduled[0].shared)
        starts = iter(output.starts)
        for each in scheduled:
            each.place, *_ = [next(starts) for _ in each.rows]
        return DecodeBatch(scheduled, output)

    # Masks

    def _prefetch(self, sequences: Iterable[tuple[SequenceState, int | None]]) -> None:
        """Queue the masks that are not yet being computed; with a sequence comes its next token, if it is known."""
        wanted = [
            (each, token)
            for each, token in sequences
            if each.constraint.active is not None and each.constraint.needs_mask(token)
        ]
        if self._workers is None or not wanted:
            return
        masks = MaskBatch(self._workers)
        for sequence, token in wanted:
            sequence.prefetch(masks, token)
        masks.start()

    def _await_masks(self, batch: DecodeBatch) -> list[Outcome]:
        """Wait for the masks of a batch, except for a few that take longer than the layers."""
        waiting = [each for each in batch.scheduled if each.continues]
        self._prefetch((each.sequence, None) for each in waiting)
        is_whole = any(each.sequence.request.faithful for each in waiting)  # particles stay together
        layers, most_late = DeviceEvent(self._runner.device), 0 if is_whole else int(len(waiting) * _LATE_SHARE)
        outcomes: list[Outcome] = []
        deadline = math.inf
        while waiting:
            ready = [each for each in waiting if most_late == 0 or each.sequence.constraint.is_ready]
            for each in ready:
                failed = each.sequence.guarded(_set_masks, each)
                outcomes += [] if failed is None else [(each.sequence, failed)]
            waiting = [each for each in waiting if not each.is_masked]
            if deadline == math.inf and layers.passed:
                deadline = perf_counter() + _PATIENCE
            if len(waiting) <= most_late and perf_counter() >= deadline:
                break
            if waiting and not ready:
                sleep(_POLL_INTERVAL)
        for each in waiting:
            each.is_late = True
        return outcomes

    # Sampling

    def _sample(self, batch: DecodeBatch) -> None:
        """Queue the sampling of a batch."""
        if batch.output is None:
            return
        width = self._runner.width(max(len(row.ids) for each in batch.scheduled for row in each.rows))
        last = batch.scheduled[-1].rows[-1]
        size = batch.output.starts[-1] + (width if batch.output.static is not None else len(last.ids))
        rows = [SamplingRow(GREEDY, 0)] * size
        for each in batch.scheduled:
            self._fill(rows, each, batch.output.starts)
        batch.sampled = self._sampler.sample(batch.output, rows)

    def _fill(self, rows: list[SamplingRow], each: ScheduledSequence, starts: Sequence[int]) -> None:
        sequence, request = each.sequence, each.sequence.request
        bias = sequence.constraint.bias
        row = SamplingRow(
            sequence.sampling,
            request.seed,
            each.mask,
            top_tokens=request.return_top_tokens,
            raw=request.return_logits and request.raw_logits,
            final=request.hook is not None or (request.return_logits and not request.raw_logits),
            logprobs=-1 if request.return_logprobs is None else request.return_logprobs,
            bias=None if bias is None else TokenBias(bias),
            measured=request.return_confidence,
            watched=request.watched_tokens,
            at_once=request.faithful,
            uniform=sequence.uniform,
            mu=sequence.mu,
        )
        rows[each.place] = row
        if len(each.rows) > 1:
            partner = starts[starts.index(each.place) + 1]
            rows[each.place] = row._replace(partner=partner)
            rows[partner] = SamplingRow(GREEDY, 0, pair=each.place)
        for place, mask in enumerate(each.masks_after, each.place + 1):
            rows[place] = row._replace(mask=mask)

    def _collect(self, batch: DecodeBatch) -> list[Outcome]:
        """Wait for the tokens of a batch, and pass them to their sequences."""
        outcomes: list[Outcome] = []
        if batch.sampled is None or batch.output is None:
            return outcomes
        sampled = batch.sampled.wait()
        going = [each for each in batch.scheduled if each.continues]
        self._prefetch((each.sequence, sampled.tokens[each.place]) for each in going if len(each.rows[0].ids) == 1)
        for each in going:
            outcomes += [(each.sequence, update) for update in self._accept(each, sampled)]
            self._measurements.complete(each.sequence, batch.output.context)
        return outcomes

    def _accept(self, each: ScheduledSequence, sampled: SampledBatch) -> list[Update]:
        """Append the sampled tokens of a sequence, as far as its proposed tokens are verified."""
        sequence = each.sequence
        updates = verify(each, sampled, self._measurements)
        self.num_tokens += len(updates)
        self._speculation.observe(each, len(updates) - 1)
        mirostat = sequence.sampling.mirostat
        if mirostat is not None:
            mu = mirostat.mu if sequence.mu is None else sequence.mu
            sequence.mu = mirostat.after(mu, sampled.probabilities[each.place])
        for row in sequence.rows:
            length = len(row.sequence_ids)
            # The last token has not been through the model yet.
            row.computed(length - 1, length - sequence.num_uncommitted)
        return updates


def _begin_constraints(running: Sequence[SequenceState]) -> list[Outcome]:
    updates = [(each, each.begin()) for each in running if each.constraint.may_begin]
    return [(sequence, update) for sequence, update in updates if update is not None]


def _set_masks(each: ScheduledSequence) -> None:
    """Set the next mask of a sequence, and the masks after its proposals."""
    sequence, each.is_masked = each.sequence, True
    each.mask = sequence.mask()
    if each.expected is None or each.expected == sequence.last_token:
        each.masks_after = sequence.constraint.masks_after(each.rows[0].ids[1:], sequence.budget)
