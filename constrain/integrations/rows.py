"""Masks for callers that only hand over the tokens of each row, such as the logits processors of other libraries."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from constrain.arguments import check_count, check_type
from constrain.engine import CompiledGrammar, allocate_bitmask
from constrain.engine.bitmask import packed
from constrain.errors import GenerationError

if TYPE_CHECKING:
    from constrain.engine import Matcher

#: Matchers of the rows of a step, by their tokens, prompt included; ``None`` for a row outside of the grammar.
_Step: TypeAlias = "dict[tuple[int, ...], Matcher | None]"

# In assisted generation the main model returns to earlier steps, to verify each token of a draft.
_MAX_STEPS = 64


class RowMasks:
    """The masks of rows under a grammar, each found by the tokens that the row had a step before.

    A call is new unless each row extends a row of an earlier step by one token. After a complete text, only
    end-of-sequence tokens are allowed, repeatedly if the caller does not know them; the same holds for a row that was
    extended by an excluded token.

    Args:
        grammar: the grammar.
        max_new_tokens: complete each text within this number of tokens, the end-of-sequence token included.
    """

    def __init__(self, grammar: CompiledGrammar, max_new_tokens: int | None = None) -> None:
        check_type("grammar", grammar, CompiledGrammar, "a compiled grammar")
        if max_new_tokens is not None:
            check_count("max_new_tokens", max_new_tokens, 1)
        self.grammar = grammar
        self.max_new_tokens = max_new_tokens
        self._end = packed(grammar.vocabulary.eos_token_ids, allocate_bitmask(1, grammar.vocabulary.size).size)
        self._steps: deque[_Step] = deque(maxlen=_MAX_STEPS)

    def reset(self) -> None:
        """Clear the state: the rows of the next step are prompts."""
        self._steps.clear()

    def bits(self, rows: Sequence[Sequence[int]]) -> npt.NDArray[np.int32]:
        """Return the bitmask of the next tokens: int32 ``[rows, ceil(size / 32)]``.

        Args:
            rows: of each row, the tokens of its prompt and its output so far.

        Raises:
            BudgetError: ``max_new_tokens`` is less than the shortest text needs.
        """
        keys = [tuple(row) for row in rows]
        matchers = self._continued(keys) or {key: self.grammar.matcher() for key in keys}
        self._steps.append(matchers)
        bits = allocate_bitmask(len(keys), self.grammar.vocabulary.size)
        for number, key in enumerate(keys):
            matcher = matchers[key]
            if matcher is None or matcher.is_finished():
                bits[number] = self._end
            else:
                matcher.fill_bitmask(bits, number, self._budget(matcher))
        return bits

    def allowed(self, rows: Sequence[Sequence[int]], width: int) -> npt.NDArray[np.bool_]:
        """Return which tokens may come next: ``[rows, width]``.

        Args:
            rows: of each row, the tokens of its prompt and its output so far.
            width: number of scores of the model.

        Raises:
            GenerationError: the scores are fewer than the tokens of the grammar's vocabulary.
            BudgetError: ``max_new_tokens`` is less than the shortest text needs.
        """
        size = self.grammar.vocabulary.size
        check_width(width, size)
        flags = np.unpackbits(self.bits(rows).view(np.uint8), axis=1, count=size, bitorder="little")
        return np.pad(flags.view(np.bool_), ((0, 0), (0, width - size)))

    def _budget(self, matcher: Matcher) -> int | None:
        return None if self.max_new_tokens is None else self.max_new_tokens - matcher.accepted_tokens

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


def check_width(width: int, size: int) -> None:
    """Raise :class:`GenerationError` if a model has fewer scores than the vocabulary of a grammar has tokens."""
    if width < size:
        raise GenerationError(
            f"the grammar is for a vocabulary of {size} tokens, but the model gives scores for {width}"
        )


def _advanced(matcher: Matcher | None, token: int) -> Matcher | None:
    if matcher is None or matcher.is_finished():
        return matcher
    copy = matcher.clone()
    return copy if copy.accept(token) else None
