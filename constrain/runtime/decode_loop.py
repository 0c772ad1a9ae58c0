"""The decode loop: one forward pass after another for all running sequences, queued on a GPU ahead of the host.

While a pass runs, the host accepts the tokens of the previous one, and constraints compute the masks of the next::

    GPU    layers, step n           | head, masks, sample n | layers, step n+1 ...
    host   accept n-1: output,      | queue sampling of n   | accept n ...
           stop strings; masks of n |                       |

Tokens computed after the end of a sequence, or after a rejected proposal, are discarded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from time import perf_counter, sleep
from typing import TypeAlias

import torch

from constrain.engine.advance import Workers
from constrain.filters.adapter import new_step
from constrain.kernels.graphs import Event as DeviceEvent
from constrain.model import ExLlamaV2Lora
from constrain.runtime.batch import BatchRow
from constrain.runtime.events import SampledToken, Update
from constrain.runtime.in_flight import InFlightStep, ScheduledSequence
from constrain.runtime.mask_batch import MaskBatch
from constrain.runtime.measurements import Measurements
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.sampler.batch_sampler import BatchSampler, SampledBatch
from constrain.runtime.sampler.inputs import SamplingRow
from constrain.runtime.sampler.params import GREEDY, TokenBias
from constrain.runtime.sequence import SequenceState
from constrain.runtime.speculation import MAX_FORCED, Proposer, max_proposals

#: At most this share of a batch may skip a step because their masks are late.
_LATE_SHARE = 1 / 8
#: Seconds to wait for late masks, since skipping a step costs more; and between checks for masks that are ready.
_PATIENCE, _POLL_INTERVAL = 5e-4, 5e-5

#: Forced text is not looked for where fewer tokens of it fit in a pass: with one, as in batches of more than 21
#: sequences, few passes are saved, and looking for it takes longer than that.
_MIN_FORCED = 2

#: A sequence, and the outcome of one of its tokens.
Outcome: TypeAlias = tuple[SequenceState, Update]


class DecodeLoop:
    """Decodes running sequences by one token per step, or by several if proposed tokens are accepted.

    Attributes:
        proposer: proposes draft tokens for speculative decoding; ``None``: no drafting.
        num_tokens: number of tokens that sequences have got so far.
    """

    def __init__(
        self,
        runner: ModelRunner,
        sampler: BatchSampler,
        workers: Workers | None,
        proposer: Proposer | None,
        jump_forward: bool,
    ) -> None:
        """
        Args:
            runner, sampler: model runner, and sampler of the batch.
            workers: compute masks while the model runs; ``None``: masks are computed when they are needed.
            proposer: see the attributes.
            jump_forward: run text that a constraint forces through the model in one forward pass.
        """
        self.proposer, self.num_tokens = proposer, 0
        self._runner, self._sampler = runner, sampler
        self._workers, self._jump_forward = workers, jump_forward
        self._measurements = Measurements(runner.model, sampler.width)
        self._in_flight = InFlightStep()
        self._running: Sequence[SequenceState] = ()
        self._next_loras: tuple[ExLlamaV2Lora, ...] = ()

    def step(self, running: Sequence[SequenceState]) -> list[Outcome]:
        """Queue a forward pass, and return the outcomes of the previous one, or of this one if it ran synchronously."""
        new_step()
        self._running = running
        outcomes = self._begin_constraints()
        previous, step = self._in_flight, self._launch()
        if previous.scheduled and not step.scheduled:
            # The running sequences can only be scheduled once their in-flight tokens are known.
            outcomes += self._collect(previous)
            self._in_flight = previous = InFlightStep()
            step = self._launch()
        self._in_flight = step
        freely = step.samples_freely
        if freely:
            for each in step.scheduled:
                each.masks_after = [None] * (len(each.rows[0].ids) - 1)
            self._sample(step)
        outcomes += self._collect(previous)
        if not freely:
            # Some constraints wait for a regenerated token (token healing), which may just have been collected.
            outcomes += self._begin_constraints()
            outcomes += self._await_masks(step)
            self._sample(step)
        if not self._runner.is_asynchronous:
            self._in_flight = InFlightStep()
            outcomes += self._collect(step)
        return outcomes

    def _begin_constraints(self) -> list[Outcome]:
        updates = [(each, each.begin()) for each in self._running if each.constraint.may_begin]
        return [(sequence, update) for sequence, update in updates if update is not None]

    def _launch(self) -> InFlightStep:
        """Queue a forward pass of the running sequences."""
        scheduled = self._schedule()
        if not scheduled:
            return InFlightStep()
        self._propose(scheduled)
        self._prefetch((each.sequence, None) for each in scheduled if each.ahead == 0)
        rows = [row for each in scheduled for row in each.rows]
        output = self._runner.decode(rows, scheduled[0].sequence.request.loras)
        starts = iter(output.starts)
        for each in scheduled:
            each.place, *_ = [next(starts) for _ in each.rows]
        return InFlightStep(scheduled, output)

    def _schedule(self) -> list[ScheduledSequence]:
        """Schedule sequences that share adapters, up to the maximum number of rows."""
        ready = [each for each in self._running if each.finish is None]
        groups = list(dict.fromkeys(each.request.loras for each in ready))
        if len(groups) > 1:
            turn = groups.index(self._next_loras) if self._next_loras in groups else 0
            self._next_loras = groups[(turn + 1) % len(groups)]
            ready = [each for each in ready if each.request.loras == groups[turn]]
        scheduled: list[ScheduledSequence] = []
        room = self._runner.max_rows
        for sequence in ready:
            if len(sequence.rows) <= room and (each := self._schedule_one(sequence)) is not None:
                scheduled.append(each)
                room -= len(sequence.rows)
        return scheduled

    def _schedule_one(self, sequence: SequenceState) -> ScheduledSequence | None:
        """Schedule a sequence at its position after the in-flight step, assuming that its proposals are accepted."""
        before = self._in_flight.of.get(sequence)
        going = before if before is not None and before.continues else None
        ahead = 0 if going is None else 1 + len(going.proposals)
        if sequence.finish is not None or sequence.remaining <= ahead:
            return None
        if going is not None and (going.is_drafted or sequence.request.hook is not None or self._drafts(sequence)):
            return None
        past = len(sequence) - 1 + ahead
        token = (0,) if going is not None else (sequence.last_token,)
        source = -1 if going is None else going.place + ahead - 1
        rows = [BatchRow(token, past, sequence.rows[0].block_table, source)]
        for other in sequence.rows[1:]:
            # Before the first token of the output, each prompt ends in its own last token.
            last = len(other.sequence_ids) - 1
            own = token if going is not None else other.tokens(last)
            rows.append(BatchRow(own, last + ahead, other.block_table, source))
        return ScheduledSequence(sequence, rows, sequence.epoch, ahead)

    def _drafts(self, sequence: SequenceState) -> bool:
        """Return whether draft tokens are to be proposed for a sequence, which needs all its tokens."""
        if self.proposer is None or sequence.is_healing or sequence.request.embeddings:
            return False
        return sequence.may_speculate and self.proposer.wants(sequence)

    # Speculation

    def _propose(self, scheduled: Sequence[ScheduledSequence]) -> None:
        """Append proposed tokens to the rows of sequences, as many as add little cost."""
        limit = min(max_proposals(sum(len(each.rows) for each in scheduled)), MAX_FORCED)
        if limit <= 0 or (self.proposer is None and not self._looks_for_forced(limit)):
            return
        room = min(self._runner.room(row.past, row.block_table) for each in scheduled for row in each.rows)
        limit = min(limit, room - 1)
        candidates = [each for each in scheduled if each.sequence.may_speculate]
        for each in candidates if self._looks_for_forced(limit) else ():
            self._propose_forced(each, limit)
        if self.proposer is None:
            return
        most = min(limit, self.proposer.num_tokens)
        limits = {
            each: min(most, self._left(each) - 1)
            for each in candidates
            if each.ahead == 0 and len(each.rows[0].ids) == 1 and self._left(each) > 1 and self._drafts(each.sequence)
        }
        if most <= 0 or not limits:
            return
        drafts = self.proposer.propose([each.sequence for each in limits], [*limits.values()])
        for each, tokens in zip(limits, drafts, strict=True):
            if tokens:
                each.rows[0] = each.rows[0]._replace(ids=(*each.rows[0].ids, *tokens))
                each.is_drafted = True

    def _looks_for_forced(self, limit: int) -> bool:
        return self._jump_forward and limit >= _MIN_FORCED

    def _propose_forced(self, each: ScheduledSequence, limit: int) -> None:
        forced = each.sequence.forced_tokens(min(limit + each.ahead, self._left(each) - 1 + each.ahead))
        proposals = forced[each.ahead :][:limit]
        if not proposals:
            return
        if each.ahead:
            each.expected = forced[each.ahead - 1]
        each.rows[0] = each.rows[0]._replace(ids=(*each.rows[0].ids, *proposals))

    def _left(self, each: ScheduledSequence) -> int:
        """Return the number of tokens that may be generated from this step on."""
        return each.sequence.remaining - each.ahead

    # Masks

    def _prefetch(self, sequences: Iterable[tuple[SequenceState, int | None]]) -> None:
        """Queue the masks that are not yet being computed; with a sequence comes its next token, if it is known."""
        wanted = [(each, token) for each, token in sequences if each.constraint.needs_mask(token)]
        if self._workers is None or not wanted:
            return
        batch = MaskBatch(self._workers)
        for sequence, token in wanted:
            sequence.prefetch(batch, token)
        batch.start()

    def _await_masks(self, step: InFlightStep) -> list[Outcome]:
        """Wait for the masks of a step, except for a few that take longer than the layers."""
        waiting = [each for each in step.scheduled if each.continues]
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

    def _sample(self, step: InFlightStep) -> None:
        """Queue the sampling of a step."""
        if step.output is None:
            return
        width = self._runner.width(max(len(row.ids) for each in step.scheduled for row in each.rows))
        last = step.scheduled[-1].rows[-1]
        size = step.output.starts[-1] + (width if step.output.static is not None else len(last.ids))
        rows = [SamplingRow(GREEDY, 0)] * size
        for each in step.scheduled:
            self._fill(rows, each, step.output.starts)
        step.sampled = self._sampler.sample(step.output, rows)

    def _fill(self, rows: list[SamplingRow], each: ScheduledSequence, starts: Sequence[int]) -> None:
        sequence, request = each.sequence, each.sequence.request
        bias = sequence.constraint.bias
        row = SamplingRow(
            sequence.sampling,
            request.seed,
            each.mask if each.is_masked else None,
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

    def _collect(self, step: InFlightStep) -> list[Outcome]:
        """Wait for the tokens of a step, and pass them to their sequences."""
        outcomes: list[Outcome] = []
        if step.sampled is None or step.output is None:
            return outcomes
        sampled = step.sampled.wait()
        going = [each for each in step.scheduled if each.continues]
        self._prefetch((each.sequence, sampled.tokens[each.place]) for each in going if len(each.rows[0].ids) == 1)
        for each in going:
            outcomes += [(each.sequence, update) for update in self._verify(each, sampled)]
            self._measurements.complete(each.sequence, step.output.context)
        return outcomes

    def _verify(self, each: ScheduledSequence, sampled: SampledBatch) -> list[Update]:
        """Verify the proposals of a sequence, and append tokens up to and including the first that was not proposed."""
        sequence, proposals = each.sequence, each.proposals
        updates: list[Update] = []
        constraint = sequence.constraint.active
        for place, proposal in enumerate([*proposals, None], each.place):
            # All tokens were sampled under the conditions of the first, which the last token may have changed.
            if updates and (sequence.has_own_conditions or sequence.constraint.active is not constraint):
                break
            epoch = sequence.epoch
            token = _token(sequence, sampled, place)
            if sequence.request.return_confidence:
                self._measurements.add(sequence, token, each.mask_at(place), sampled, place)
            updates.append(sequence.take(token))
            if sequence.finish is not None or sequence.epoch != epoch or sampled.tokens[place] != proposal:
                break
        self.num_tokens += len(updates)
        accepted = len(updates) - 1
        if each.is_drafted:
            sequence.accepted_draft_tokens += accepted
            sequence.rejected_draft_tokens += len(each.rows[0].ids) - 1 - accepted
        if self.proposer is not None:
            self.proposer.observe(sequence, accepted, len(each.rows[0].ids) - 1 if each.is_drafted else 0)
        mirostat = sequence.sampling.mirostat
        if mirostat is not None:
            mu = mirostat.mu if sequence.mu is None else sequence.mu
            sequence.mu = mirostat.after(mu, sampled.probabilities[each.place])
        for row in sequence.rows:
            length = len(row.sequence_ids)
            # The last token has not been through the model yet.
            row.computed(length - 1, length - sequence.num_uncommitted)
        return updates


def _set_masks(each: ScheduledSequence) -> None:
    """Set the next mask of a sequence, and the masks after its proposals."""
    sequence, each.is_masked = each.sequence, True
    each.mask = sequence.mask()
    if each.expected is None or each.expected == sequence.last_token:
        each.masks_after = sequence.constraint.masks_after(each.rows[0].ids[1:], sequence.budget)


def _token(sequence: SequenceState, sampled: SampledBatch, place: int) -> SampledToken:
    """Return a sampled token, with the details that its request asks for."""
    request, count = sequence.request, sequence.request.return_top_tokens
    token = SampledToken(sampled.tokens[place], sampled.probabilities[place])
    if count and sampled.top is not None:
        ids, probabilities = sampled.top[place]
        token.top = _first(ids, count), _first(probabilities, count)
    if request.return_logits:
        logits = sampled.raw if request.raw_logits else sampled.final
        token.logits = None if logits is None else logits[place]
    if request.return_logprobs is not None and sampled.logprobs is not None and token.id >= 0:
        token.logprob, likely = sampled.logprobs[place]
        token.top_logprobs = likely[: request.return_logprobs]
    if request.hook is not None and sampled.final is not None:
        token.final_logits = sampled.final[place]
    return token


def _first(values: torch.Tensor, count: int) -> torch.Tensor:
    """Return the first values of the last dimension; those of other rows may be more."""
    return values if values.shape[-1] == count else values[..., :count]
