"""Bitmasks as servers have them, in tensors."""

from __future__ import annotations

from typing import Any


class BitmaskArray:
    """The array of a bitmask that a server fills row by row: to make one of a tensor takes as long as a mask."""

    def __init__(self) -> None:
        self._last: tuple[Any, Any] = (None, None)

    def of(self, bitmask: Any) -> Any:
        """Return the array int32 ``[rows, words]`` that shares its memory with a CPU tensor; kept for the next call."""
        known, rows = self._last
        if bitmask is not known:
            rows = bitmask.numpy()
            self._last = bitmask, rows  # together, since threads fill rows of one bitmask
        return rows
