"""Reading ahead: on another thread, in order, bounded, and without holding up what is in progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import constrain
from constrain.documents import Document, Source
from constrain.runs import Journal, Line, Progress, run_extraction
from constrain.runs.read_ahead import ReadAhead


def test_items_keep_their_order_and_come_from_another_thread() -> None:
    items = list(ReadAhead(((number, threading.current_thread()) for number in range(100)), 3))
    assert [number for number, _ in items] == list(range(100))
    assert {thread.name for _, thread in items} == {"constrain-reader"}


def test_an_error_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    ahead = ReadAhead(broken(), 5)
    assert next(ahead) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)
    assert ahead.is_ready() and next(ahead, None) is None


def test_only_so_many_items_are_made_ahead() -> None:
    made: list[int] = []
    third = threading.Event()

    def endless() -> Iterator[int]:
        for number in count():
            made.append(number)
            if number % 3 == 2:
                third.set()
            yield number

    ahead = ReadAhead(endless(), 3)
    assert third.wait(60) and len(made) == 3
    for number in range(10):
        assert next(ahead) == number
        assert len(made) <= 3 + number + 1
    ahead.close()
    assert next(ahead, None) is None


def test_the_thread_ends_when_nothing_more_is_wanted() -> None:
    ended = threading.Event()

    def endless() -> Iterator[int]:
        try:
            yield from count()
        finally:
            ended.set()

    ahead = ReadAhead(endless(), 2)
    next(ahead)
    ahead.close()
    assert ended.wait(60)


def test_a_reader_that_takes_long_does_not_hold_up_the_others(tiny_dir: Path, tmp_path: Path) -> None:
    """The last document can be read only when the records of the others are there."""
    others_are_done = threading.Event()

    def read() -> Document:
        assert others_are_done.wait(60)
        return Document("yes", "late.txt")

    def on_line(progress: Progress, line: Line | None) -> None:
        if progress.records == 3:
            others_are_done.set()

    inputs = [*(Document("yes " * number, f"{number}.txt") for number in (1, 2, 3)), Source("late.txt", read)]
    with Journal(tmp_path / "out.jsonl") as output:
        progress = run_extraction(constrain.load(tiny_dir), {"enum": ["a", "b"]}, inputs, output, on_line=on_line)
    assert (progress.records, progress.failures) == (4, 0)
