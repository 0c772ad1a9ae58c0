"""A lock for threads that take turns."""

from __future__ import annotations

import threading


class Turns:
    """A re-entrant lock that is fair: a thread that releases it and wants it again lets one that waits go first.

    With a plain lock, a thread that steps a generator in a loop would keep others out, such as one that cancels a job.
    """

    def __init__(self) -> None:
        self._lock, self._next = threading.RLock(), threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner != threading.get_ident():
            with self._next:
                self._lock.acquire()
            self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()
