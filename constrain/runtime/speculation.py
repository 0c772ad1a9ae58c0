"""Speculative decoding: next tokens are proposed here, and the model verifies them in one forward pass.

A proposed token is accepted only if it equals the token sampled at its position: proposals change the speed, not the
output (Leviathan et al. 2023, with equality in place of rejection sampling, since random numbers belong to positions).
:mod:`constrain.runtime.decode_loop` verifies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

import numpy as np
import torch

from constrain.errors import FilterError
from constrain.filters.masks import row
from constrain.kernels import apply_bitmask
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase
from constrain.runtime.batch import BatchRow
from constrain.runtime.constraints import SequenceConstraint
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.sequence import SequenceState

#: Maximum number of tokens of text that is certain to follow in one forward pass.
MAX_FORCED = 64
#: Number of rows up to which a pass costs about as much as with one row, since reading the weights dominates.
_CHEAP_ROWS = 64

# The acceptance rate is a moving average; when it falls below the first value, drafting pauses.
_MIN_ACCEPTANCE = 0.3
_SMOOTHING = 0.5
_FIRST_PAUSE, _MAX_PAUSE = 8, 64


class Acceptance:
    """Acceptance rate of the proposals for a sequence, which decides how many tokens to propose.

    Attributes:
        rate: moving average of the share of accepted proposals; starts at 1.
    """

    def __init__(self) -> None:
        self.rate = 1.0
        self._pause, self._paused = _FIRST_PAUSE, 0

    @property
    def is_paused(self) -> bool:
        """Whether drafting is paused for the next token."""
        return self._paused > 0

    def advance(self, tokens: int) -> None:
        """Count tokens that were sampled without a proposal."""
        self._paused = max(0, self._paused - tokens)

    def limit(self, most: int) -> int:
        """Return the number of tokens to propose, ``most`` or, while few are accepted, one."""
        return most if self.rate >= _MIN_ACCEPTANCE else 1

    def observe(self, accepted: int, proposed: int) -> None:
        """Update with the outcome of a verification."""
        self.rate += _SMOOTHING * (accepted / proposed - self.rate)
        if accepted:
            self._pause = _FIRST_PAUSE
        elif self.rate < _MIN_ACCEPTANCE:
            self._paused, self._pause = self._pause, min(2 * self._pause, _MAX_PAUSE)


class Proposer(ABC):
    """A source of draft tokens.

    Attributes:
        num_tokens: maximum number of tokens to propose at a time.
    """

    num_tokens: int

    @abstractmethod
    def wants(self, sequence: SequenceState) -> bool:
        """Return whether the next pass of a sequence should wait until its tokens are known, to propose more."""

    @abstractmethod
    def propose(self, sequences: Sequence[SequenceState], limits: Sequence[int]) -> list[list[int]]:
        """Return draft tokens for each sequence that wants them, up to its limit; all its tokens are known."""

    def prefill(self, rows: Sequence[BatchRow]) -> None:
        """Prefill prompt chunks that went through the model."""
        return

    def observe(self, sequence: SequenceState, accepted: int, proposed: int) -> None:
        """Update with the outcome of a verification; both are zero for a token without proposals."""
        return

    def paged_tensors(self) -> list[torch.Tensor]:
        """Return tensors that are stored by page, under the same block tables: ``[num_pages, page_size, ...]``."""
        return []


class DraftModel(Proposer):
    """Proposes the most likely tokens of a smaller model.

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
            page_size: positions per page.
            width: number of tokens that the target model samples from.
            num_tokens: maximum number of tokens to propose at a time.
        """
        self.runner = ModelRunner(model, cache, page_size)
        self.num_tokens, self.min_probability = num_tokens, 0.0
        self._width = min(width, model.config.vocab_size)
        self._acceptance: WeakKeyDictionary[SequenceState, Acceptance] = WeakKeyDictionary()

    def wants(self, sequence: SequenceState) -> bool:
        return not self._of(sequence).is_paused

    def prefill(self, rows: Sequence[BatchRow]) -> None:
        self.runner.prefill(rows)

    def paged_tensors(self) -> list[torch.Tensor]:
        return self.runner.paged_tensors()

    def observe(self, sequence: SequenceState, accepted: int, proposed: int) -> None:
        if proposed:
            self._of(sequence).observe(accepted, proposed)
        else:
            self._of(sequence).advance(1)

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


class NgramIndex:
    """Index of the last occurrence of each n-gram in a sequence.

    Args:
        longest: maximum length of an n-gram.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._tokens: list[int] = []
        self._following: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def truncate(self, length: int) -> None:
        """Remove the tokens from ``length`` on."""
        del self._tokens[length:]

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens."""
        known = self._tokens
        for token in tokens:
            end = len(known)
            for count in range(1, min(self._longest, end) + 1):
                self._following[tuple(known[end - count :])] = end
            known.append(token)

    @property
    def tail(self) -> list[int]:
        """The last tokens, as many as the longest n-gram has."""
        return self._tokens[max(0, len(self._tokens) - self._longest) :]

    def predict(self, count: int, tail: Sequence[int] | None = None) -> list[int]:
        """Return at most ``count`` tokens that followed the longest n-gram which ends the sequence, or ``tail``."""
        known, end = self._tokens, self.tail if tail is None else tail
        for start in range(len(end)):
            place = self._following.get(tuple(end[start:]), len(known))
            if place < len(known):
                return known[place : place + count]
        return []


class _NgramState:
    """The n-gram index of one sequence, and how often it predicted the next token."""

    def __init__(self, longest: int) -> None:
        self.index = NgramIndex(longest)
        self.expected: int | None = None
        self.rate = 1.0


class NgramProposer(Proposer):
    """Proposes the tokens that followed an earlier occurrence of the last few tokens (prompt lookup decoding).

    Every sampled token shows whether a proposal would have been right, so the rate is known without a verification.

    Args:
        longest: maximum number of tokens to match.
        num_tokens: maximum number of tokens to propose at a time.
    """

    def __init__(self, longest: int, num_tokens: int) -> None:
        self._longest, self.num_tokens = longest, num_tokens
        self._preloaded = NgramIndex(longest)
        self._states: WeakKeyDictionary[SequenceState, _NgramState] = WeakKeyDictionary()

    def preload(self, tokens: Sequence[int]) -> None:
        """Propose from these tokens if a sequence itself has no match."""
        self._preloaded = NgramIndex(self._longest)
        self._preloaded.extend(tokens)

    def wants(self, sequence: SequenceState) -> bool:
        return self._updated(sequence).rate >= _MIN_ACCEPTANCE

    def propose(self, sequences: Sequence[SequenceState], limits: Sequence[int]) -> list[list[int]]:
        return [
            self._predict(self._updated(sequence), limit) for sequence, limit in zip(sequences, limits, strict=True)
        ]

    def _predict(self, state: _NgramState, count: int) -> list[int]:
        return state.index.predict(count) or self._preloaded.predict(count, state.index.tail)

    def _updated(self, sequence: SequenceState) -> _NgramState:
        """Return the state of a sequence, with all its tokens in the index."""
        state = self._states.get(sequence)
        if state is None:
            state = self._states[sequence] = _NgramState(self._longest)
            state.index.extend(sequence.rows[0].tokens()[: len(sequence)])
            state.expected = next(iter(self._predict(state, 1)), None)
        if len(sequence) < len(state.index):
            state.index.truncate(len(sequence))
            state.expected = None
        for token in sequence.rows[0].tokens(len(state.index)):
            state.rate += _SMOOTHING / 2 * ((token == state.expected) - state.rate)
            state.index.extend([token])
            state.expected = next(iter(self._predict(state, 1)), None)
        return state


def max_proposals(num_rows: int) -> int:
    """Return the number of tokens that can be proposed for each row of a pass at little extra cost."""
    return max(0, _CHEAP_ROWS // num_rows - 1)
