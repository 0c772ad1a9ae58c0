"""One text on a cache of its own: the passes of the model, and the tokens that come of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

import torch

from constrain.generator.decoding import Decoding
from constrain.generator.draft import Draft, Drafter
from constrain.generator.foreseen import Foreseen, propose_forced
from constrain.generator.outcome import Outcome
from constrain.generator.sequence import JobSequence

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2CacheBase

#: Takes ids (rows, n), and whether to fill the cache only; gives logits (rows, n, padded vocabulary) if it did more.
Forward = Callable[[torch.Tensor, bool], "torch.Tensor | None"]


class Stream:
    """A text that is being generated.

    Attributes:
        text: what is made of the logits.
        sequences: its rows; two of them for guidance.
        drafted, accepted: tokens guessed so far, and how many of them came true.
    """

    def __init__(
        self,
        text: Decoding,
        sequences: Sequence[JobSequence],
        cache: ExLlamaV2CacheBase,
        forward: Forward,
        pool: Executor,
        drafter: Drafter | None,
        draft_tokens: int,
    ) -> None:
        """
        Args:
            text, sequences: the text.
            cache: what ``forward`` writes to, behind its ``current_seq_len``.
            forward: runs the model.
            pool: where filters are evaluated while the model runs.
            drafter, draft_tokens: what guesses tokens, and how many.
        """
        self.text, self.sequences = text, sequences
        self.drafted = self.accepted = 0
        self._cache, self._forward, self._pool = cache, forward, pool
        self._drafter, self._draft_tokens = drafter, draft_tokens
        self._foreseen: Foreseen | None = None
        self._guessing = False

    @property
    def ids(self) -> torch.Tensor:
        """The sequence, prompt included, int64 of shape (rows, n)."""
        return torch.cat([sequence.sequence_ids.torch() for sequence in self.sequences])

    @property
    def more(self) -> bool:
        """Whether another token can be drawn before the model has to run again."""
        return self._foreseen is not None and self._foreseen.more

    def prefill(self) -> None:
        """Take the prompt through the model, but for what the cache holds and for the last token."""
        ids = self.ids[:, self._cache.current_seq_len : -1]
        if ids.shape[1]:
            self._forward(ids, True)
        reached = self._cache.current_seq_len
        if reached < len(self.sequences[0].sequence_ids) - 1:  # the pass was aborted
            for sequence in self.sequences:
                sequence.sequence_ids.truncate(reached)

    def draw(self, blocked: Sequence[int] = ()) -> Outcome | None:
        """Draw a token, none of ``blocked``; ``None`` where the pass before it was aborted."""
        if not self.more:
            failed = self.text.begin() or self._run()
            if failed is not None or self._foreseen is None:
                return failed
        assert self._foreseen is not None
        outcome = self._foreseen.step(blocked)
        self.accepted += int(self._guessing and self.more)
        length = len(self.sequences[0].sequence_ids)
        # The last token has not been through the model.
        self._cache.current_seq_len = min(self._cache.current_seq_len, length - 1)
        self.sequences[0].draft_position = min(self.sequences[0].draft_position, length - 1)
        return outcome

    def _run(self) -> Outcome | None:
        """Run the model over the last token and those that may follow; returns an outcome where a filter failed."""
        self._foreseen = None
        proposals = self._propose()
        failed = self.text.look_ahead(self._pool, proposals)
        if failed is not None:
            return failed
        # Tokens of an earlier pass that did not come true are in the cache.
        past = self._cache.current_seq_len = len(self.sequences[0].sequence_ids) - 1
        last = torch.cat([sequence.sequence_ids.torch()[:, past:] for sequence in self.sequences])
        ahead = torch.tensor(proposals, dtype=torch.long).expand(len(self.sequences), -1)
        logits = self._forward(torch.cat([last, ahead], dim=1), False)
        if logits is not None:
            self._foreseen = Foreseen(self.text, logits.float().cpu(), proposals)
        return None

    def _propose(self) -> list[int]:
        room = self._cache.max_seq_len - len(self.sequences[0].sequence_ids)
        if self.text.remaining is not None:
            room = min(room, self.text.remaining - 1)
        proposals = propose_forced(self.text, room)
        self._guessing = self._drafter is not None and not proposals and not self.text.healing and room > 0
        if self._drafter is not None and self._guessing:
            self._drafter.propose(
                [Draft(self.sequences[0], min(room, self._draft_tokens), self.text.scout(), proposals)]
            )
            self.drafted += len(proposals)
        return proposals
