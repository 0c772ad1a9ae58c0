"""The time that a request has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from constrain.errors import GenerationTimeout

T = TypeVar("T")


@dataclass(frozen=True)
class Deadline:
    """The time until which a request has to be answered: reading its files and compiling its format included.

    Attributes:
        seconds: the time that it has; ``None``: any.
        arrived: when it arrived, as :func:`time.monotonic` counts.
    """

    seconds: float | None
    arrived: float = field(default_factory=monotonic)

    @property
    def passed(self) -> float:
        """Seconds since the request arrived."""
        return monotonic() - self.arrived

    @property
    def left(self) -> float | None:
        """Seconds that are left; ``None``: any number."""
        return None if self.seconds is None else max(0.0, self.seconds - self.passed)

    def error(self) -> GenerationTimeout:
        """Return the error of a request whose time is over."""
        return GenerationTimeout(self.seconds or 0.0)


async def on_thread(work: Callable[[], T]) -> T:
    """Return the result of a function that runs on a thread, which goes on alone if the awaiting task is cancelled."""
    task = asyncio.ensure_future(run_in_threadpool(work))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # so that asyncio does not log it
    return await asyncio.shield(task)
