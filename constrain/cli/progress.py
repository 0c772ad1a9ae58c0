"""A bar of progress on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on the standard error stream, if that is a terminal; yields what moves it: ``(done, total)``."""
    with tqdm(desc=title, disable=None) as shown:

        def move(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield move
