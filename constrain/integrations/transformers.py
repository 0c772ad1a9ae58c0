"""Constraints for ``transformers``' own ``generate``."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

import torch
from transformers import LogitsProcessor

from constrain.arguments import check_type
from constrain.engine import CompiledGrammar, allocate_bitmask
from constrain.engine.bitmask import packed
from constrain.errors import GenerationError
from constrain.kernels import apply_bitmask

if TYPE_CHECKING:
    from constrain.engine import Matcher

__all__ = ["ConstraintLogitsProcessor"]

#: Tokens of a row, prompt included, and where they are in the grammar; ``None``: outside of it.
_Places: TypeAlias = "dict[tuple[int, ...], Matcher | None]"

# An assistant model drafts some tokens ahead, and the main model then looks at each of them again.
_REMEMBERED_STEPS = 64


class ConstraintLogitsProcessor(LogitsProcessor):
    """Keeps what ``generate`` writes inside a grammar, for each row of a batch or beam by itself.

    One processor serves any number of calls of ``generate``, one after another. It knows a new call by its texts, which
    do not go on where rows of the call before stood by exactly one token; in the rare case that they do and are meant
    to begin anew, call :meth:`reset` in between.

    A row whose text is complete can only end, again and again if ``generate`` is not told which token ends a text; so
    can one that a beam search went on with for want of allowed tokens.

    Args:
        grammar: a grammar compiled for the vocabulary of the model, as wide as its logits or narrower.
    """

    def __init__(self, grammar: CompiledGrammar) -> None:
        check_type("grammar", grammar, CompiledGrammar, "a compiled grammar")
        self.grammar = grammar
        self._end = packed(grammar.vocabulary.eos_token_ids, allocate_bitmask(1, grammar.vocabulary.size).size)
        self._steps: deque[_Places] = deque(maxlen=_REMEMBERED_STEPS)

    def reset(self) -> None:
        """Forget all texts: the next call begins anew."""
        self._steps.clear()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Exclude tokens.

        Args:
            input_ids: int64 ``[rows, length]``, prompts and what has been written behind them.
            scores: float ``[rows, width]``, for the next tokens.

        Returns:
            New scores, -inf for the excluded tokens.

        Raises:
            GenerationError: the scores are narrower than the vocabulary of the grammar.
        """
        size = self.grammar.vocabulary.size
        if scores.shape[1] < size:
            raise GenerationError(
                f"the grammar is for a vocabulary of {size} tokens, but the model gives scores for {scores.shape[1]}"
            )
        rows = [tuple(row) for row in input_ids.tolist()]
        places = self._continued(rows) or {row: self.grammar.matcher() for row in rows}
        self._steps.append(places)
        bits = allocate_bitmask(len(rows), size)
        for number, row in enumerate(rows):
            matcher = places[row]
            if matcher is None or matcher.is_finished():
                bits[number] = self._end
            else:
                matcher.fill_bitmask(bits, number)
        scores = scores.clone()
        apply_bitmask(scores[:, :size], torch.from_numpy(bits).to(scores.device))
        scores[:, size:] = -torch.inf
        return scores

    def _continued(self, rows: list[tuple[int, ...]]) -> _Places | None:
        """Places of rows that each go on by a token from a known one; ``None`` where some do not, or none can."""
        places: _Places = {}
        for row in rows:
            before = next((step for step in reversed(self._steps) if row[:-1] in step), None)
            if before is None:
                return None
            places[row] = _advanced(before[row[:-1]], row[-1])
        return places if any(matcher is not None for matcher in places.values()) else None


def _advanced(matcher: Matcher | None, token: int) -> Matcher | None:
    if matcher is None or matcher.is_finished():
        return matcher
    copy = matcher.clone()
    return copy if copy.accept(token) else None
