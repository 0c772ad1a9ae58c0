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
