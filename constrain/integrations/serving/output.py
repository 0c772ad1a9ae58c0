"""The state of one output in a server: which tokens may come next, and whether it has ended."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from constrain.arguments import check_count
from constrain.engine import CompiledGrammar
from constrain.engine.bitmask import packed
from constrain.errors import BitmaskError, BudgetError, ConstrainError

_log = logging.getLogger(__name__)

#: What the engine raises: its errors, and what would be a defect of it, which must not end the outputs of others.
ENGINE_ERRORS = (ConstrainError, RuntimeError, MemoryError)

#: Bytes of the shortest text along which masks of a new grammar are computed ahead.
_AHEAD = 16


class OutputState:
    """The state of one output under a grammar; it has stop tokens, and keeps errors in place of raising them.

    Nothing here raises because of the grammar, since servers share one loop between all requests: if a limit of the
    grammar is reached, the output may only end, no token is accepted, and :attr:`error` says why.

    Args:
        grammar: the grammar.
        stop_ids: tokens that end the output; by default the end-of-sequence tokens of the vocabulary. They are allowed
            where the text is complete.

    Attributes:
        error: why the output cannot go on, or ``None``.
        num_tokens: number of accepted tokens.
    """

    def __init__(self, grammar: CompiledGrammar, stop_ids: Collection[int] = ()) -> None:
        self.grammar = grammar
        self.error: Exception | None = None
        self.num_tokens = 0
        self._matcher = grammar.matcher()
        self._eos_ids = frozenset(grammar.vocabulary.eos_token_ids)
        self._stop_ids = frozenset(stop_ids) or self._eos_ids
        self._has_own_stops = self._stop_ids != self._eos_ids
        self._ended = False
        self._ended_by_matcher = False

    @property
    def is_terminated(self) -> bool:
        """Whether a token that ends the output has been accepted."""
        return self._ended

    def prepare(self, budget: int | None = None) -> None:
        """Compute the first mask ahead; of a grammar without masks, also some that most outputs come to.

        For the thread that compiles, so that the loop of the server finds them.

        Args:
            budget: as for :meth:`fill_bitmask`.
        """
        ahead = self._matcher.clone()
        is_new = not self.grammar.counters["masks_built"]
        with suppress(*ENGINE_ERRORS):  # reported when the mask is filled
            ahead.mask(budget)
            for byte in ahead.completion()[:_AHEAD] if is_new else b"":
                ahead.accept_bytes(bytes([byte]))
                ahead.mask(budget)

    def min_tokens(self) -> int:
        """Return the fewest tokens that complete the output, the one that ends it included.

        Raises:
            VocabularyError: the rest of the text is not tokenizable.
        """
        return 0 if self._ended else self._matcher.min_tokens()

    def accept(self, token: int) -> bool:
        """Append a token; false, without any change, if it is not allowed. Tokens after the end are ignored."""
        if self._ended or self.error:
            return self._ended
        try:
            accepted = self._accept(token)
        except ENGINE_ERRORS as error:
            self._fail(error)
            return False
        self.num_tokens += accepted
        return accepted

    def rollback(self, count: int) -> None:
        """Remove the last ``count`` accepted tokens.

        Raises:
            ArgumentError: the count is negative, or greater than the number of accepted tokens.
        """
        check_count("count", count, 0, self.num_tokens)
        if not count:
            return
        self.error = None
        self.num_tokens -= count
        if self._ended and not self._ended_by_matcher:
            count -= 1
        self._ended = self._ended_by_matcher = False
        self._matcher.rollback(count)

    def reset(self) -> None:
        """Go back to the start of the output."""
        self.error, self.num_tokens = None, 0
        self._ended = self._ended_by_matcher = False
        self._matcher.reset()

    def copy(self) -> OutputState:
        """Return a copy that advances independently."""
        copy = OutputState(self.grammar, self._stop_ids)
        if self.num_tokens or self.error is not None:
            matcher = self._matcher.clone()
            copy.__dict__.update(self.__dict__, _matcher=matcher)
        # At the start the copy has a matcher of its own: clones share their memory, which grows with each of them, and
        # a server may keep one state for ever, and copy it for each request.
        return copy

    def valid_prefix(self, tokens: Sequence[int]) -> list[int]:
        """Return the longest prefix of these tokens that may follow; the state does not change."""
        before = self.num_tokens
        for token in tokens:
            if self._ended or not self.accept(token):
                break
        count = self.num_tokens - before
        self.rollback(count)
        return list(tokens[:count])

    def forced_tokens(self, limit: int = 64) -> list[int]:
        """Return the next tokens, at most ``limit``, up to the first choice."""
        if self._ended or self.error is not None:
            return []
        try:
            return self._matcher.forced_tokens(limit)
        except ENGINE_ERRORS as error:
            self._fail(error)
            return []

    def fill_bitmask(self, bits: Any, row: int = 0, budget: int | None = None) -> None:
        """Write the allowed tokens into a row of a bitmask.

        Args:
            bits: an int32 array or CPU tensor ``[rows, words]``; see :meth:`Matcher.fill_bitmask`.
            row: the row.
            budget: number of tokens that are left, the one that ends the output included. Only tokens are allowed after
                which the output can still be complete; if that is too late, those of a shortest completion.

        Raises:
            BitmaskError: the array is of another type, too narrow, or has no such row.
        """
        if self.error is not None or self._ended:
            self._only_stops(bits, row)
            return
        try:
            self._fill(bits, row, budget)
        except BitmaskError:  # a mistake of the caller: it is not the output that cannot go on
            raise
        except ENGINE_ERRORS as error:
            self._fail(error)
            self._only_stops(bits, row)

    def _accept(self, token: int) -> bool:
        if token in self._eos_ids:
            self._ended = self._ended_by_matcher = token in self._stop_ids and self._matcher.accept(token)
            return self._ended
        if token in self._stop_ids and self._matcher.is_accepting():
            self._ended = True
            return True
        return self._matcher.accept(token)

    def _fill(self, bits: Any, row: int, budget: int | None) -> None:
        try:
            self._matcher.fill_bitmask(bits, row, budget)
        except BudgetError as error:
            self._matcher.fill_bitmask(bits, row, error.needed)
        if self._has_own_stops:
            self._allow_stops(np.atleast_2d(np.asarray(bits))[row])

    def _allow_stops(self, words: Any) -> None:
        """Allow the stop tokens of this output where the text is complete; elsewhere none, if others may come."""
        ends = packed(sorted(self._eos_ids | self._stop_ids), len(words))
        others = words & ~ends
        if self._matcher.is_accepting():
            words[:] = others | packed(sorted(self._stop_ids), len(words))
        elif others.any():
            words[:] = others

    def _only_stops(self, bits: Any, row: int) -> None:
        rows = np.atleast_2d(np.asarray(bits))
        needed = (self.grammar.vocabulary.size + 31) // 32
        if rows.dtype.itemsize != 4 or rows.dtype.kind not in "iu" or rows.shape[1] < needed:
            raise BitmaskError(f"a bitmask is int32 [rows, {needed}] or wider, not {rows.dtype} {list(rows.shape)}")
        if not 0 <= row < len(rows):
            raise BitmaskError(f"row {row} is outside a bitmask of {len(rows)} rows")
        words = rows[row]
        words[:] = packed(sorted(self._stop_ids), len(words))

    def _fail(self, error: Exception) -> None:
        _log.warning("an output cannot go on: %s", error)
        self.error = error
