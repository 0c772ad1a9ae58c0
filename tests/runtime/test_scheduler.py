"""The queue of requests."""

from __future__ import annotations

from typing import Any

from constrain.runtime.scheduler import Scheduler


class _Counted:
    """A sequence that counts how often the scheduler asks how long it may wait."""

    asked = 0
    skips = 0
    priority = 0

    @property
    def request(self) -> _Counted:
        return self

    @property
    def max_skips(self) -> int:
        _Counted.asked += 1
        return 3


def test_the_work_of_a_step_grows_in_proportion_to_the_queue() -> None:
    scheduler = Scheduler(lambda sequence: False)
    scheduler.waiting = waiting = [_Counted() for _ in range(1000)]  # type: ignore[assignment]
    first: list[Any] = scheduler.admit(lambda sequence: False)
    assert not first and scheduler.waiting == waiting and _Counted.asked <= 2 * len(waiting)


class _Queued:
    """A sequence that others may overtake."""

    num_rows, max_skips, skips = 1, None, 0

    @property
    def request(self) -> _Queued:
        return self


def test_what_does_not_fit_is_tried_again_when_something_has_changed() -> None:
    """Trying means to look for the whole prompt in the prefix cache."""
    scheduler = Scheduler(lambda sequence: False)
    first, second, third = (_Queued() for _ in range(3))
    scheduler.waiting = [first, second]  # type: ignore[list-item]
    fits, tried = [first], list[Any]()

    def admit() -> list[Any]:
        tried.clear()
        return scheduler.admit(lambda sequence: tried.append(sequence) or sequence in fits)  # type: ignore[func-returns-value]

    assert admit() == [first] and tried == [first, second]
    assert admit() == [] and tried == []
    scheduler.waiting.append(third)  # type: ignore[arg-type]
    assert admit() == [] and tried == [third]
    fits = [third]
    scheduler.remove(first)  # type: ignore[arg-type]
    assert admit() == [third] and tried == [second, third]
    assert admit() == [] and tried == [second]  # which may share pages of the third
    scheduler.remove(second)  # type: ignore[arg-type]
    assert admit() == [] and tried == [] and scheduler.waiting == []
