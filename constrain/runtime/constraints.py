"""Masks of the sequences of a batch, computed while the model runs.

Constraints of the engine advance in one native call, on threads that do not need Python's lock; filters that ask for a
background worker run on Python threads. All others are asked when their mask is needed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from os import cpu_count
from time import perf_counter
from typing import Protocol

from constrain.engine.advance import Advance, Workers
from constrain.errors import FilterError
from constrain.filters import Constraint
from constrain.filters.masks import TokenMask, contains, only_end
from constrain.filters.time_limit import THREADS

#: What it costs, roughly, to hand work to a Python thread and back.
_HANDOFF_SECONDS = 1e-4
#: Masks in a row that have to take less before a constraint is asked without one.
_MIN_QUICK = 16
#: Most threads that compute masks of the engine.
_MAX_WORKERS = 8


class PendingMask(Protocol):
    """A token that is being accepted, and the mask after it."""

    #: What it took on a Python thread; infinity where that is not known.
    seconds: float

    @property
    def done(self) -> bool:
        """Whether :meth:`result` returns at once."""

    def result(self, budget: int | None) -> TokenMask | None:
        """Wait for the mask; raises what the constraint raised."""


class _NativeMask:
    """A matcher that advances in a native batch."""

    seconds = math.inf

    def __init__(self, constraint: Constraint, advance: Advance, place: int, token: int | None) -> None:
        self._constraint, self._advance, self._place, self._token = constraint, advance, place, token

    @property
    def done(self) -> bool:
        return self._advance.done(self._place)

    def result(self, budget: int | None) -> TokenMask | None:
        accepted, mask = self._advance.result(self._place)
        if not accepted:
            if self._token is not None:
                self._constraint.accept(self._token)
            return self._constraint.mask(budget)
        if self._token is not None:
            self._constraint.accepted(self._token, [mask])
        return self._constraint.mask(budget)


class _ThreadedMask:
    """A constraint that advances on a Python thread."""

    def __init__(self, threads: Executor, constraint: Constraint, token: int | None, budget: int | None) -> None:
        self._future: Future[TokenMask | None] = threads.submit(self._advance, constraint, token, budget)
        self.seconds = math.inf

    @property
    def done(self) -> bool:
        return self._future.done()

    def result(self, budget: int | None) -> TokenMask | None:
        return self._future.result()

    def _advance(self, constraint: Constraint, token: int | None, budget: int | None) -> TokenMask | None:
        begin = perf_counter()
        if token is not None:
            constraint.accept(token)
        mask = constraint.mask(budget)
        self.seconds = perf_counter() - begin
        return mask


class MaskWorkers:
    """The threads that advance constraints."""

    def __init__(self) -> None:
        self.native = Workers(min(_MAX_WORKERS, cpu_count() or 1))
        self.threads: Executor = THREADS

    def batch(self) -> MaskBatch:
        """A batch to add constraints to."""
        return MaskBatch(self)


class MaskBatch:
    """Constraints that advance at the same time."""

    def __init__(self, workers: MaskWorkers) -> None:
        self._workers = workers
        self._advance = Advance(workers.native)

    def add(
        self, constraint: Constraint, token: int | None, budget: int | None, is_quick: bool = False
    ) -> PendingMask | None:
        """Have a constraint accept a token, or none, and compute the mask after it, from :meth:`start` on.

        Args:
            constraint: nobody else uses it before the mask is done.
            token: becomes part of the sequence.
            budget: for the mask.
            is_quick: whether its masks take so little that a Python thread is not worth it.

        Returns:
            The pending mask, before which nobody may use the constraint; ``None`` for a constraint that has to be asked
            on the thread of the runtime.
        """
        matchers = constraint.matchers
        if matchers is not None and len(matchers) == 1:
            place = self._advance.add(matchers[0], token, budget)
            return None if place is None else _NativeMask(constraint, self._advance, place, token)
        if not constraint.in_background or is_quick:
            return None
        return _ThreadedMask(self._workers.threads, constraint, token, budget)

    def start(self) -> None:
        """Begin with the native part."""
        self._advance.start()


class SequenceConstraint:
    """The constraint of one sequence, with what is pending.

    Attributes:
        ends: tokens that complete the constraint, of those that may come next.
    """

    def __init__(self, constraint: Constraint, eos: int | None) -> None:
        """
        Args:
            constraint: not begun.
            eos: allow this token alone as soon as the constraint allows it; ``None``: no preference.
        """
        self.constraint = constraint
        self.ends: Collection[int] = ()
        self._ends_after: list[Collection[int]] = []
        self._eos = eos
        self._pending: PendingMask | None = None
        self._promised: int | None = None
        self._known: tuple[TokenMask | None] | None = None
        self._num_quick = 0

    def begin(self, prefix: str) -> None:
        """Start, or start again, after text that the next token generates anew."""
        self._forget()
        self._ends_after = []
        self.constraint.begin(prefix)

    def begin_within(self, text: str) -> bool:
        """Start with the end of a token as first text; returns whether the constraint allows it."""
        self._forget()
        return self.constraint.begin_within(text)

    def prefetch(self, batch: MaskBatch, token: int | None, budget: int | None) -> None:
        """Add the next mask to a batch; with ``token``, the one that :meth:`accept` is given next."""
        if self._pending is not None or (token is None and self._known is not None):
            return
        self._pending = batch.add(self.constraint, token, budget, self._num_quick >= _MIN_QUICK)
        if self._pending is not None:
            self._promised, self._known = token, None

    @property
    def ready(self) -> bool:
        """Whether :meth:`mask` has nothing to wait for."""
        return self._pending is None or self._pending.done

    def accept(self, token: int) -> None:
        """Accept a token, unless it is being accepted already."""
        if self._promised is not None:
            self._promised = None
            return
        self._forget()
        self.ends = self._ends_after.pop(0) if self._ends_after else ()
        self.constraint.accept(token)

    def mask(self, budget: int | None) -> TokenMask | None:
        """The allowed tokens, ``None`` for all.

        Raises:
            DeadEnd: there is none.
            FilterError: a filter failed.
        """
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._known = (pending.result(budget),)
            self._note_time(pending.seconds)
        elif self._known is None:
            begin = perf_counter()
            self._known = (self.constraint.mask(budget),)
            self._note_time(perf_counter() - begin)
        (mask,) = self._known
        self.ends = self.constraint.end_tokens if mask is not None else ()
        return mask if mask is None or self._eos is None else only_end(mask, self._eos)

    def fork(self, budget: int | None) -> SequenceConstraint | None:
        """A copy at the same place, which goes its own way; ``None`` where a filter cannot be copied."""
        try:
            self.mask(budget)  # what is pending has to be done
            fork = self.constraint.fork()
        except FilterError:
            return None  # the same error comes when the filter is asked for its mask
        return None if fork is None else SequenceConstraint(fork, self._eos)

    def discard_mask(self) -> None:
        """Ask for the mask again next time."""
        self._known = None

    def masks_after(self, proposals: Sequence[int], budget: int | None) -> list[TokenMask | None]:
        """Masks after each of some proposed tokens, up to the first that is not allowed."""
        masks: list[TokenMask | None] = []
        self._ends_after = []
        ahead = self.fork(budget) if proposals else None
        if ahead is None:
            return masks
        with suppress(FilterError):  # it is raised when it is known that the tokens do come
            allowed = self.mask(budget)
            for token in proposals:
                if not contains(allowed, token):
                    break
                ahead.accept(token)
                budget = None if budget is None else budget - 1
                allowed = ahead.mask(budget)
                if ahead.constraint.bias is not None:
                    break  # it would have to be added to the logits of this proposal alone
                masks.append(allowed)
                self._ends_after.append(ahead.ends)
        return masks

    def forced_tokens(self, limit: int, budget: int | None) -> Sequence[int]:
        """Tokens of text that is certain to follow."""
        try:
            if self._pending is not None:
                self.mask(budget)
            return self.constraint.forced_tokens(limit)
        except FilterError:
            return []  # the same error comes when the filter is asked for its mask

    def close(self) -> None:
        """Drop background work: nobody asks any more."""
        self._pending = self._known = None
        self.constraint.close()

    def _note_time(self, seconds: float) -> None:
        self._num_quick = self._num_quick + 1 if seconds < _HANDOFF_SECONDS else 0

    def _forget(self) -> None:
        """Wait for what is pending, and drop its mask."""
        pending, self._pending = self._pending, None
        self._promised, self._known = None, None
        if pending is not None:
            with suppress(FilterError):  # the same error comes when the filter is asked again
                pending.result(None)
