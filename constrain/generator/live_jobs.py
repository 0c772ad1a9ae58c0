"""The unfinished jobs of a generator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.runtime import Event, SequenceState


class LiveJobs:
    """Unfinished jobs by their sequences.

    The runtime may have other sequences, of requests that were submitted to it.
    """

    def __init__(self) -> None:
        self._jobs: dict[SequenceState, ExLlamaV2DynamicJob] = {}

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

    def add(self, sequence: SequenceState, job: ExLlamaV2DynamicJob) -> None:
        """Add a job."""
        self._jobs[sequence] = job

    def remove(self, sequence: SequenceState) -> bool:
        """Remove the job of a sequence; return whether there was one."""
        return self._jobs.pop(sequence, None) is not None
