"""Submitted requests and their results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from time import monotonic
from typing import Generic, Protocol, TypeVar

from constrain.errors import GenerationTimeout
from constrain.runtime import Handle
from constrain.runtime.outputs import Update

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class PendingResult(Protocol[R_co]):
    """A result of one request or several that were submitted."""

    @property
    def done(self) -> bool:
        """Whether no request is under way."""

    @property
    def is_waiting(self) -> bool:
        """Whether no request has started."""

    def cancel(self) -> None:
        """Cancel the requests; no-op if they have ended."""

    def result(self) -> R_co:
        """Wait for the result."""

    async def aresult(self) -> R_co:
        """Await the result."""


class Pending(Generic[R]):
    """A submitted request; it is cancelled if waiting for it is interrupted or times out.

    Attributes:
        handle: the handle of the request.
        text: returns the text that has been generated so far, without thoughts of the model.
    """

    def __init__(
        self,
        handle: Handle,
        text: Callable[[], str],
        read: Callable[[], R],
        timeout: float | None,
        since: float | None = None,
    ) -> None:
        """
        Args:
            handle: the handle of the request.
            text: returns the text that has been generated, without thoughts of the model.
            read: builds the result once the request has ended.
            timeout: seconds after which the request is cancelled.
            since: the ``time.monotonic()`` from which they count; ``None``: now.
        """
        self.handle = handle
        self.text = text
        self._read, self._timeout = read, timeout
        self._deadline = None if timeout is None else (monotonic() if since is None else since) + timeout

    @property
    def done(self) -> bool:
        """Whether :meth:`result` returns or raises at once."""
        return self.handle.done or self._left() == 0

    @property
    def is_waiting(self) -> bool:
        """Whether the request has not started."""
        return not self.done and not self.handle.sequence.is_running

    def cancel(self) -> None:
        """Cancel the request; no-op if it has ended."""
        self.handle.cancel()

    def result(self) -> R:
        """Wait for the result.

        Raises:
            GenerationTimeout: the request timed out.
            ConstrainError: the request failed, or its output cannot be read.
        """
        try:
            self.handle.result(self._left())
        except TimeoutError as error:
            raise self._out_of_time() from error
        finally:
            self.handle.cancel()
        return self.read()

    async def aresult(self) -> R:
        """Await the result; errors as for :meth:`result`."""
        try:
            await asyncio.wait_for(self.handle.aresult(), self._patience())
        except asyncio.TimeoutError as error:
            raise self._out_of_time() from error
        finally:
            self.handle.cancel()
        return self.read()

    def read(self) -> R:
        """Return the result of a request whose pieces were all consumed."""
        return self._read()

    def pieces(self) -> Generator[str, None, None]:
        """Yield the text as it is generated; errors as for :meth:`result`."""
        try:
            for update in self.handle.updates(self._left()):
                if update.released.text:
                    yield update.released.text
        except TimeoutError as error:
            raise self._out_of_time() from error
        finally:
            self.handle.cancel()

    async def apieces(self) -> AsyncGenerator[str, None]:
        """Yield the text as it is generated; errors as for :meth:`result`."""
        updates = aiter(self.handle)
        try:
            while (update := await asyncio.wait_for(_next(updates), self._patience())) is not None:
                if update.released.text:
                    yield update.released.text
        except asyncio.TimeoutError as error:
            raise self._out_of_time() from error
        finally:
            self.handle.cancel()

    def _left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - monotonic())

    def _patience(self) -> float | None:
        """Return the seconds to wait for an update; ``None`` once the request has ended, even after its deadline."""
        return None if self.handle.done else self._left()

    def _out_of_time(self) -> GenerationTimeout:
        self.handle.cancel()
        return GenerationTimeout(self._timeout or 0.0, self.handle.output.text)


async def _next(updates: AsyncIterator[Update]) -> Update | None:
    return await anext(updates, None)
