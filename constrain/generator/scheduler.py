"""Which job runs when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constrain.generator.job import ExLlamaV2DynamicJob


class Scheduler:
    """Jobs that wait, and jobs that run.

    Attributes:
        pending: jobs that wait, in the order in which they came.
        active: jobs that run, in the order in which they started.
        running: number of their sequences.
    """

    def __init__(self) -> None:
        self.pending: list[ExLlamaV2DynamicJob] = []
        self.active: list[ExLlamaV2DynamicJob] = []
        self.running = 0

    def start(self, starts: Callable[[ExLlamaV2DynamicJob], bool]) -> list[ExLlamaV2DynamicJob]:
        """Start the jobs that ``starts`` can find room for.

        First come, first served; a job that there is no room for may be overtaken ``max_skips`` times, and from then
        on those behind it wait for it.
        """
        started: list[ExLlamaV2DynamicJob] = []
        waiting: list[ExLlamaV2DynamicJob] = []
        blocked = False
        for number, job in enumerate(self.pending):
            if not blocked and starts(job):
                for overtaken in waiting:
                    overtaken.skips += 1
                started.append(job)
                self.active.append(job)
                self.running += len(job.sequences)
                blocked = any(_patience_is_over(overtaken) for overtaken in waiting)
            else:
                waiting.append(job)
                blocked = blocked or _patience_is_over(job)
            if blocked:
                waiting += self.pending[number + 1 :]
                break
        self.pending = waiting
        return started

    def remove(self, job: ExLlamaV2DynamicJob) -> None:
        """Forget a job, if it is known."""
        if job in self.active:
            self.active.remove(job)
            self.running -= len(job.sequences)
        elif job in self.pending:
            self.pending.remove(job)


def _patience_is_over(job: ExLlamaV2DynamicJob) -> bool:
    return job.max_skips is not None and job.skips >= job.max_skips
