"""Appends proposed tokens to the sequences of a decode batch: text that a constraint forces, and draft tokens."""

from __future__ import annotations

from collections.abc import Sequence

from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.scheduler import ScheduledSequence
from constrain.runtime.sequence import SequenceState
from constrain.runtime.speculative.proposer import Proposer

#: Maximum number of tokens of text that is certain to follow in one forward pass.
_MAX_FORCED = 64
#: Forced text is not looked for where fewer tokens of it fit in a pass: with one, as in batches of more than 21
#: sequences, few passes are saved, and looking for it takes longer than that.
_MIN_FORCED = 2
#: Number of rows up to which a pass costs about as much as with one row, since reading the weights dominates.
_CHEAP_ROWS = 64


class Speculation:
    """Proposes tokens, which :func:`~constrain.runtime.speculative.verification.verify` accepts or rejects.

    Attributes:
        proposer: source of draft tokens; ``None``: no drafting.
    """

    def __init__(self, runner: ModelRunner, proposer: Proposer | None, jump_forward: bool) -> None:
        """``jump_forward``: propose text that a constraint forces."""
        self._runner, self.proposer, self._jump_forward = runner, proposer, jump_forward

    def drafts(self, sequence: SequenceState) -> bool:
        """Return whether draft tokens are to be proposed for a sequence, which needs all its tokens."""
        if self.proposer is None or sequence.is_healing or sequence.request.embeddings:
            return False
        return sequence.may_speculate and self.proposer.wants(sequence)

    def propose(self, scheduled: Sequence[ScheduledSequence]) -> None:
        """Append proposed tokens to the rows of sequences, as many as add little cost."""
        limit = min(max_proposals(sum(len(each.rows) for each in scheduled)), _MAX_FORCED)
        if limit <= 0 or (self.proposer is None and not self._looks_for_forced(limit)):
            return
        room = min(self._runner.room(row.past, row.block_table) for each in scheduled for row in each.rows)
        limit = min(limit, room - 1)
        candidates = [each for each in scheduled if each.sequence.may_speculate]
        for each in candidates if self._looks_for_forced(limit) else ():
            _propose_forced(each, limit)
        if self.proposer is not None:
            self._propose_drafts(self.proposer, candidates, min(limit, self.proposer.num_tokens))

    def observe(self, each: ScheduledSequence, accepted: int) -> None:
        """Record how many of the proposed tokens of a sequence were accepted."""
        drafted = len(each.rows[0].ids) - 1 if each.is_drafted else 0
        if drafted:
            each.sequence.accepted_draft_tokens += accepted
            each.sequence.rejected_draft_tokens += drafted - accepted
        if self.proposer is not None:
            self.proposer.observe(each.sequence, accepted, drafted)

    def _looks_for_forced(self, limit: int) -> bool:
        return self._jump_forward and limit >= _MIN_FORCED

    def _propose_drafts(self, proposer: Proposer, candidates: Sequence[ScheduledSequence], most: int) -> None:
        limits = {
            each: min(most, each.remaining - 1)
            for each in candidates
            if each.ahead == 0 and len(each.rows[0].ids) == 1 and each.remaining > 1 and self.drafts(each.sequence)
        }
        if most <= 0 or not limits:
            return
        drafts = proposer.propose([each.sequence for each in limits], [*limits.values()])
        for each, tokens in zip(limits, drafts, strict=True):
            if tokens:
                each.append(tokens)
                each.is_drafted = True


def _propose_forced(each: ScheduledSequence, limit: int) -> None:
    forced = each.sequence.forced_tokens(min(limit + each.ahead, each.remaining - 1 + each.ahead))
    proposals = forced[each.ahead :][:limit]
    if not proposals:
        return
    if each.ahead:
        each.expected = forced[each.ahead - 1]
    each.append(proposals)


def max_proposals(num_rows: int) -> int:
    """Return the number of tokens that can be proposed for each row of a pass at little extra cost."""
    return max(0, _CHEAP_ROWS // num_rows - 1)
