"""Results that take several rounds of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from constrain.completion.pending import Pending, PendingResult

R = TypeVar("R")

#: Yields the requests of a round, is sent their results, and returns the result of all.
Rounds: TypeAlias = Generator[Sequence[PendingResult[Any]], list[Any], R]


class PendingRounds(Generic[R]):
    """The result of several rounds of requests, each of which depends on the results of those before.

    If a request fails, or waiting is interrupted or times out, the others are cancelled.
    """

    def __init__(self, rounds: Rounds[R]) -> None:
        """
        Args:
            rounds: submits the requests, those of at least one round.
        """
        self._rounds = rounds
        self._round = next(rounds)
        self._is_cancelled = False
        self._ended: tuple[R] | None = None

    @property
    def done(self) -> bool:
        """Whether all requests of the present round have ended; another round may follow."""
        return all(pending.done for pending in self._round)

    @property
    def is_waiting(self) -> bool:
        """Whether no request of the present round has started."""
        return all(pending.is_waiting for pending in self._round)

    @property
    def streamed(self) -> Pending[Any] | None:
        """The request of the present round, if it is the only one."""
        (first, *others) = self._round
        return first if isinstance(first, Pending) and not others else None

    def cancel(self) -> None:
        """Cancel all requests."""
        self._is_cancelled = True
        _cancel(self._round)

    def result(self) -> R:
        """Wait for the result; raises what the first request that failed has raised."""
        try:
            while self._ended is None:
                self._advance([pending.result() for pending in self._round])
            return self._ended[0]
        finally:
            self.cancel()

    async def aresult(self) -> R:
        """Await the result; errors as for :meth:`result`."""
        try:
            while self._ended is None:
                found = [await pending.aresult() for pending in self._round]
                # Submitting compiles constraints, which would block the event loop.
                await asyncio.to_thread(self._advance, found)
            return self._ended[0]
        finally:
            self.cancel()

    def _advance(self, found: list[Any]) -> None:
        """Submit the next round, or end with the result."""
        try:
            self._round = self._rounds.send(found)
        except StopIteration as end:
            self._ended = (end.value,)
        if self._is_cancelled:
            _cancel(self._round)


def submit_all(submits: Iterable[Callable[[], PendingResult[R]]]) -> list[PendingResult[R]]:
    """Submit several requests; if submitting one fails, the others are cancelled."""
    pending: list[PendingResult[R]] = []
    try:
        for submit in submits:
            pending.append(submit())
    except BaseException:
        _cancel(pending)
        raise
    return pending


def _cancel(pending: Iterable[PendingResult[Any]]) -> None:
    for each in pending:
        each.cancel()
