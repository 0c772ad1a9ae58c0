"""Tokens that the matchers of many texts take at the same time, on threads that need no lock of the interpreter."""

from __future__ import annotations

from typing import NamedTuple

from constrain._core import Mask, Matcher, Turns, Workers

__all__ = ["Advance", "Promise", "Workers"]


class Advance:
    """Matchers that take a token each, and find what may come behind it, while the caller does other things."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._places: dict[Matcher, int] = {}
        self._tokens: list[int] = []
        self._budgets: list[int | None] = []
        self._turns: Turns | None = None
        self._results: tuple[list[bool], list[Mask | None]] = [], []

    def add(self, matcher: Matcher, token: int, budget: int | None) -> Promise | None:
        """Before :meth:`start`: have a matcher take a token, and find its mask behind it.

        Returns:
            What becomes of it, until which nobody may use the matcher; ``None`` for one that is here already.
        """
        if matcher in self._places:
            return None
        place = self._places[matcher] = len(self._places)
        self._tokens.append(token)
        self._budgets.append(budget)
        return Promise(self, place)

    def start(self) -> None:
        """Begin, if there is anything to do."""
        if self._places:
            self._turns = self._workers.take(list(self._places), self._tokens, self._budgets)

    def result(self, place: int) -> tuple[bool, Mask | None]:
        """What became of a matcher, once all are done."""
        if self._turns is not None:
            self._results, self._turns = self._turns.result(), None
        return self._results[0][place], self._results[1][place]


class Promise(NamedTuple):
    """A token that a matcher is going to take."""

    advance: Advance
    place: int

    def result(self) -> tuple[bool, Mask | None]:
        """Whether it took the token and found its mask, and that mask, ``None`` where it excludes nothing; else the
        matcher is where it was."""
        return self.advance.result(self.place)
