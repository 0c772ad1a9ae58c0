"""Tokens that the matchers of many texts take at the same time, on threads that need no lock of the interpreter."""

from __future__ import annotations

from constrain._core import Mask, Matcher, Turns, Workers

__all__ = ["Advance", "Workers"]


class Advance:
    """Matchers that take a token each, and find what may come behind it, while the caller does other things."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._places: dict[Matcher, int] = {}
        self._tokens: list[int | None] = []
        self._budgets: list[int | None] = []
        self._turns: Turns | None = None

    def add(self, matcher: Matcher, token: int | None, budget: int | None) -> int | None:
        """Before :meth:`start`: have a matcher take a token, or none, and find its mask behind it.

        Returns:
            Its place for :meth:`result`, before which nobody may use it; ``None`` for one that is here already.
        """
        if matcher in self._places:
            return None
        place = self._places[matcher] = len(self._places)
        self._tokens.append(token)
        self._budgets.append(budget)
        return place

    def start(self) -> None:
        """Begin, if there is anything to do."""
        if self._places:
            self._turns = self._workers.take(list(self._places), self._tokens, self._budgets)

    def done(self, place: int) -> bool:
        """Whether :meth:`result` has nothing to wait for."""
        return self._turns is not None and self._turns.done(place)

    def result(self, place: int) -> tuple[bool, Mask | None]:
        """What became of a matcher, once it is done.

        Returns:
            Whether it took the token and found its mask, and that mask, ``None`` where it excludes nothing; else the
            matcher is where it was.
        """
        assert self._turns is not None, "it was started"
        return self._turns.result(place)
