"""Scheduler of waiting and running sequences."""

from __future__ import annotations

from collections.abc import Callable

from constrain.runtime.sequence import SequenceState


class Scheduler:
    """Holds the waiting and the running sequences.

    Attributes:
        waiting: by priority, then by order of arrival.
        running: in the order in which they started.
        num_rows: number of rows of the running sequences.
    """

    def __init__(self) -> None:
        self.waiting: list[SequenceState] = []
        self.running: list[SequenceState] = []
        self.num_rows = 0

    def add(self, sequence: SequenceState) -> None:
        """Enqueue a sequence."""
        priority = sequence.request.priority
        place = len(self.waiting)
        while place and self.waiting[place - 1].request.priority < priority:
            place -= 1
        self.waiting.insert(place, sequence)

    def start(self, starts: Callable[[SequenceState], bool]) -> list[SequenceState]:
        """Start the sequences for which ``starts`` returns true: those that fit.

        First come, first served. A sequence that does not fit may be overtaken ``max_skips`` times; after that, later
        sequences wait for it.
        """
        started: list[SequenceState] = []
        waiting: list[SequenceState] = []
        for number, sequence in enumerate(self.waiting):
            if starts(sequence):
                for overtaken in waiting:
                    overtaken.skips += 1
                started.append(sequence)
                self.running.append(sequence)
                self.num_rows += sequence.request.num_rows
                is_blocked = any(_has_waited_enough(each) for each in waiting)
            else:
                waiting.append(sequence)
                is_blocked = _has_waited_enough(sequence)
            if is_blocked:
                waiting += self.waiting[number + 1 :]
                break
        self.waiting = waiting
        return started

    def remove(self, sequence: SequenceState) -> bool:
        """Remove a sequence; return whether it was waiting or running."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.num_rows -= sequence.request.num_rows
            return True
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return True
        return False


def _has_waited_enough(sequence: SequenceState) -> bool:
    most = sequence.request.max_skips
    return most is not None and sequence.skips >= most
