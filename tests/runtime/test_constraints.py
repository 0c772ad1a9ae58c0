"""Constraints of sequences, and those that advance on Python worker threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from threading import Event
from time import sleep
from typing import Any

import numpy as np
import pytest

from constrain.errors import FilterError
from constrain.filters.masks import RowMask
from constrain.filters.time_limit import THREADS
from constrain.runtime.constraints import SequenceConstraint
from constrain.runtime.mask_batch import MaskBatch, PendingMask, native_workers


class Slow:
    """A constraint that calls a function to compute its mask."""

    matchers = None
    in_background = True

    def __init__(self, compute: Callable[[], Any]) -> None:
        self.accepted: list[int] = []
        self._compute = compute

    def accept(self, token: int) -> None:
        self.accepted.append(token)

    def mask(self, budget: int | None = None) -> RowMask | None:
        self._compute()
        return None


class NoThreads(Executor):
    """An executor that never runs its tasks."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        return Future()


def batch_of(*computations: Callable[[], Any], threads: Executor = THREADS) -> tuple[MaskBatch, list[PendingMask]]:
    batch = MaskBatch(native_workers(), threads)
    pending = [batch.add(Slow(each), 7, None) for each in computations]  # type: ignore[arg-type]
    return batch, [each for each in pending if each is not None]


def test_a_constraint_that_waits_does_not_hold_up_the_others() -> None:
    released = Event()
    batch, (blocked, quick, *_) = batch_of(lambda: released.wait(), lambda: None, lambda: None)
    batch.start()
    while not quick.done:
        sleep(1e-4)
    assert not blocked.done
    released.set()
    assert blocked.result(None) is None


def test_a_mask_that_no_thread_computes_yet_is_computed_by_whoever_needs_it() -> None:
    batch, (mask,) = batch_of(lambda: None, threads=NoThreads())
    batch.start()
    assert not mask.done
    assert mask.result(None) is None
    assert mask.done


def test_a_constraint_advances_once() -> None:
    slow = Slow(lambda: None)
    batch = MaskBatch(native_workers())
    mask = batch.add(slow, 7, None)  # type: ignore[arg-type]
    assert mask is not None
    batch.start()
    mask.result(None)
    mask.result(None)
    assert slow.accepted == [7]


def test_an_error_is_raised_where_the_mask_is_needed() -> None:
    def fail() -> None:
        raise FilterError("broken")

    batch, (broken, sound) = batch_of(fail, lambda: None)
    batch.start()
    with pytest.raises(FilterError, match="broken"):
        broken.result(None)
    assert sound.result(None) is None


class Certain:
    """A constraint that allows a number of tokens, and knows some that must follow."""

    end_tokens = ()

    def __init__(self, allowed: int, forced: list[int]) -> None:
        self.searches = 0
        self._allowed, self._forced = allowed, forced

    def begin(self, prefix: str = "") -> None:
        """Nothing to do: it is always the same."""

    def mask(self, budget: int | None = None) -> RowMask:
        bits = np.zeros(4096, dtype=np.int32)
        bits[: self._allowed // 32] = -1
        return RowMask(bits)

    def forced_tokens(self, limit: int) -> list[int]:
        self.searches += 1
        return self._forced[:limit]


@pytest.mark.parametrize(
    ("allowed", "forced", "searches"),
    [(64, [3, 4], 64), (64, [], 16 + 48 // 4), (100_000, [3, 4], 0)],
    ids=["found", "never found", "free choice"],
)
def test_text_that_must_follow_is_not_looked_for_in_vain(allowed: int, forced: list[int], searches: int) -> None:
    constraint = Certain(allowed, forced)
    sequence = SequenceConstraint(constraint, None)  # type: ignore[arg-type]
    sequence.begin()
    found = [list(sequence.forced_tokens(1, None)) for _ in range(64)]
    assert constraint.searches == searches
    assert found == [forced[:1] if searches else []] * 64
