"""Scheduler (continuous batching): admits waiting requests, and forms each decode batch of the running ones."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from constrain.filters.masks import TokenMask
from constrain.model import EMBEDDING_INDEX, ExLlamaV2Lora, ExLlamaV2MMEmbedding
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import PassOutput
from constrain.runtime.sampler.batch_sampler import PendingSamples
from constrain.runtime.sequence import SequenceState


class SharedInputs(NamedTuple):
    """Inputs of a forward pass that all its sequences share.

    Attributes:
        loras: the adapters.
        embeddings: the embeddings, where the last token of a prompt is one of them.
    """

    loras: tuple[ExLlamaV2Lora, ...]
    embeddings: tuple[ExLlamaV2MMEmbedding, ...]


@dataclass(slots=True, eq=False)
class ScheduledSequence:
    """A sequence in a decode batch.

    Attributes:
        rows: its last token and the proposed tokens; for guidance a second row.
        epoch: epoch of the sequence when it was scheduled.
        ahead: number of its tokens that were in flight then.
        is_drafted: whether the proposals are draft tokens, not text that is certain to follow.
        expected: the in-flight token that the proposals assume; ``None``: any.
        place: row of its first token in the pass.
        is_late: whether its mask is not ready, so that it skips this step.
        is_masked: whether the masks are set.
        mask: the tokens that may come next; ``None`` for all.
        masks_after: masks after each proposal that is allowed.
    """

    sequence: SequenceState
    rows: list[BatchRow]
    epoch: int
    ahead: int = 0
    is_drafted: bool = False
    expected: int | None = None
    place: int = 0
    is_late: bool = False
    is_masked: bool = False
    mask: TokenMask | None = None
    masks_after: Sequence[TokenMask | None] = ()

    @property
    def remaining(self) -> int:
        """Number of tokens that may be generated from this step on."""
        return self.sequence.remaining - self.ahead

    @property
    def shared(self) -> SharedInputs:
        """The inputs that it shares with all sequences of its pass."""
        loras, embeddings = self.sequence.request.loras, tuple(self.sequence.request.embeddings)
        if embeddings and any(row.source < 0 and row.ids[0] >= EMBEDDING_INDEX for row in self.rows):
            return SharedInputs(loras, embeddings)
        return SharedInputs(loras, ())

    @property
    def proposals(self) -> Sequence[int]:
        """Proposed tokens to verify: those up to the first that is not allowed."""
        return self.rows[0].ids[1 : 1 + len(self.masks_after)] if self.masks_after else ()

    def append(self, tokens: Sequence[int]) -> None:
        """Append proposed tokens to its row."""
        self.rows[0] = self.rows[0]._replace(ids=(*self.rows[0].ids, *tokens))

    def mask_at(self, place: int) -> TokenMask | None:
        """Return the mask of a row of the pass, ``None`` for all tokens."""
        ahead = place - self.place
        return self.masks_after[ahead - 1] if ahead else self.mask

    @property
    def continues(self) -> bool:
        """Whether the sequence is at the position that this step was scheduled for, and still running."""
        sequence = self.sequence
        return (
            not self.is_late
            and sequence.finish is None
            and sequence.epoch == self.epoch
            and len(sequence) == self.rows[0].past + 1
            and sequence.is_running
        )


@dataclass
class DecodeBatch:
    """The sequences of a decode pass, the output of the pass, and its tokens once sampling is queued."""

    scheduled: list[ScheduledSequence] = field(default_factory=list)
    output: PassOutput | None = None
    sampled: PendingSamples | None = None

    def __post_init__(self) -> None:
        self.of = {each.sequence: each for each in self.scheduled}

    @property
    def samples_freely(self) -> bool:
        """Whether all its tokens can be sampled before the host knows those of the previous step."""
        return all(each.sequence.samples_freely for each in self.scheduled)


class Scheduler:
    """Holds the waiting and the running sequences, and chooses those of each pass.

    Any thread may add a sequence at any time; all else is done by one thread at a time.

    Attributes:
        waiting: by priority, then by order of arrival.
        running: in the order in which they started.
        num_rows: number of rows of the running sequences.
    """

    def __init__(self, drafts: Callable[[SequenceState], bool]) -> None:
        """``drafts``: returns whether draft tokens are to be proposed for a sequence, which needs all its tokens."""
        self.waiting: list[SequenceState] = []
        self.running: list[SequenceState] = []
        self.num_rows = 0
        self._lock = Lock()  # of `waiting`
        self._drafts = drafts
        self._refused: set[SequenceState] = set()  # waiting ones that do not fit before others start or end
        self._next_group: SharedInputs | None = None

    def add(self, sequence: SequenceState) -> None:
        """Enqueue a sequence."""
        with self._lock:
            insort(self.waiting, sequence, key=lambda each: -each.request.priority)

    def admit(self, starts: Callable[[SequenceState], bool]) -> list[SequenceState]:
        """Admit the waiting sequences for which ``starts`` returns true, as there are pages for them.

        First come, first served. A sequence that does not fit may be overtaken ``max_skips`` times; after that, later
        sequences wait for it. It is tried again when a sequence has ended, or has started, whose pages it may share.
        """
        started: list[SequenceState] = []
        overtaken: list[SequenceState] = []
        with self._lock:
            waiting = [*self.waiting]
        for sequence in waiting:
            if sequence not in self._refused and starts(sequence):
                self._refused.clear()
                for each in overtaken:
                    each.skips += 1
                started.append(sequence)
                self.running.append(sequence)
                self.num_rows += sequence.request.num_rows
                is_blocked = any(_has_waited_enough(each) for each in overtaken)
            else:
                self._refused.add(sequence)
                overtaken.append(sequence)
                is_blocked = _has_waited_enough(sequence)
            if is_blocked:
                break
        if started:
            gone = set(started)
            with self._lock:
                self.waiting = [each for each in self.waiting if each not in gone]
        return started

    def remove(self, sequence: SequenceState) -> bool:
        """Remove a sequence; return whether it was waiting or running."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._refused.clear()
            self.num_rows -= sequence.request.num_rows
            return True
        with self._lock:
            if sequence not in self.waiting:
                return False
            self.waiting.remove(sequence)
        self._refused.discard(sequence)
        return True

    def schedule(self, sequences: Sequence[SequenceState], in_flight: DecodeBatch) -> list[ScheduledSequence]:
        """Choose the sequences of the next decode batch: those that share adapters and embeddings.

        The tokens of the batch in flight are not known yet.
        """
        candidates = (self._schedule_one(each, in_flight) for each in sequences)
        scheduled = [each for each in candidates if each is not None]
        groups = list(dict.fromkeys(each.shared for each in scheduled))
        if len(groups) <= 1:
            return scheduled
        turn = groups.index(self._next_group) if self._next_group in groups else 0
        self._next_group = groups[(turn + 1) % len(groups)]
        return [each for each in scheduled if each.shared == groups[turn]]

    def _schedule_one(self, sequence: SequenceState, in_flight: DecodeBatch) -> ScheduledSequence | None:
        """Schedule a sequence at its position after the in-flight step, assuming that its proposals are accepted."""
        before = in_flight.of.get(sequence)
        going = before if before is not None and before.continues else None
        ahead = 0 if going is None else 1 + len(going.proposals)
        if sequence.finish is not None or sequence.remaining <= ahead:
            return None
        if going is not None and (going.is_drafted or sequence.request.hook is not None or self._drafts(sequence)):
            return None
        past = len(sequence) - 1 + ahead
        token = (0,) if going is not None else (sequence.last_token,)
        source = -1 if going is None else going.place + ahead - 1
        rows = [BatchRow(token, past, sequence.rows[0].block_table, source)]
        for other in sequence.rows[1:]:
            # Before the first token of the output, each prompt ends in its own last token.
            last = len(other.sequence_ids) - 1
            own = token if going is not None else other.tokens(last)
            rows.append(BatchRow(own, last + ahead, other.block_table, source))
        return ScheduledSequence(sequence, rows, sequence.epoch, ahead)


def _has_waited_enough(sequence: SequenceState) -> bool:
    most = sequence.request.max_skips
    return most is not None and sequence.skips >= most
