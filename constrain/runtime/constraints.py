"""Computes the token masks of a batch of sequences while the model runs.

Constraints of the engine advance in one native call, on threads that do not need the GIL; filters that ask for a
background worker run on Python threads. All others run on the thread of the runtime when their mask is needed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from os import cpu_count
from threading import Lock
from time import perf_counter
from typing import Protocol

import torch

from constrain.engine.advance import Advance, Workers
from constrain.errors import FilterError
from constrain.filters import Constraint
from constrain.filters.masks import TokenMask, contains, only_end
from constrain.filters.time_limit import THREADS
from constrain.runtime.trigger import Trigger

#: Seconds without a result after which another Python thread joins a batch.
_STALL_SECONDS = 1e-3
#: Maximum number of threads that compute masks of the engine.
_MAX_WORKERS = 8
#: Number of allowed tokens above which no text is looked for that is certain to follow: their first bytes differ.
_MOST_ALLOWED = 4096
#: After this many searches in a row without such text, there is one at every fourth token only.
_FRUITLESS = 16


class PendingMask(Protocol):
    """A mask that is being computed, after a token that is being accepted."""

    @property
    def done(self) -> bool:
        """Whether :meth:`result` returns at once."""

    def result(self, budget: int | None) -> TokenMask | None:
        """Wait for the mask, and return it; raises the error of the constraint, if any."""


class _NativeMask:
    """Pending mask of a matcher that advances in a native batch."""

    def __init__(self, constraint: Constraint, advance: Advance, place: int, token: int | None) -> None:
        self._constraint, self._advance, self._place, self._token = constraint, advance, place, token

    @property
    def done(self) -> bool:
        return self._advance.done(self._place)

    def result(self, budget: int | None) -> TokenMask | None:
        accepted, mask = self._advance.result(self._place)
        if self._token is not None and accepted:
            self._constraint.accepted(self._token, [mask])
        elif self._token is not None:
            self._constraint.accept(self._token)
        return self._constraint.mask(budget)


class _ThreadedMask:
    """Pending mask of a constraint that advances in Python."""

    def __init__(self, batch: _ThreadedBatch, constraint: Constraint, token: int | None, budget: int | None) -> None:
        self._batch, self._constraint, self._token, self._budget = batch, constraint, token, budget
        self._claim = Lock()
        self._future: Future[TokenMask | None] = Future()

    @property
    def done(self) -> bool:
        if self._future.done():
            return True
        self._batch.add_thread_if_stalled()
        return False

    def result(self, budget: int | None) -> TokenMask | None:
        self.run()
        return self._future.result()

    def run(self) -> None:
        """Compute the mask, unless another thread is computing or has computed it."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            if self._token is not None:
                self._constraint.accept(self._token)
            self._future.set_result(self._constraint.mask(self._budget))
        except BaseException as error:  # raised again by `result`
            self._future.set_exception(error)


class _ThreadedBatch:
    """Constraints that advance one after another on a Python thread.

    Python code does not run in parallel, so one thread per constraint would only contend for the GIL. But when a filter
    blocks, on a file or in native code, another thread continues with the rest.
    """

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._waiting: deque[_ThreadedMask] = deque()
        self._last_progress = math.inf

    def add(self, constraint: Constraint, token: int | None, budget: int | None) -> PendingMask:
        mask = _ThreadedMask(self, constraint, token, budget)
        self._waiting.append(mask)
        return mask

    def start(self) -> None:
        if self._waiting:
            self._add_thread()

    def add_thread_if_stalled(self) -> None:
        if self._waiting and perf_counter() - self._last_progress > _STALL_SECONDS:
            self._add_thread()

    def _add_thread(self) -> None:
        self._last_progress = perf_counter()
        self._threads.submit(self._work)

    def _work(self) -> None:
        while self._waiting:
            try:
                mask = self._waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            mask.run()
            self._last_progress = perf_counter()


class MaskWorkers:
    """Worker threads that advance constraints."""

    def __init__(self) -> None:
        self.native = Workers(min(_MAX_WORKERS, cpu_count() or 1))
        self.threads: Executor = THREADS


class MaskBatch:
    """Constraints that advance concurrently."""

    def __init__(self, workers: MaskWorkers) -> None:
        self._advance = Advance(workers.native)
        self._threaded = _ThreadedBatch(workers.threads)

    def add(self, constraint: Constraint, token: int | None, budget: int | None) -> PendingMask | None:
        """Queue accepting ``token``, if any, and computing the next mask; the work begins with :meth:`start`.

        Args:
            constraint: must not be used by others until the mask is done.
            token: next token of the sequence; ``None``: only compute the mask.
            budget: token budget of the mask.

        Returns:
            The pending mask, until which the constraint must not be used; ``None`` for a constraint that has to run on
            the thread of the runtime.
        """
        matchers = constraint.matchers
        if matchers is not None and len(matchers) == 1:
            place = self._advance.add(matchers[0], token, budget)
            return None if place is None else _NativeMask(constraint, self._advance, place, token)
        return self._threaded.add(constraint, token, budget) if constraint.in_background else None

    def start(self) -> None:
        """Start computing the masks."""
        self._advance.start()
        self._threaded.start()


class SequenceConstraint:
    """The constraint of one sequence, with its pending mask. Before it begins, all tokens are allowed.

    Attributes:
        active: the constraint, once it has begun.
        ends: allowed next tokens that complete the constraint.
    """

    def __init__(self, constraint: Constraint | None, eos: int | None, trigger: Trigger | None = None) -> None:
        """
        Args:
            constraint: must not have begun; ``None``: none.
            eos: allow only this token as soon as the constraint allows it; ``None``: no preference.
            trigger: begins the constraint; ``None``: :meth:`begin` does.
        """
        self.active: Constraint | None = None
        self.ends: Collection[int] = ()
        self._ends_after: list[Collection[int]] = []
        self._constraint, self._eos, self._trigger = constraint, eos, trigger
        self._pending: PendingMask | None = None
        self._prefetched: int | None = None
        self._cached: tuple[TokenMask | None] | None = None
        self._fruitless = 0

    @property
    def may_begin(self) -> bool:
        """Whether to :meth:`begin` before the next token."""
        return self._constraint is not None and self.active is None and self._trigger is None

    @property
    def bias(self) -> torch.Tensor | None:
        """Bias to add to the next logits, float32 ``[width]`` on the CPU, known with :meth:`mask`."""
        return None if self.active is None else self.active.bias

    def begin(self, prefix: str = "") -> None:
        """Begin; ``prefix`` is text that the next token regenerates (token healing)."""
        self._reset(self._constraint)
        if self.active is not None:
            self.active.begin(prefix)

    def restart(self, prefix: str, tokens: Iterable[int]) -> None:
        """Begin again, or wait for the trigger again, and accept the tokens of the output."""
        if self._trigger is None:
            self.begin(prefix)
        else:
            self._trigger.reset()
            self._reset(None)
        for token in tokens:
            self.accept(token)

    def prefetch(self, batch: MaskBatch, token: int | None, budget: int | None) -> None:
        """Queue the next mask in a batch, after ``token`` if given; :meth:`accept` must get that token next."""
        if self.active is None or self._pending is not None or (token is None and self._cached is not None):
            return
        self._pending = batch.add(self.active, token, budget)
        if self._pending is not None:
            self._prefetched, self._cached = token, None

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`mask` returns without waiting."""
        return self._pending is None or self._pending.done

    def may_follow(self, token: int) -> bool:
        """Return false if the constraint excludes the text that a token adds after the trigger, which it completes."""
        if self._trigger is None or self._trigger.found:
            return True
        rest = self._trigger.rest_after(token)
        return rest is None or self._begin_within(rest)

    def accept(self, token: int) -> None:
        """Accept a token, unless :meth:`prefetch` has already queued it."""
        if self._trigger is not None and not self._trigger.found:
            rest = self._trigger.accept(token)
            if rest is not None and self._begin_within(rest):
                self.active = self._constraint
        elif self._prefetched is not None:
            self._prefetched = None
        elif self.active is not None:
            self._forget()
            self.ends = self._ends_after.pop(0) if self._ends_after else ()
            self.active.accept(token)

    def mask(self, budget: int | None) -> TokenMask | None:
        """Return the allowed tokens, ``None`` for all.

        Raises:
            DeadEnd: no token is allowed.
            FilterError: a filter failed.
        """
        if self.active is None:
            return None
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._cached = (pending.result(budget),)
        elif self._cached is None:
            self._cached = (self.active.mask(budget),)
        (mask,) = self._cached
        self.ends = self.active.end_tokens if mask is not None else ()
        return mask if mask is None or self._eos is None else only_end(mask, self._eos)

    def fork(self, budget: int | None) -> SequenceConstraint | None:
        """Return an independent copy in the same state; ``None`` if a filter cannot be copied."""
        if self.active is None:
            return SequenceConstraint(None, self._eos)
        try:
            self.mask(budget)  # the pending mask has to be done first
            fork = self.active.fork()
        except FilterError:
            return None  # computing the mask raises the same error again
        if fork is None:
            return None
        other = SequenceConstraint(fork, self._eos)
        other.active = fork
        return other

    def discard_mask(self) -> None:
        """Drop the cached mask, so that the next :meth:`mask` recomputes it."""
        self._cached = None

    def masks_after(self, proposals: Sequence[int], budget: int | None) -> list[TokenMask | None]:
        """Return the masks after each proposed token, up to the first that is not allowed."""
        masks: list[TokenMask | None] = []
        self._ends_after = []
        if self.active is None:
            return [None] * len(proposals)
        ahead = self.fork(budget) if proposals else None
        if ahead is None:
            return masks
        with suppress(FilterError):  # raised again once these tokens are actually sampled
            allowed = self.mask(budget)
            for token in proposals:
                if not contains(allowed, token):
                    break
                ahead.accept(token)
                budget = None if budget is None else budget - 1
                allowed = ahead.mask(budget)
                if ahead.bias is not None:
                    break  # it would have to be added to the logits of this proposal only
                masks.append(allowed)
                self._ends_after.append(ahead.ends)
        return masks

    def forced_tokens(self, limit: int, budget: int | None) -> Sequence[int]:
        """Return tokens of text that is certain to follow, at most ``limit``; not all that could be found."""
        try:
            mask = self.mask(budget)
            if mask is None or self.active is None or mask.count > _MOST_ALLOWED:
                return ()
            forced: Sequence[int] = ()
            if self._fruitless < _FRUITLESS or self._fruitless % 4 == 0:
                forced = self.active.forced_tokens(limit)
        except FilterError:
            return ()  # computing the mask raises the same error again
        self._fruitless = 0 if forced else self._fruitless + 1
        return forced

    def close(self) -> None:
        """Drop background work: no more masks are needed."""
        self._pending = self._cached = None
        if self._constraint is not None:
            self._constraint.close()

    def _begin_within(self, text: str) -> bool:
        """Begin with ``text``, the end of a token; return whether the constraint allows it."""
        self._forget()
        return self._constraint is not None and self._constraint.begin_within(text)

    def _reset(self, active: Constraint | None) -> None:
        self._forget()
        self.active, self.ends, self._ends_after = active, (), []

    def _forget(self) -> None:
        """Wait for the pending mask, if any, and drop it."""
        pending, self._pending = self._pending, None
        self._prefetched, self._cached = None, None
        if pending is not None:
            with suppress(FilterError):  # the filter raises the same error when it is used again
                pending.result(None)
