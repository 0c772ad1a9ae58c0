"""The unfinished jobs of a generator, and the filters that follow them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from constrain.errors import FilterError
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.runtime import Event, SequenceState


class LiveJobs:
    """Unfinished jobs by their sequences. No two of them have the same filter, which follows one sequence.

    The runtime may have other sequences, of requests that were submitted to it.
    """

    def __init__(self) -> None:
        self._jobs: dict[SequenceState, ExLlamaV2DynamicJob] = {}
        self._filters: dict[int, Any] = {}  # by identity

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[ExLlamaV2DynamicJob]:
        return iter([*self._jobs.values()])

    def of(self, sequences: Iterable[SequenceState]) -> list[ExLlamaV2DynamicJob]:
        """Return the jobs of sequences."""
        return [self._jobs[sequence] for sequence in sequences if sequence in self._jobs]

    def events(self, events: Iterable[Event]) -> list[tuple[ExLlamaV2DynamicJob, Event]]:
        """Return the events of jobs, each with its job."""
        return [(self._jobs[event.sequence], event) for event in events if event.sequence in self._jobs]

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
