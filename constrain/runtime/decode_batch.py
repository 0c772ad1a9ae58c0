"""Decode batch: the sequences of a decode pass and the tokens that each adds, on a GPU before the host knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from constrain.filters.masks import TokenMask
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import PassOutput
from constrain.runtime.sampler.batch_sampler import Sampled
from constrain.runtime.sequence import SequenceState


@dataclass(slots=True, eq=False)
class ScheduledSequence:
    """A sequence in a decode batch.

    Attributes:
        sequence: the sequence.
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
    sampled: Sampled | None = None

    def __post_init__(self) -> None:
        self.of = {each.sequence: each for each in self.scheduled}

    @property
    def samples_freely(self) -> bool:
        """Whether all its tokens can be sampled before the host knows those of the previous step."""
        return all(each.sequence.samples_freely for each in self.scheduled)
