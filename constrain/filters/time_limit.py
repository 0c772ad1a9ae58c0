"""Calls with a time limit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class OutOfTime(TimeoutError):
    """A call did not return in time."""


class OwnThreads(Executor):
    """Runs every call on a thread of its own.

    One that never returns keeps no other call waiting, and does not keep the process from ending. Nothing can end it.
    """

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Start a call; an exception of it is that of the future."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:  # it belongs to whoever waits for the result
                future.set_exception(error)

        Thread(target=run, name="constrain-filter", daemon=True).start()
        return future


def call_within(seconds: float, call: Callable[..., T], *args: Any) -> T:
    """Return ``call(*args)``; a call that takes too long is abandoned.

    Raises:
        OutOfTime: it did not return in time.
    """
    future = OwnThreads().submit(call, *args)
    try:
        return future.result(seconds)
    except FutureTimeout:
        if future.done():  # just now, or the call itself raised it
            return future.result()
        raise OutOfTime(f"no result within {seconds} seconds") from None
