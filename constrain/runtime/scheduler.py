"""Which sequences wait, and which run."""

from __future__ import annotations

from collections.abc import Callable

from constrain.runtime.sequence import SequenceState


class Scheduler:
    """Sequences that wait, and sequences that run.

    Attributes:
        waiting: by priority, and within one in the order in which they came.
        running: in the order in which they started.
        num_rows: rows of the running sequences.
    """

    def __init__(self) -> None:
        self.waiting: list[SequenceState] = []
        self.running: list[SequenceState] = []
        self.num_rows = 0

    def add(self, sequence: SequenceState) -> None:
        """Put a sequence into the queue."""
        priority = sequence.request.priority
        place = len(self.waiting)
        while place and self.waiting[place - 1].request.priority < priority:
            place -= 1
        self.waiting.insert(place, sequence)

    def start(self, starts: Callable[[SequenceState], bool]) -> list[SequenceState]:
        """Start the sequences for which ``starts`` finds room.

        First come, first served; a sequence for which there is no room may be overtaken ``max_skips`` times, and from
        then on those after it wait for it.
        """
        started: list[SequenceState] = []
        waiting: list[SequenceState] = []
        blocked = False
        for number, sequence in enumerate(self.waiting):
            if not blocked and starts(sequence):
                for overtaken in waiting:
                    overtaken.skips += 1
                started.append(sequence)
                self.running.append(sequence)
                self.num_rows += len(sequence.rows)
                blocked = any(_has_waited_enough(overtaken) for overtaken in waiting)
            else:
                waiting.append(sequence)
                blocked = blocked or _has_waited_enough(sequence)
            if blocked:
                waiting += self.waiting[number + 1 :]
                break
        self.waiting = waiting
        return started

    def remove(self, sequence: SequenceState) -> bool:
        """Forget a sequence; returns whether it was known."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.num_rows -= len(sequence.rows)
            return True
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return True
        return False


def _has_waited_enough(sequence: SequenceState) -> bool:
    most = sequence.request.max_skips
    return most is not None and sequence.skips >= most
