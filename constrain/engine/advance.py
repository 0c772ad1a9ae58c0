"""Token masks of a batch of matchers: one native call, on threads that do not hold the interpreter's lock."""

from __future__ import annotations

from constrain._core import Mask, Matcher, Turns, Workers

__all__ = ["Advance", "Workers"]


class Advance:
    """A batch of matchers that accept a token each and compute the next mask, while the caller does other work.

    Usage: :meth:`add` every matcher, :meth:`start`, and then :meth:`result` for every index.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._indices: dict[Matcher, int] = {}
        self._tokens: list[int | None] = []
        self._budgets: list[int | None] = []
        self._running: Turns | None = None

    def add(self, matcher: Matcher, token: int | None, budget: int | None) -> int | None:
        """Queue ``accept(token)``, unless the token is ``None``, and the next mask of a matcher.

        To be called before :meth:`start`. Nobody else may use the matcher until :meth:`result` has returned.

        Returns:
            The index for :meth:`done` and :meth:`result`; ``None`` if the matcher is in the batch already.
        """
        if matcher in self._indices:
            return None
        index = self._indices[matcher] = len(self._indices)
        self._tokens.append(token)
        self._budgets.append(budget)
        return index

    def start(self) -> None:
        """Start the batch, unless it is empty."""
        if self._indices:
            self._running = self._workers.take(list(self._indices), self._tokens, self._budgets)

    def done(self, index: int) -> bool:
        """Whether :meth:`result` returns without waiting."""
        return self._running is not None and self._running.done(index)

    def result(self, index: int) -> tuple[bool, Mask | None]:
        """Wait for a matcher, and return its result.

        Returns:
            True and the next mask (``None`` where it excludes nothing); or false and ``None`` if the token was refused
            or the mask failed, and then the matcher is unchanged.
        """
        assert self._running is not None, "the batch was started"
        return self._running.result(index)
