"""Constraints for ``generate`` of ``transformers``."""

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

#: Matchers of the rows of a step, by their tokens, prompt included; ``None`` for a row outside of the grammar.
_Step: TypeAlias = "dict[tuple[int, ...], Matcher | None]"

# In assisted generation the main model returns to earlier steps, to verify each token of a draft.
_MAX_STEPS = 64


class ConstraintLogitsProcessor(LogitsProcessor):
    """Restricts the output of ``generate`` to a grammar, separately for each row of a batch or beam.

    A processor can be used for any number of calls of ``generate``, one after another. A call is new unless each row
    extends a row of an earlier step by one token. If the prompts of a new call happen to do so, call :meth:`reset`
    before it.

    After a complete text, only end-of-sequence tokens are allowed, repeatedly if ``generate`` does not know them. The
    same holds for a row that beam search has extended by an excluded token, for lack of allowed ones.

    Args:
        grammar: a grammar compiled for the vocabulary of the model, as wide as its logits or narrower.
    """

    def __init__(self, grammar: CompiledGrammar) -> None:
        check_type("grammar", grammar, CompiledGrammar, "a compiled grammar")
        self.grammar = grammar
        self._end = packed(grammar.vocabulary.eos_token_ids, allocate_bitmask(1, grammar.vocabulary.size).size)
        self._steps: deque[_Step] = deque(maxlen=_MAX_STEPS)

    def reset(self) -> None:
        """Clear the state: the rows of the next step are prompts."""
        self._steps.clear()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Set the scores of excluded tokens to -inf.

        Args:
            input_ids: int64 ``[rows, length]``, prompts and output so far.
            scores: float ``[rows, width]``, of the next tokens.

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
        matchers = self._continued(rows) or {row: self.grammar.matcher() for row in rows}
        self._steps.append(matchers)
        bits = allocate_bitmask(len(rows), size)
        for number, row in enumerate(rows):
            matcher = matchers[row]
            if matcher is None or matcher.is_finished():
                bits[number] = self._end
            else:
                matcher.fill_bitmask(bits, number)
        scores = scores.clone()
        apply_bitmask(scores[:, :size], torch.from_numpy(bits).to(scores.device))
        scores[:, size:] = -torch.inf
        return scores

    def _continued(self, rows: list[tuple[int, ...]]) -> _Step | None:
        """Advance the matchers of rows that extend rows of earlier steps by one token.

        Returns:
            The matchers; ``None`` for a new call: a row extends no earlier one, or all rows are outside the grammar.
        """
        matchers: _Step = {}
        for row in rows:
            earlier = next((step for step in reversed(self._steps) if row[:-1] in step), None)
            if earlier is None:
                return None
            matchers[row] = _advanced(earlier[row[:-1]], row[-1])
        return matchers if any(matcher is not None for matcher in matchers.values()) else None


def _advanced(matcher: Matcher | None, token: int) -> Matcher | None:
    if matcher is None or matcher.is_finished():
        return matcher
    copy = matcher.clone()
    return copy if copy.accept(token) else None
