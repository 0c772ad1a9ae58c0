"""A stopwatch."""

from __future__ import annotations

import time
from types import TracebackType


class Timer:
    """Context manager that measures wall-clock seconds.

    Attributes:
        start_time, end_time: values of a monotonic clock.
        interval: the seconds between them.
    """

    start_time: float
    end_time: float
    interval: float

    def __enter__(self) -> Timer:
        self.start_time = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_time = time.perf_counter()
        self.interval = self.end_time - self.start_time
