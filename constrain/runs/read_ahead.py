"""Reading ahead: items are made on a thread of their own, while others are worked on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _Item(Generic[T]):
    value: T


@dataclass(frozen=True)
class _End:
    error: Exception | None = None


class ReadAhead(Iterator[T]):
    """The items of an iterable in their order, made by a thread that is a bounded number of them ahead.

    An error of the iterable is raised after the items before it.
    """

    def __init__(self, items: Iterable[T], size: int) -> None:
        """``size``: most items that are made before they are asked for; 1 or more."""
        self._found: SimpleQueue[_Item[T] | _End] = SimpleQueue()
        self._slots = Semaphore(size)
        self._is_closed = False
        # A daemon, because a reader may block for ever, on a pipe for example.
        Thread(target=self._read, args=(items,), name="constrain-reader", daemon=True).start()

    def __next__(self) -> T:
        if self._is_closed:
            raise StopIteration
        found = self._found.get()
        if isinstance(found, _Item):
            self._slots.release()
            return found.value
        self._is_closed = True
        if found.error is not None:
            raise found.error
        raise StopIteration

    def is_ready(self) -> bool:
        """Return whether the next item, or the end, is there."""
        return self._is_closed or not self._found.empty()

    def close(self) -> None:
        """End; the thread does so after the item that it is at."""
        self._is_closed = True
        self._slots.release()

    def _read(self, items: Iterable[T]) -> None:
        try:
            rest = iter(items)
            while self._slots.acquire() and not self._is_closed:
                self._found.put(_Item(next(rest)))
        except StopIteration:
            self._found.put(_End())
        except Exception as error:
            self._found.put(_End(error))
