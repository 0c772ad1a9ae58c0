"""Takes jobs through the model: prompts in parts, then one pass after the other for all that are ready."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from constrain.generator.draft import Draft, Drafter
from constrain.generator.foreseen import Foreseen, propose_forced
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.generator.outcome import Outcome
from constrain.generator.pages import PageTable
from constrain.generator.pipeline import Pipeline
from constrain.model import decode

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2Lora


class PagedRunner:
    """Runs jobs on a model, over pages of a cache.

    Attributes:
        loras: adapters to apply.
    """

    def __init__(
        self,
        model: ExLlamaV2,
        cache: ExLlamaV2CacheBase,
        table: PageTable,
        drafter: Drafter | None,
        draft_tokens: int,
        pool: Executor | None,
        jump_forward: bool,
        sizes: tuple[int, int],
    ) -> None:
        """
        Args:
            model, cache, table: what it runs on.
            drafter, draft_tokens: what guesses tokens, and how many.
            pool: where filters are evaluated while the model runs; ``None``: they wait for it.
            jump_forward: take text that filters leave no choice about through the model in one pass.
            sizes: number of tokens of the vocabulary, and number of logits.
        """
        self.loras: Sequence[ExLlamaV2Lora] = ()
        self._model, self._cache, self._table = model, cache, table
        self._drafter, self._draft_tokens = drafter, draft_tokens
        self._pool, self._jump_forward = pool, jump_forward
        self._sizes = sizes
        self._pipeline: Pipeline | None = None

    def prefill(self, job: ExLlamaV2DynamicJob, limit: int) -> bool:
        """Take at most ``limit`` tokens of a prompt through the model; returns whether there were any."""
        computed = False
        for sequence in job.sequences:
            sequence.skip_cached(self._table)
            row = sequence.prompt_chunk(self._table, limit)
            if row is None:
                continue
            self._model.forward_paged([row], self._cache, self.loras, job.embeddings)
            if self._drafter is not None and not job.embeddings:
                self._drafter.prefill([row])
            end = sequence.position + row.width
            sequence.computed(self._table, end, end)
            sequence.draft_position = end
            sequence.skip_cached(self._table)
            limit -= row.width
            computed = True
            if limit <= 0:
                break
        return computed

    def decode(self, jobs: Sequence[ExLlamaV2DynamicJob]) -> list[tuple[ExLlamaV2DynamicJob, Outcome]]:
        """Take every job on by one token or more."""
        outcomes = [(job, begun) for job in jobs if (begun := job.text.begin()) is not None]
        going = [job for job in jobs if job.text.end is None]
        piped, others = self._divided(going)
        if self._pipeline is not None:
            outcomes += self._pipeline.step(piped)
        turns = self._propose(others)
        if self._pool is not None:
            ahead = [(turn.job, turn.job.text.look_ahead(self._pool, turn.proposals)) for turn in turns]
            outcomes += [(job, outcome) for job, outcome in ahead if outcome is not None]
        turns = [turn for turn in turns if turn.job.text.end is None]
        for turn, logits in zip(turns, self._logits(turns), strict=True):
            taken = _take(Foreseen(turn.job.text, logits, turn.proposals))
            outcomes += [(turn.job, outcome) for outcome in taken]
            if turn.drafted:
                turn.job.accepted_draft_tokens += len(taken) - 1
                turn.job.rejected_draft_tokens += len(turn.proposals) - len(taken) + 1
            for sequence in turn.job.sequences:
                length = len(sequence.sequence_ids)
                # The last token has not been through the model.
                sequence.computed(self._table, length - 1, length - turn.job.text.unsettled)
        return outcomes

    def _divided(self, jobs: list[ExLlamaV2DynamicJob]) -> tuple[list[ExLlamaV2DynamicJob], list[ExLlamaV2DynamicJob]]:
        """The jobs whose tokens are drawn where the model is, and the others."""
        size = self._table.page_size
        if self.loras or self._drafter is not None or not decode.supports(self._model, self._cache, size):
            return [], jobs
        if self._pipeline is None:
            self._pipeline = Pipeline(
                self._cache.decoder(size), self._table, self._sizes, self._pool, self._jump_forward
            )
        piped: list[ExLlamaV2DynamicJob] = []
        others: list[ExLlamaV2DynamicJob] = []
        for job in jobs:
            (piped if self._pipeline.takes(job) else others).append(job)
        return piped, others

    def _propose(self, jobs: Sequence[ExLlamaV2DynamicJob]) -> list[_Turn]:
        """Find tokens that will or may come next, for each job."""
        turns, drafts = [], []
        for job in jobs:
            # Nothing has to be known of what comes after the last token of a text.
            room = (job.text.remaining or 1) - 1
            turn = _Turn(job, propose_forced(job.text, room) if self._jump_forward else [])
            turns.append(turn)
            if self._drafter is not None and not turn.proposals and not job.text.healing and not job.embeddings:
                turn.drafted = True
                drafts.append(Draft(job.sequences[0], min(room, self._draft_tokens), job.text.scout(), turn.proposals))
        if self._drafter is not None:
            self._drafter.propose(drafts)
        return turns

    def _logits(self, turns: Sequence[_Turn]) -> list[torch.Tensor]:
        """Logits of each job, float32 of shape (sequences, 1 + proposals, padded vocabulary), on the CPU."""
        if not turns:
            return []
        rows = [each.row(self._table, turn.proposals) for turn in turns for each in turn.job.sequences]
        embeddings = [each for turn in turns for each in turn.job.embeddings]
        logits = self._model.forward_paged(rows, self._cache, self.loras, embeddings)
        assert logits is not None
        counts = [len(turn.job.sequences) * (1 + len(turn.proposals)) for turn in turns]
        parts = torch.split(logits.float().cpu(), counts)
        return [part.view(len(turn.job.sequences), -1, part.shape[-1]) for part, turn in zip(parts, turns, strict=True)]


def _take(foreseen: Foreseen) -> list[Outcome]:
    outcomes = []
    while foreseen.more:
        outcomes.append(foreseen.step())
    return outcomes


@dataclass
class _Turn:
    """What goes through the model for a job: its last token, and proposals, which are drafted or forced."""

    job: ExLlamaV2DynamicJob
    proposals: list[int]
    drafted: bool = False
