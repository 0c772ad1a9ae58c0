"""Calls with a time limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as FutureTimeout
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

#: Threads that wait for work.
_MAX_IDLE = 64


class OutOfTime(TimeoutError):
    """A call did not return in time."""


class OwnThreads(Executor):
    """Runs every call on a thread that has nothing else to do.

    A call that never returns keeps no other waiting, and does not keep the process from ending. Nothing can end it.
    Threads are reused, since starting one takes as long as many calls.
    """

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[Callable[[], None]]] = deque()

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Start a call; an exception of it is that of the future."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:  # it belongs to whoever waits for the result
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


#: Where filters run: beside the model, and within a time limit.
THREADS = OwnThreads()


def call_within(seconds: float, call: Callable[..., T], *args: Any) -> T:
    """Return ``call(*args)``; a call that takes too long is abandoned.

    Raises:
        OutOfTime: it did not return in time.
    """
    future = THREADS.submit(call, *args)
    try:
        return future.result(seconds)
    except FutureTimeout:
        if future.done():  # just now, or the call itself raised it
            return future.result()
        raise OutOfTime(f"no result within {seconds} seconds") from None
