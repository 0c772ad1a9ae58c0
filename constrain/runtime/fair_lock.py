"""A fair, re-entrant lock."""

from __future__ import annotations

import threading


class FairLock:
    """A re-entrant lock: a thread that releases it and acquires it again lets one that waits go first.

    With a plain lock, a thread that steps in a loop would keep others out, such as one that cancels a request.
    """

    def __init__(self) -> None:
        self._lock, self._next = threading.Lock(), threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire the lock; without ``blocking`` only if no other thread has it or waits. Return whether it is held."""
        if self._owner != threading.get_ident():
            if not self._next.acquire(blocking):
                return False
            try:
                if not self._lock.acquire(blocking):
                    return False
            finally:
                self._next.release()
            self._owner = threading.get_ident()
        self._depth += 1
        return True

    def release(self) -> None:
        """Release the lock, once it has been released as often as acquired."""
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
