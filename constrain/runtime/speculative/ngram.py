"""Draft tokens by n-grams: those that followed the same tokens before (prompt lookup)."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from constrain.runtime.sequence import SequenceState
from constrain.runtime.speculative.proposer import MIN_ACCEPTANCE, SMOOTHING, Proposer


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
        return self._updated(sequence).rate >= MIN_ACCEPTANCE

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
            state.rate += SMOOTHING / 2 * ((token == state.expected) - state.rate)
            state.index.extend([token])
            state.expected = next(iter(self._predict(state, 1)), None)
        return state
