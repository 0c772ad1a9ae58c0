"""Calls with a time limit, and the thread pool of filters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as FutureTimeout
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

#: Maximum number of idle threads.
_MAX_IDLE = 64


class OutOfTime(TimeoutError):
    """A call did not return in time."""


class UnboundedThreadPool(Executor):
    """A thread pool that starts a thread for every call for which none is idle.

    So a call that never returns does not block others, nor the exit of the process. It cannot be cancelled. Threads are
    reused, since starting one takes as long as many calls.
    """

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[Callable[[], None]]] = deque()

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Start a call on an idle or new thread."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:  # raised again by Future.result
                future.set_exception(error)

        try:
            self._idle.pop().put(run)
        except IndexError:
            Thread(target=self._work, args=(run,), name="constrain-filter", daemon=True).start()
        return future

    def _work(self, work: Callable[[], None]) -> None:
        inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        while True:
            work()
            if len(self._idle) >= _MAX_IDLE:
                return
            self._idle.append(inbox)
            work = inbox.get()


#: The thread pool of filters, for evaluation in the background and with a time limit.
THREADS = UnboundedThreadPool()


def call_within(seconds: float, call: Callable[..., T], *args: Any) -> T:
    """Return ``call(*args)``; a call that takes too long is abandoned.

    Raises:
        OutOfTime: it did not return in time.
    """
    future = THREADS.submit(call, *args)
    try:
        return future.result(seconds)
    except FutureTimeout:
        if future.done():  # ended just after the time limit, or raised TimeoutError itself
            return future.result()
        raise OutOfTime(f"no result within {seconds} seconds") from None
