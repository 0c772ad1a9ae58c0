"""Decode steps that are queued on a device ahead of the host, which hears of their tokens one step behind.

A step takes the tokens of the one before from where they were drawn, so that the device never waits for the host: while
it works on a step, the host puts the text of the one before together, looks whether it ends, and has filters find what
may come next. What was computed behind the end of a text is discarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from constrain.filters.masks import TokenMask
from constrain.generator.device_draws import Drawing, RowSettings, StepSampler, row_settings
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.generator.mask_pool import MaskPool
from constrain.generator.outcome import Outcome
from constrain.generator.pages import PageTable
from constrain.model.decode import Decoder, DecodeRow, StepShape

#: Masks that are kept on the device: 64 MB of them for a vocabulary of 128,000 tokens.
_MASKS = 4096


@dataclass
class _Turn:
    """A job's part of a step."""

    job: ExLlamaV2DynamicJob
    row: DecodeRow
    settings: RowSettings
    mask: TokenMask | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the text was not over, or taken back, before this step."""
        return self.job.running and self.job.text.end is None


@dataclass
class _Flight:
    """A step whose tokens the host does not know yet."""

    turns: list[_Turn] = field(default_factory=list)
    shape: StepShape | None = None
    drawing: Drawing | None = None

    def __post_init__(self) -> None:
        self.places = {turn.job: place for place, turn in enumerate(self.turns)}


class Pipeline:
    """Takes jobs on by a token at a time."""

    def __init__(self, decoder: Decoder, table: PageTable, sizes: tuple[int, int], pool: Executor | None) -> None:
        """
        Args:
            decoder, table: what it runs on.
            sizes: number of tokens of the vocabulary, and number of logits.
            pool: where filters are evaluated, if not between all else.
        """
        size, width = sizes
        self._decoder, self._table, self._pool = decoder, table, pool
        masks = MaskPool(_MASKS, (width + 31) // 32, decoder.uploads, decoder.drawn.device)
        self._sampler = StepSampler(decoder, min(size, width), masks)
        self._flight = _Flight()

    def takes(self, job: ExLlamaV2DynamicJob) -> bool:
        """Whether a job is for :meth:`step`."""
        return job in self._flight.places or self._settings(job, 0) is not None

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
        turns = [turn for job in jobs[: self._decoder.most_rows] if (turn := self._turn(job)) is not None]
        if not turns:
            return _Flight()
        return _Flight(turns, self._decoder.run([turn.row for turn in turns]))

    def _turn(self, job: ExLlamaV2DynamicJob) -> _Turn | None:
        sequence, place = job.sequences[0], self._flight.places.get(job)
        ahead = 0 if place is None else 1
        settings = self._settings(job, ahead)
        if settings is None:
            return None
        past = len(sequence.sequence_ids) - 1 + ahead
        if place is not None:
            return _Turn(job, DecodeRow(place, past, self._flight.turns[place].row.pages, drawn=True), settings)
        pages = [page.index for page in sequence.pages]
        self._decoder.write_text(pages, sequence.sequence_ids.torch()[0])
        return _Turn(job, DecodeRow(job.text.last_token, past, pages), settings)

    def _draw(self, flight: _Flight) -> None:
        if flight.shape is not None:
            settings, masks = [turn.settings for turn in flight.turns], [turn.mask for turn in flight.turns]
            flight.drawing = self._sampler.draw(flight.shape, settings, masks)

    def _collect(self, flight: _Flight) -> list[tuple[ExLlamaV2DynamicJob, Outcome]]:
        """Let the texts hear of the tokens of a step."""
        outcomes: list[tuple[ExLlamaV2DynamicJob, Outcome]] = []
        if flight.drawing is None:
            return outcomes
        for turn, token, probability in zip(flight.turns, *flight.drawing.wait(), strict=True):
            if not turn.goes_on:
                continue
            job, text = turn.job, turn.job.text
            outcomes.append((job, text.take(token, probability)))
            sequence = job.sequences[0]
            length = len(sequence.sequence_ids)
            sequence.computed(self._table, length - 1, length - text.unsettled)
        return outcomes

    def _constrain(self, flight: _Flight) -> list[tuple[ExLlamaV2DynamicJob, Outcome]]:
        """Find what may come in each row of a step."""
        outcomes: list[tuple[ExLlamaV2DynamicJob, Outcome]] = []
        going = [turn for turn in flight.turns if turn.goes_on]
        if self._pool is not None:
            for turn in going:
                if (failed := turn.job.text.look_ahead(self._pool, ())) is not None:
                    outcomes.append((turn.job, failed))
        for turn in going:
            if turn.job.text.end is not None:
                continue
            if (failed := turn.job.text.constrain()) is not None:
                outcomes.append((turn.job, failed))
            turn.mask = turn.job.text.mask
        return outcomes
