"""Streaming completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from constrain.completion.pending import Pending
from constrain.completion.result import Completion

if TYPE_CHECKING:
    from typing_extensions import Self


class Cancellable(Protocol):
    """Something that can be cancelled."""

    def cancel(self) -> None:
        """Cancel it; no-op if it has ended."""


P = TypeVar("P", bound=Cancellable)


class Stream(Iterator[str]):
    """Iterator over the text as it is generated. Closing or garbage-collecting it cancels the request.

    Attributes:
        completion: the whole completion, after the last piece; ``None`` before.
    """

    def __init__(self, pending: Pending[Completion]) -> None:
        self.completion: Completion | None = None
        self._pending, self._pieces = pending, pending.pieces()
        self._closed = False

    def __next__(self) -> str:
        try:
            return next(self._pieces)
        except StopIteration:
            if self.completion is None and not self._closed:
                self.completion = self._pending.read()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the request, unless it has ended; no further pieces are yielded."""
        self._closed = True
        self._pieces.close()
        self._pending.cancel()


class AsyncStream(AsyncIterator[str]):
    """Async iterator over the text as it is generated. Closing it cancels the request.

    Attributes:
        completion: the whole completion, after the last piece; ``None`` before.
    """

    def __init__(self, submit: Callable[[], Pending[Completion]]) -> None:
        """``submit``: submits the request; called when the first piece is requested."""
        self.completion: Completion | None = None
        self._submit = submit
        self._pending: Pending[Completion] | None = None
        self._pieces: AsyncGenerator[str, None] | None = None
        self._closed = False

    async def __anext__(self) -> str:
        if self._closed:
            raise StopAsyncIteration
        if self._pending is None or self._pieces is None:
            self._pending = await submitted(self._submit)
            self._pieces = self._pending.apieces()
        try:
            return await anext(self._pieces)
        except StopAsyncIteration:
            if self.completion is None:
                self.completion = self._pending.read()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._pending is not None:
            self._pending.cancel()

    async def aclose(self) -> None:
        """Cancel the request, unless it has ended; no further pieces are yielded."""
        self._closed = True
        if self._pending is not None and self._pieces is not None:
            await self._pieces.aclose()
            self._pending.cancel()


async def submitted(submit: Callable[[], P]) -> P:
    """Submit on a worker thread, since compiling a constraint would block the event loop.

    If the awaiting task is cancelled meanwhile, the submitted request is cancelled too.
    """
    future = asyncio.ensure_future(asyncio.to_thread(submit))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        future.add_done_callback(_cancel)
        raise


def _cancel(future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().cancel()
