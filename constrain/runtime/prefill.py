"""Prefill: prompts go through the model in chunks, several of them per forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from constrain.runtime.cached_tokens import CachedTokens
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.sequence import SequenceState
from constrain.runtime.speculative.proposer import Proposer

#: A sequence, one of its rows, and a chunk of the prompt of that row.
_Chunk: TypeAlias = tuple[SequenceState, CachedTokens, BatchRow]


class Prefill:
    """Computes prompts.

    Args:
        runner: runs the forward passes.
        max_chunk_size: maximum number of prompt tokens in a pass, and of a sequence in a step.
    """

    def __init__(self, runner: ModelRunner, max_chunk_size: int) -> None:
        self._runner, self._max_chunk_size = runner, max_chunk_size

    def step(self, sequences: Sequence[SequenceState], proposer: Proposer | None) -> list[SequenceState]:
        """Compute a chunk of each prompt, also in the proposer of draft tokens.

        Returns:
            The sequences that got on, through this or through the pages of others.
        """
        waiting = [(sequence, row) for sequence in sequences for row in sequence.rows]
        limits = dict.fromkeys(sequences, self._max_chunk_size)
        computed: set[SequenceState] = set()
        while waiting:
            batch, waiting = self._chunks(waiting, limits)
            if not batch:
                break
            first = batch[0][0].request
            self._runner.prefill([chunk for _, _, chunk in batch], first.loras, first.embeddings)
            _prefill_drafts(batch, proposer)
            for sequence, row, chunk in batch:
                row.computed(chunk.end, chunk.end)
                row.skip_cached()
                limits[sequence] -= len(chunk.ids)
                computed.add(sequence)
        return [each for each in sequences if each in computed or any(row.copied for row in each.rows)]

    def _chunks(
        self, waiting: Sequence[tuple[SequenceState, CachedTokens]], limits: Mapping[SequenceState, int]
    ) -> tuple[list[_Chunk], list[tuple[SequenceState, CachedTokens]]]:
        """Return the prompt chunks of the next pass, and the rows that have to wait for a later one.

        Sequences with a common prefix share pages: the tokens that one computes, the others skip in a later pass.
        """
        batch: list[_Chunk] = []
        later: list[tuple[SequenceState, CachedTokens]] = []
        written: set[int] = set()
        room = self._max_chunk_size
        for sequence, row in waiting:
            row.skip_cached()
            chunk = row.prompt_chunk(limits[sequence])
            if chunk is None:
                continue
            pages = chunk.pages(self._runner.page_size)
            fits = not batch or (len(chunk.ids) <= room and _share_passes(batch[0][0], sequence))
            if not fits or not written.isdisjoint(pages):
                later.append((sequence, row))
                continue
            batch.append((sequence, row, chunk))
            written.update(pages)
            room -= len(chunk.ids)
        return batch, later


def _share_passes(one: SequenceState, other: SequenceState) -> bool:
    """Return whether chunks of two prompts may share a forward pass."""
    return one is other or (
        one.request.loras == other.request.loras and not one.request.embeddings and not other.request.embeddings
    )


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
