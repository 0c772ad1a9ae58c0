"""Random choices of one author, who keeps to a currency, a date format and a time within a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

#: How often an author keeps to a habit.
_KEPT = 0.85


class Author(Random):
    """A random generator that remembers the first choice of each kind as a habit.

    Attributes:
        clean: whether it writes common names and things only, and without errors.
    """

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.habits: dict[str, Any] = {}
        self.clean = False


def is_clean(rng: Random) -> bool:
    return isinstance(rng, Author) and rng.clean


def habit(name: str, rng: Random, choose: Callable[[Random], T]) -> T:
    """Choose, mostly as before if ``rng`` is an author."""
    if not isinstance(rng, Author):
        return choose(rng)
    if name not in rng.habits:
        rng.habits[name] = choose(rng)
    chosen: T = rng.habits[name] if rng.clean or rng.random() < _KEPT else choose(rng)
    return chosen


def pick(options: Sequence[T], tied: str, rng: Random) -> T:
    """Choose one of ``options``.

    The choices of an author that are ``tied`` by one name stand at the same share of their options, so that a document
    does not contradict itself: at the first ones, the last ones, or between.
    """
    if not tied or not isinstance(rng, Author):
        return rng.choice(options)
    share = rng.habits.setdefault(f"tied {tied}", rng.random())
    return options[int(share * len(options))]


@contextmanager
def apart(rng: Random) -> Iterator[None]:
    """Let what is written within bind nothing after it: an entry of a list, or the mention of another thing.

    Choices that are tied there are not tied to later ones, and later dates go on from the last date before it.
    """
    before = dict(rng.habits) if isinstance(rng, Author) else {}
    yield
    if isinstance(rng, Author):
        for name in [name for name in rng.habits if name.startswith("tied ") and name not in before]:
            del rng.habits[name]
        if "last date" in before:
            rng.habits["last date"] = before["last date"]


def is_formal(rng: Random) -> bool:
    """Return whether the author puts forms of address before names."""
    return habit("titles", rng, lambda rng: rng.random() < _FORMAL)


_FORMAL = 0.25


def break_values(rng: Random) -> None:
    """Remember that a document has values that other text interrupts, which cannot be quoted."""
    if isinstance(rng, Author):
        rng.habits["broken values"] = True


def breaks_values(rng: Random) -> bool:
    return isinstance(rng, Author) and "broken values" in rng.habits
