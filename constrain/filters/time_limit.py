"""Calls that may take only so long."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def call_within(seconds: float, call: Callable[..., T], *args: Any) -> T:
    """Return ``call(*args)``.

    It runs on a thread of its own, which is left behind if it takes too long: nothing can end it, but it does not keep
    the process from ending either.

    Raises:
        TimeoutError: it did not return in time.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call(*args))
        except BaseException as error:  # it belongs to whoever waits for the result
            future.set_exception(error)

    Thread(target=run, name="constrain-filter", daemon=True).start()
    try:
        return future.result(seconds)
    except FutureTimeout:
        if future.done():  # the call itself raised it
            raise
        raise TimeoutError(f"no result within {seconds} seconds") from None
