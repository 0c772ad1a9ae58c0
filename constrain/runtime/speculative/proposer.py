"""Sources of draft tokens, and their acceptance rate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.sequence import SequenceState

# The acceptance rate is a moving average; when it falls below the first value, drafting pauses.
MIN_ACCEPTANCE = 0.3
SMOOTHING = 0.5
_FIRST_PAUSE, _MAX_PAUSE = 8, 64


class Acceptance:
    """Acceptance rate of the proposals for a sequence, which decides how many tokens to propose.

    Attributes:
        rate: moving average of the share of accepted proposals; starts at 1.
    """

    def __init__(self) -> None:
        self.rate = 1.0
        self._pause, self._paused = _FIRST_PAUSE, 0

    @property
    def is_paused(self) -> bool:
        """Whether drafting is paused for the next token."""
        return self._paused > 0

    def limit(self, most: int) -> int:
        """Return the number of tokens to propose, ``most`` or, while few are accepted, one."""
        return most if self.rate >= MIN_ACCEPTANCE else 1

    def observe(self, accepted: int, proposed: int) -> None:
        """Update with the outcome of a verification; both are zero for a token without proposals."""
        if not proposed:
            self._paused = max(0, self._paused - 1)
            return
        self.rate += SMOOTHING * (accepted / proposed - self.rate)
        if accepted:
            self._pause = _FIRST_PAUSE
        elif self.rate < MIN_ACCEPTANCE:
            self._paused, self._pause = self._pause, min(2 * self._pause, _MAX_PAUSE)


class Proposer(ABC):
    """A source of draft tokens.

    Attributes:
        num_tokens: maximum number of tokens to propose at a time.
    """

    num_tokens: int

    @abstractmethod
    def wants(self, sequence: SequenceState) -> bool:
        """Return whether the next pass of a sequence should wait until its tokens are known, to propose more."""

    @abstractmethod
    def propose(self, sequences: Sequence[SequenceState], limits: Sequence[int]) -> list[list[int]]:
        """Return draft tokens for each sequence that wants them, up to its limit; all its tokens are known."""

    def prefill(self, rows: Sequence[BatchRow]) -> None:
        """Prefill prompt chunks that went through the model."""
        return

    def observe(self, sequence: SequenceState, accepted: int, proposed: int) -> None:
        """Update with the outcome of a verification; both are zero for a token without proposals."""
        return

    def paged_tensors(self) -> list[torch.Tensor]:
        """Return tensors that are stored by page, under the same block tables: ``[num_pages, page_size, ...]``."""
        return []
