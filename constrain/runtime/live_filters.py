"""The filters of requests that have not ended."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from constrain.errors import FilterError
from constrain.filters.naming import name_of


class LiveFilters:
    """The filters of requests that have not ended, each of which follows one sequence. Thread-safe."""

    def __init__(self) -> None:
        self._filters: dict[int, Any] = {}  # by identity
        self._lock = Lock()

    def add(self, filters: Sequence[Any]) -> None:
        """Add the filters of a new request.

        Raises:
            FilterError: one of them follows another request; none is added.
        """
        with self._lock:
            for each in filters:
                if id(each) in self._filters:
                    raise FilterError(
                        "follows another request that has not ended, and a filter follows one at a time: give a "
                        "clone() of it, or a new one",
                        (name_of(each),),
                    )
            self._filters |= {id(each): each for each in filters}

    def remove(self, filters: Sequence[Any]) -> None:
        """Remove the filters of a request that has ended."""
        with self._lock:
            for each in filters:
                self._filters.pop(id(each), None)
