"""Computes the token masks of a batch of sequences while the model runs.

Constraints of the engine advance in one native call, on threads that do not need the GIL; filters that ask for a
background worker run on Python threads. All others run on the thread of the runtime when their mask is needed.
"""

from __future__ import annotations

import math
from collections import deque
from concurrent.futures import Executor, Future
from os import cpu_count
from threading import Lock
from time import perf_counter
from typing import Protocol

from constrain.engine.advance import Advance, Workers
from constrain.filters import Constraint
from constrain.filters.masks import TokenMask
from constrain.filters.time_limit import THREADS

#: Seconds without a result after which another Python thread joins a batch.
_STALL_SECONDS = 1e-3
#: Maximum number of threads that compute masks of the engine.
_MAX_WORKERS = 8


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
        while True:
            try:
                mask = self._waiting.popleft()
            except IndexError:  # none is left
                return
            mask.run()
            self._last_progress = perf_counter()


def native_workers() -> Workers:
    """Return threads that advance constraints of the engine."""
    return Workers(min(_MAX_WORKERS, cpu_count() or 1))


class MaskBatch:
    """Constraints that advance concurrently, on threads of the engine or of Python."""

    def __init__(self, workers: Workers, threads: Executor = THREADS) -> None:
        self._advance = Advance(workers)
        self._threaded = _ThreadedBatch(threads)

    def add(self, constraint: Constraint, token: int | None, budget: int | None) -> PendingMask | None:
        """Queue accepting ``token``, if any, and computing the next mask; the work begins with :meth:`start`.

        Returns the pending mask, until which the constraint must not be used; ``None`` for a constraint that has to run
        on the thread of the runtime.
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
