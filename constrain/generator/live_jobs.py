"""The unfinished jobs of a generator, and the filters that follow them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from constrain.errors import FilterError
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.runtime import SequenceState


class LiveJobs:
    """Unfinished jobs by their sequences. No two of them have the same filter, which follows one sequence."""

    def __init__(self) -> None:
        self._jobs: dict[SequenceState, ExLlamaV2DynamicJob] = {}
        self._filters: dict[int, Any] = {}  # by identity

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[ExLlamaV2DynamicJob]:
        return iter([*self._jobs.values()])

    def __getitem__(self, sequence: SequenceState) -> ExLlamaV2DynamicJob:
        return self._jobs[sequence]

    def check(self, job: ExLlamaV2DynamicJob) -> None:
        """Raise :class:`FilterError` if a filter of a new job follows another one."""
        for each in job.filters:
            if id(each) in self._filters:
                raise FilterError(
                    "follows another job that has not ended, and a filter follows one at a time: give a clone() of it, "
                    "or a new one",
                    (type(each).__name__,),
                )

    def add(self, sequence: SequenceState, job: ExLlamaV2DynamicJob) -> None:
        """Add a job."""
        self._jobs[sequence] = job
        self._filters |= {id(each): each for each in job.filters}

    def remove(self, sequence: SequenceState) -> bool:
        """Remove the job of a sequence; return whether there was one."""
        job = self._jobs.pop(sequence, None)
        for each in () if job is None else job.filters:
            del self._filters[id(each)]
        return job is not None
