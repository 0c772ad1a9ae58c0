"""Handle of a submitted request: stream its output, wait for it, or cancel it, from any thread or event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from time import monotonic
from typing import Any, Protocol

from constrain.errors import GenerationError
from constrain.runtime.outputs import Output, Piece, Update
from constrain.runtime.sequence import SequenceState


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

    Iterating yields its updates as they arrive, those that have not been read joined to one; awaiting it, or
    :meth:`result`, returns the whole output.

    Attributes:
        sequence: its state.
        output: the output released so far.
    """

    def __init__(self, sequence: SequenceState, driver: Driver) -> None:
        self.sequence, self.output = sequence, Output()
        self._driver = driver
        self._lock = Lock()  # of the output and the following three
        self._has_unread = False
        self._num_read = 0, 0  # characters and tokens of the output
        self._suppressed: Piece | None = None  # not read
        self._cancelled = False
        self._failure: BaseException | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        """Whether no more updates will follow."""
        return self.output.finish is not None or self._cancelled or self._failure is not None

    def push(self, update: Update) -> None:
        """Add an update; called by the runtime."""
        with self._lock:
            self.output.add(update)
            self._has_unread = True
            if update.suppressed is not None:
                text, tokens = self._suppressed or Piece()
                self._suppressed = Piece(text + update.suppressed.text, [*tokens, *update.suppressed.tokens])
        self._notify()

    def _read(self) -> Update | None:
        """Return what has not been read, as one update; ``None`` if there is nothing."""
        with self._lock:
            if not self._has_unread:
                return None
            output, (start, first), suppressed = self.output, self._num_read, self._suppressed
            self._has_unread, self._suppressed = False, None
            self._num_read = len(output.text), len(output.tokens)
            released = Piece(output.text[start:], output.tokens[first:])
            return Update(released, suppressed, output.finish, output.particles)

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
            if not self._driver.run_until(lambda: self._has_unread or self.done, left):
                raise TimeoutError(f"the request did not end within {timeout} seconds")
            is_last = self.done
            if (update := self._read()) is not None:
                yield update
            if is_last:
                self._raise()
                return

    def __await__(self) -> Generator[Any, None, Output]:
        return self.aresult().__await__()

    def __aiter__(self) -> AsyncIterator[Update]:
        return self.aupdates()

    async def aupdates(self, rest: Callable[[], float] = lambda: 0.0) -> AsyncGenerator[Update, None]:
        """Yield the updates as they arrive; errors as for :meth:`updates`.

        Args:
            rest: returns how many seconds to hold further updates back; called after each. The end is never held back.
        """
        loop, is_quiet = asyncio.get_running_loop(), False

        def end_quiet() -> None:
            nonlocal is_quiet
            is_quiet = False
            wake.set()

        with self._listening(lambda: self.done or not is_quiet) as wake:
            while True:
                is_last = self.done
                if (update := self._read()) is not None:
                    seconds = rest()
                    is_quiet = seconds > 0
                    yield update
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
                with suppress(RuntimeError):  # the loop is closed, so no task is waiting
                    loop.call_soon_threadsafe(wake.set)

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
