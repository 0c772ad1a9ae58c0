"""Decode steps that are queued on a device ahead of the host, which hears of their tokens one step behind.

A step takes the tokens of the one before from where they were drawn, so that the device never waits for the host: while
it works on a step, the host puts the text of the one before together, looks whether it ends, and has filters find what
may come next. What was computed behind the end of a text, or behind a proposal that was not drawn, is discarded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from os import cpu_count
from time import perf_counter, sleep

from constrain.engine.advance import Advance, Workers
from constrain.generator.device_draws import Drawing, RowSettings, StepSampler, row_settings
from constrain.generator.foreseen import propose_forced
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.generator.mask_pool import MaskPool
from constrain.generator.outcome import Outcome
from constrain.generator.pages import PageTable
from constrain.kernels.graphs import Event
from constrain.model.decode import Decoder, DecodeRow, StepShape

#: Masks that are kept on the device: 64 MB of them for a vocabulary of 128,000 tokens.
_MASKS = 4096
#: Threads that find masks of filters of the engine, at most.
_MOST_WORKERS = 8
#: One text in so many may sit a step out whose filters take longer than the layers.
_LATE_SHARE = 8
#: Seconds that are waited for them nevertheless, since a step costs more; and between looks at which are done.
_PATIENCE, _LOOK_AGAIN = 5e-4, 5e-5


@dataclass(slots=True)
class _Turn:
    """A job's part of a step.

    Attributes:
        place: where the row of its first token is in the step.
        written: whether the device knows the whole text, not only what came through here.
        expected: what that token, if it is not known yet, has to be for the proposals behind it to be worth anything.
        promised: whether filters are on their way to what may come behind the next token.
        late: whether they are not there yet, so that the text sits the step out: what is drawn for it does not count.
        again: whether the text has sat the step before out.
        constrained: whether the masks of the text are those of this step.
        proposals: the tokens behind the first that may still turn out to follow it.
    """

    job: ExLlamaV2DynamicJob
    row: DecodeRow
    settings: RowSettings
    place: int = 0
    written: bool = False
    expected: int | None = None
    promised: bool = False
    late: bool = False
    again: bool = False
    constrained: bool = False
    proposals: Sequence[int] = ()

    @property
    def goes_on(self) -> bool:
        """Whether the text has come to where this step was to take it on from, and does so."""
        job = self.job
        return (
            not self.late
            and job.running
            and job.text.end is None
            and len(job.sequences[0].sequence_ids) == self.row.past + 1
        )


@dataclass
class _Flight:
    """A step whose tokens the host does not know yet."""

    turns: list[_Turn] = field(default_factory=list)
    shape: StepShape | None = None
    drawing: Drawing | None = None

    def __post_init__(self) -> None:
        self.of = {turn.job: turn for turn in self.turns}


class Pipeline:
    """Takes jobs on by a token at a time; a job that is alone, by all of the text that its filters force on it."""

    def __init__(
        self, decoder: Decoder, table: PageTable, sizes: tuple[int, int], pool: Executor | None, jump_forward: bool
    ) -> None:
        """
        Args:
            decoder, table: what it runs on.
            sizes: number of tokens of the vocabulary, and number of logits.
            pool: where filters are evaluated, if not between all else.
            jump_forward: take text that filters leave no choice about through the model in one step.
        """
        size, width = sizes
        self._decoder, self._table, self._pool, self._jump_forward = decoder, table, pool, jump_forward
        self._workers = None if pool is None else Workers(min(_MOST_WORKERS, cpu_count() or 1))
        masks = MaskPool(_MASKS, (width + 31) // 32, decoder.uploads, decoder.drawn.device)
        self._sampler = StepSampler(decoder, min(size, width), masks)
        self._flight = _Flight()

    def takes(self, job: ExLlamaV2DynamicJob) -> bool:
        """Whether a job is for :meth:`step`."""
        return job in self._flight.of or self._settings(job, 0) is not None

    def step(self, jobs: Sequence[ExLlamaV2DynamicJob]) -> list[tuple[ExLlamaV2DynamicJob, Outcome]]:
        """Queue a step of the jobs, and see what came of the step before."""
        before, self._flight = self._flight, self._launch(jobs)
        constrained = any(turn.job.text.filters is not None for turn in self._flight.turns)
        if not constrained:
            self._draw(self._flight)
        outcomes = self._collect(before)
        if constrained:
            outcomes += self._constrain(self._flight)
            self._draw(self._flight)
        return outcomes

    def _settings(self, job: ExLlamaV2DynamicJob, ahead: int) -> RowSettings | None:
        """How the token behind ``ahead`` that are not known yet is drawn, if it is to be drawn, and here."""
        text = job.text
        if len(job.sequences) > 1 or job.embeddings or not text.is_plain(ahead):
            return None
        return row_settings(job.gen_settings, text.seed)

    def _launch(self, jobs: Sequence[ExLlamaV2DynamicJob]) -> _Flight:
        jobs = jobs[: self._decoder.most_rows]
        turns = [turn for job in jobs if (turn := self._turn(job)) is not None]
        if not turns:
            return _Flight()
        self._write_texts(turns)
        if len(turns) == 1 and self._jump_forward:
            self._propose(turns[0])
        for place, turn in enumerate(turns):
            turn.place = place
        return _Flight(turns, self._decoder.run([turn.row for turn in turns]))

    def _turn(self, job: ExLlamaV2DynamicJob) -> _Turn | None:
        """What takes a job on from where it will be when the step before turns out as expected."""
        sequence, before = job.sequences[0], self._flight.of.get(job)
        going = before if before is not None and before.goes_on else None
        ahead = 0 if going is None else 1 + len(going.proposals)
        settings = self._settings(job, ahead)
        if settings is None:
            return None
        if before is not None and settings == before.settings:
            settings = before.settings  # fewer objects to look through for garbage
        past = len(sequence.sequence_ids) - 1 + ahead
        if going is not None:
            return _Turn(job, DecodeRow(going.place + ahead - 1, past, going.row.pages, drawn=True), settings)
        row = DecodeRow(job.text.last_token, past, [page.index for page in sequence.pages])
        return _Turn(job, row, settings, again=before is not None and before.late)

    def _write_texts(self, turns: Sequence[_Turn]) -> None:
        """Make the texts known that tokens depend on."""
        unknown = []
        for turn in turns:
            before = self._flight.of.get(turn.job)
            turn.written = before is not None and before.written
            if turn.settings.penalises and not turn.written:
                turn.written = True
                unknown.append((turn.row.pages, turn.job.sequences[0].sequence_ids.torch()[0]))
        if unknown:
            self._decoder.write_texts(unknown)

    def _propose(self, turn: _Turn) -> None:
        """Add the tokens of text that is certain to follow."""
        text = turn.job.text
        ahead = turn.row.past + 1 - len(turn.job.sequences[0].sequence_ids)
        forced = propose_forced(text, (text.remaining or 1) - 1)
        turn.row = turn.row._replace(ahead=forced[ahead:])
        turn.row = turn.row._replace(ahead=self._decoder.fitting(turn.row))
        if ahead and turn.row.ahead:
            turn.expected = forced[ahead - 1]

    def _draw(self, flight: _Flight) -> None:
        if flight.shape is not None:
            turns = flight.turns
            masks = [turn.job.text.mask if turn.constrained else None for turn in turns]
            settings = [turn.settings for turn in turns]
            if turns[0].proposals:  # then there is one alone
                masks += turns[0].job.text.masks_ahead
                settings *= len(masks)
            flight.drawing = self._sampler.draw(flight.shape, settings, masks)

    def _collect(self, flight: _Flight) -> list[tuple[ExLlamaV2DynamicJob, Outcome]]:
        """Let the texts hear of the tokens of a step."""
        outcomes: list[tuple[ExLlamaV2DynamicJob, Outcome]] = []
        if flight.drawing is None:
            return outcomes
        tokens, probabilities = flight.drawing.wait()
        going = [turn for turn in flight.turns if turn.goes_on]
        self._promise(going, tokens)
        for turn in going:
            job, text = turn.job, turn.job.text
            for place, proposal in enumerate([*turn.proposals, None], turn.place):
                outcomes.append((job, text.take(tokens[place], probabilities[place])))
                if text.end is not None or tokens[place] != proposal:
                    break
            sequence = job.sequences[0]
            length = len(sequence.sequence_ids)
            sequence.computed(self._table, length - 1, length - text.unsettled)
        return outcomes

    def _promise(self, turns: Sequence[_Turn], tokens: Sequence[int]) -> None:
        """Have the filters of many texts take their tokens on other threads, while this one puts the texts together."""
        if self._workers is None or len(turns) < 2:
            return
        advance = Advance(self._workers)
        for turn in turns:
            following = self._flight.of.get(turn.job)
            if following is not None:
                following.promised = turn.job.text.promise(advance, tokens[turn.place])
        advance.start()

    def _constrain(self, flight: _Flight) -> list[tuple[ExLlamaV2DynamicJob, Outcome]]:
        """Find what may come in each row of a step, but do not wait for a few that take longer than the layers."""
        waiting = [turn for turn in flight.turns if turn.goes_on]
        outcomes = self._look_ahead(waiting)
        layers, most_late = Event(self._decoder.drawn.device), len(waiting) // _LATE_SHARE
        deadline = math.inf
        while waiting:
            ready = [turn for turn in waiting if most_late == 0 or turn.job.text.ready]
            outcomes += _allow(ready)
            waiting = [turn for turn in waiting if not turn.constrained]
            if deadline == math.inf and layers.passed:
                deadline = perf_counter() + _PATIENCE
            if len(waiting) <= most_late and perf_counter() >= deadline:
                break
            if waiting and not ready:
                sleep(_LOOK_AGAIN)
        for turn in waiting:
            turn.late = True
        return outcomes

    def _look_ahead(self, turns: Sequence[_Turn]) -> list[tuple[ExLlamaV2DynamicJob, Outcome]]:
        """Set those filters to work that are not yet."""
        outcomes: list[tuple[ExLlamaV2DynamicJob, Outcome]] = []
        if self._pool is None or self._workers is None:
            return outcomes
        advance = Advance(self._workers)
        for turn in turns:
            if turn.promised or turn.again or (len(turns) > 1 and turn.job.text.promise(advance)):
                continue
            if (failed := turn.job.text.look_ahead(self._pool, ())) is not None:
                outcomes.append((turn.job, failed))
        advance.start()
        return outcomes


def _allow(turns: Sequence[_Turn]) -> list[tuple[ExLlamaV2DynamicJob, Outcome]]:
    """Ask the filters of texts what may come."""
    outcomes: list[tuple[ExLlamaV2DynamicJob, Outcome]] = []
    for turn in turns:
        text, turn.constrained = turn.job.text, True
        if text.end is not None:
            continue
        useful = turn.expected is None or turn.expected == text.last_token
        if (failed := text.constrain(turn.row.ahead if useful else ())) is not None:
            outcomes.append((turn.job, failed))
        turn.proposals = turn.row.ahead[: len(text.masks_ahead)]
    return outcomes
