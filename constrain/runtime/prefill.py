"""Prefill: prompts go through the model in chunks, several of them per forward pass (chunked prefill)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from constrain.runtime.cached_tokens import CachedTokens
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.sequence import SequenceState
from constrain.runtime.speculative.proposer import Proposer

#: A sequence, one of its rows, and a chunk of the prompt of that row.
_Chunk: TypeAlias = tuple[SequenceState, CachedTokens, BatchRow]


class Prefill:
    """Computes prompts, one forward pass per step, so that other sequences get their tokens in between."""

    def __init__(self, runner: ModelRunner, max_chunk_size: int) -> None:
        self._runner, self._max_chunk_size = runner, max_chunk_size
        self._num_steps = 0

    def step(self, sequences: Sequence[SequenceState], proposer: Proposer | None) -> list[SequenceState]:
        """Compute chunks of prompts, also in the proposer of draft tokens.

        The prompts that are nearest to their ends come first, so that short ones need not wait for long ones. Every
        other step begins with the sequence that has waited longest, so that none starves.

        Args:
            sequences: in the order in which they started.
            proposer: the proposer, if there is one.

        Returns:
            The sequences that progressed, through this pass or through the pages of others.
        """
        self._num_steps += 1
        order = sorted(sequences, key=lambda each: sum(row.prompt_end - row.position for row in each.rows))
        if self._num_steps % 2:
            order = [*sequences[:1], *(each for each in order if each is not sequences[0])]
        batch = self._chunks([(sequence, row) for sequence in order for row in sequence.rows])
        if batch:
            first = batch[0][0].request
            self._runner.prefill([chunk for _, _, chunk in batch], first.loras, first.embeddings)
            _prefill_drafts(batch, proposer)
        for _, row, chunk in batch:
            row.computed(chunk.end, chunk.end)
            row.skip_cached()
        computed = {sequence for sequence, _, _ in batch}
        return [each for each in sequences if each in computed or any(row.copied for row in each.rows)]

    def _chunks(self, waiting: Sequence[tuple[SequenceState, CachedTokens]]) -> list[_Chunk]:
        """Return the prompt chunks of the next pass.

        Sequences with a common prefix share pages: the tokens that one computes, the others skip in a later step.
        """
        batch: list[_Chunk] = []
        written: set[int] = set()
        room = self._max_chunk_size
        for sequence, row in waiting:
            row.skip_cached()
            chunk = row.prompt_chunk(room) if room > 0 else None
            if chunk is None or (batch and not self._fits(batch[0][0], sequence, row, chunk, room)):
                continue
            pages = chunk.pages(self._runner.page_size)
            if written.isdisjoint(pages):
                batch.append((sequence, row, chunk))
                written.update(pages)
                room -= len(chunk.ids)
        return batch

    def _fits(
        self, first: SequenceState, sequence: SequenceState, row: CachedTokens, chunk: BatchRow, room: int
    ) -> bool:
        """Return whether a chunk may join a pass with others: it must end with a page or with the prompt."""
        is_whole = chunk.end == row.prompt_end or chunk.end % self._runner.page_size == 0
        one, other = first.request, sequence.request
        shares = first is sequence or (one.loras == other.loras and not one.embeddings and not other.embeddings)
        return is_whole and len(chunk.ids) <= room and shares


def _prefill_drafts(batch: Sequence[_Chunk], proposer: Proposer | None) -> None:
    """Prefill the same chunks in the proposer, where it has computed all earlier ones."""
    drafted = [
        (row, chunk)
        for sequence, row, chunk in batch
        if len(sequence.rows) == 1 and not sequence.request.embeddings and row.draft_position == chunk.past
    ]
    if proposer is None or not drafted:
        return
    proposer.prefill([chunk for _, chunk in drafted])
    for row, chunk in drafted:
        row.draft_position = chunk.end
