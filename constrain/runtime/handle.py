"""Handle of a submitted request: stream its output, wait for it, or cancel it, from any thread or event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from time import monotonic
from typing import Any, Protocol

from constrain.errors import GenerationError
from constrain.runtime.events import Output, Update, joined
from constrain.runtime.sequence import SequenceState

#: This many unread updates are joined, as the garbage collector goes through all objects of an output.
_MAX_APART = 16


class Driver(Protocol):
    """Interface through which a handle steps the runtime."""

    def run_until(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Step, or wait while another thread steps, until ``done()`` is true; return whether it is."""

    def run_in_background(self) -> None:
        """Step on a background thread as long as there is work."""

    def cancel(self, sequence: SequenceState) -> None:
        """Cancel a sequence."""


class Handle:
    """A submitted request.

    Iterating yields its updates as they arrive, or joined where many have not been read; awaiting it, or
    :meth:`result`, returns the whole output.

    Attributes:
        sequence: its state.
        output: the output released so far.
    """

    def __init__(self, sequence: SequenceState, driver: Driver) -> None:
        self.sequence, self.output = sequence, Output()
        self._driver = driver
        self._lock = Lock()  # of the following two
        self._unread: list[Update] = []
        self._num_joined = 0  # of the unread updates
        self._cancelled = False
        self._failure: BaseException | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        """Whether no more updates will follow."""
        return self.output.finish is not None or self._cancelled or self._failure is not None

    def push(self, update: Update) -> None:
        """Add an update; called by the runtime."""
        # In this order: once a reader sees a finished output, all updates must be in the list.
        with self._lock:
            self._unread.append(update)
            if len(self._unread) - self._num_joined == _MAX_APART:
                self._unread[self._num_joined :] = joined(self._unread[self._num_joined :])
                self._num_joined = len(self._unread)
        self.output.add(update)
        self._notify()

    def _read(self) -> list[Update]:
        """Return the updates that have not been read."""
        with self._lock:
            updates, self._unread, self._num_joined = self._unread, [], 0
        return updates

    def fail(self, error: BaseException) -> None:
        """End with an error of the runtime itself."""
        self._failure = error
        self._notify()

    def end(self) -> None:
        """End without a result; called by the runtime for a sequence that is cancelled."""
        self._cancelled = True
        self._notify()

    def cancel(self) -> None:
        """Cancel the request; iterations end, and :meth:`result` raises."""
        if not self.done:
            self._driver.cancel(self.sequence)

    def result(self, timeout: float | None = None) -> Output:
        """Wait for the request to end, and return its output.

        Raises:
            TimeoutError: the request did not end within ``timeout`` seconds; it keeps running.
            GenerationError: the request was cancelled.
            ConstrainError: the error that ended the request.
        """
        if not self._driver.run_until(lambda: self.done, timeout):
            raise TimeoutError(f"the request did not end within {timeout} seconds")
        return self._finished()

    def __iter__(self) -> Iterator[Update]:
        return self.updates()

    def updates(self, timeout: float | None = None) -> Iterator[Update]:
        """Yield the updates as they arrive.

        Raises:
            TimeoutError: the last one did not arrive within ``timeout`` seconds; the request keeps running.
            ConstrainError: the error that ended the request.
        """
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            if not self._driver.run_until(lambda: bool(self._unread) or self.done, left):
                raise TimeoutError(f"the request did not end within {timeout} seconds")
            is_last = self.done
            yield from self._read()
            if is_last:
                self._raise()
                return

    def __await__(self) -> Generator[Any, None, Output]:
        return self.aresult().__await__()

    async def __aiter__(self) -> AsyncIterator[Update]:
        async for batch in self.batches():
            for update in batch:
                yield update

    async def batches(self, rest: Callable[[], float] = lambda: 0.0) -> AsyncIterator[list[Update]]:
        """Yield the updates as they arrive, those that have arrived by then together; errors as for :meth:`updates`.

        Args:
            rest: asked at every batch for the seconds after it in which only the end of the request is a reason for
                another one.
        """
        loop, is_quiet = asyncio.get_running_loop(), False

        def end_quiet() -> None:
            nonlocal is_quiet
            is_quiet = False
            wake.set()

        with self._listening(lambda: self.done or not is_quiet) as wake:
            while True:
                is_last = self.done
                if updates := self._read():
                    seconds = rest()
                    is_quiet = seconds > 0
                    yield updates
                if is_last:
                    self._raise()
                    return
                if is_quiet:
                    loop.call_later(seconds, end_quiet)
                await wake.wait()
                wake.clear()

    async def aresult(self) -> Output:
        """Await the end of the request, and return its output; errors as for :meth:`result`."""
        with self._listening(lambda: self.done) as wake:
            while not self.done:
                await wake.wait()
                wake.clear()
        return self._finished()

    @contextmanager
    def _listening(self, wanted: Callable[[], bool]) -> Iterator[asyncio.Event]:
        """Step in the background; yield an event that is set on every change for which ``wanted()`` is true."""
        loop, wake = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            # Whoever waits clears the event before it looks for updates, so one that is set needs no other call.
            if wanted() and not wake.is_set():
                _call(loop, wake.set)

        self._listeners.append(notify)
        self._driver.run_in_background()
        try:
            yield wake
        finally:
            self._listeners.remove(notify)

    def _notify(self) -> None:
        for listener in [*self._listeners]:  # other threads add and remove some
            listener()

    def _finished(self) -> Output:
        self._raise()
        if self._cancelled:
            raise GenerationError("the request was cancelled")
        return self.output

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure
        finish = self.output.finish
        if finish is not None and finish.error is not None:
            raise finish.error


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed, so no task is waiting
        loop.call_soon_threadsafe(callback)
