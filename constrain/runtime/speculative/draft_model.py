"""Draft tokens by a smaller model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

import numpy as np
import torch

from constrain.errors import FilterError
from constrain.filters.masks import row
from constrain.kernels import apply_bitmask
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase
from constrain.runtime.constraints import SequenceConstraint
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.sequence import SequenceState
from constrain.runtime.speculative.proposer import Acceptance, Proposer


class DraftModel(Proposer):
    """Proposes the most likely tokens of a smaller model, as far as its context reaches.

    Attributes:
        runner: runs the smaller model.
        min_probability: drafts end before a token that is less likely than this.
    """

    def __init__(
        self, model: ExLlamaV2, cache: ExLlamaV2CacheBase, page_size: int, width: int, num_tokens: int
    ) -> None:
        """
        Args:
            model, cache: the smaller model, and its cache, with the same pages as that of the target model.
            page_size, num_tokens: positions per page, and most tokens to propose at a time.
            width: number of tokens that the target model samples from.
        """
        self.runner = ModelRunner(model, cache, page_size)
        self.num_tokens, self.min_probability = num_tokens, 0.0
        self._width = min(width, model.config.vocab_size)
        self._acceptance: WeakKeyDictionary[SequenceState, Acceptance] = WeakKeyDictionary()

    def wants(self, sequence: SequenceState) -> bool:
        is_within = len(sequence) + self.num_tokens <= self.runner.model.config.max_seq_len
        return is_within and not self._of(sequence).is_paused

    def prefill(self, rows: Sequence[BatchRow]) -> None:
        within = [row for row in rows if row.end <= self.runner.model.config.max_seq_len]
        if within:
            self.runner.prefill(within)

    def paged_tensors(self) -> list[torch.Tensor]:
        return self.runner.paged_tensors()

    def observe(self, sequence: SequenceState, accepted: int, proposed: int) -> None:
        self._of(sequence).observe(accepted, proposed)

    def propose(self, sequences: Sequence[SequenceState], limits: Sequence[int]) -> list[list[int]]:
        """Return the most likely tokens of consecutive forward passes; the host waits only for the last."""
        limits = [self._of(sequence).limit(limit) for sequence, limit in zip(sequences, limits, strict=True)]
        batch = [self._first_row(sequence) for sequence in sequences]
        guards = _DraftGuards(sequences, self._width)
        tokens, probabilities = [], []
        for _ in range(max(limits)):
            out = self.runner.decode(batch)
            with torch.inference_mode():
                states = self.runner.states_of(out, [len(row.ids) - 1 for row in batch])
                logits = self.runner.model.head(states, out.context)[:, : self._width].float()
                guards.apply(logits)
                best, ids = logits.softmax(-1).max(-1)
                self.runner.sampled[: len(ids)] = ids
            guards.accept(ids)
            tokens.append(ids)
            probabilities.append(best)
            batch = [BatchRow((0,), row.end, row.block_table, source=i) for i, row in enumerate(batch)]
        for sequence, last_row in zip(sequences, batch, strict=True):
            sequence.rows[0].draft_position = last_row.past
        columns, chances = torch.stack(tokens).T.tolist(), torch.stack(probabilities).T.tolist()
        return [
            self._likely(column[:limit], chance) for column, chance, limit in zip(columns, chances, limits, strict=True)
        ]

    def _of(self, sequence: SequenceState) -> Acceptance:
        return self._acceptance.setdefault(sequence, Acceptance())

    def _likely(self, tokens: list[int], probabilities: Sequence[float]) -> list[int]:
        weak = (i for i, (_, p) in enumerate(zip(tokens, probabilities, strict=False)) if p < self.min_probability)
        return tokens[: next(weak, len(tokens))]

    def _first_row(self, sequence: SequenceState) -> BatchRow:
        """Return the tokens that are new to the draft model; those before the last few are prefilled here."""
        own = sequence.rows[0]
        missing = own.tokens(own.draft_position)
        limit = self.runner.model.config.max_input_len
        while len(missing) > 2:
            chunk = missing[:-1][:limit]
            self.runner.prefill([BatchRow(chunk, own.draft_position, own.block_table)])
            own.draft_position += len(chunk)
            missing = missing[len(chunk) :]
        return BatchRow(missing, own.draft_position, own.block_table)


class _DraftGuards:
    """Masks draft logits, so that no draft token violates the constraint of its sequence."""

    def __init__(self, sequences: Sequence[SequenceState], width: int) -> None:
        self._words = (width + 31) // 32
        self._forks: dict[int, tuple[SequenceConstraint, int | None]] = {}
        for i, each in enumerate(sequences):
            with suppress(FilterError):  # verification truncates drafts that no fork guards
                fork = each.constraint.fork(each.budget)
                if fork.active is not None:
                    self._forks[i] = fork, each.budget

    def apply(self, logits: torch.Tensor) -> None:
        """Mask logits ``[rows, width]`` in place."""
        if not self._forks:
            return
        rows = np.full((len(logits), self._words), -1, dtype=np.int32)
        for i, (constraint, budget) in list(self._forks.items()):
            try:
                mask = constraint.mask(budget)
            except FilterError:
                del self._forks[i]  # verification truncates its drafts
                continue
            if mask is not None:
                rows[i] = row(mask, self._words)
        apply_bitmask(logits, torch.from_numpy(rows).to(logits.device))

    def accept(self, ids: torch.Tensor) -> None:
        """Accept a token for each row, int64 ``[rows]``; waits for the tokens if there is a constraint."""
        tokens = ids.tolist() if self._forks else []
        for i, (constraint, budget) in list(self._forks.items()):
            try:
                constraint.accept(tokens[i])
                self._forks[i] = constraint, None if budget is None else budget - 1
            except FilterError:
                del self._forks[i]
