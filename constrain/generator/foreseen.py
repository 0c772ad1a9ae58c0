"""Logits that a pass has made known ahead: behind a text, and behind tokens that may follow it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from constrain.generator.decoding import Decoding
from constrain.generator.outcome import Outcome

#: Most tokens of forced text that go through the model in one pass.
_MOST_FORCED = 64


class Foreseen:
    """Draws the tokens of a text as long as what is drawn is what was proposed.

    Attributes:
        more: whether the logits for the next token are here.
    """

    def __init__(self, text: Decoding, logits: torch.Tensor, proposals: Sequence[int]) -> None:
        """
        Args:
            text: the text.
            logits: float32 of shape (rows, 1 + proposals, padded vocabulary), on the CPU.
            proposals: the tokens that went through the model behind the last one.
        """
        self.more = True
        self._text = text
        self._logits = logits.unbind(1)
        self._proposals = [*proposals, None]
        self._drawn = 0

    def step(self, blocked: Sequence[int] = ()) -> Outcome:
        """Draw a token, none of ``blocked``."""
        outcome = self._text.step(self._logits[self._drawn].contiguous(), blocked)
        over = outcome.end is not None or outcome.suppressed is not None
        self.more = not over and self._text.last_token == self._proposals[self._drawn]
        self._drawn += 1
        return outcome


def propose_forced(text: Decoding, room: int) -> list[int]:
    """The tokens of text that is certain to follow, ``room`` at most, and none that ends the text."""
    forced = text.forced(min(room, _MOST_FORCED)) if room > 0 else []
    end = next((i for i, token in enumerate(forced) if text.ends_with(token)), len(forced))
    return forced[:end]
