"""Constraints for MLX-LM."""

from __future__ import annotations

from typing import Any

from constrain.engine import CompiledGrammar
from constrain.integrations.rows import RowMasks

__all__ = ["ConstraintLogitsProcessor"]


class ConstraintLogitsProcessor:
    """Restricts an output to a grammar: ``generate(model, tokenizer, prompt, logits_processors=[processor])``.

    It can be used for any number of calls, one after another; see :meth:`reset`.

    Args:
        grammar: a grammar compiled for the vocabulary of the model.
        max_tokens: as given to the call: the text is complete within them.
    """

    def __init__(self, grammar: CompiledGrammar, max_tokens: int | None = None) -> None:
        self._masks = RowMasks(grammar, max_tokens)

    def reset(self) -> None:
        """Clear the state: needed only where a prompt extends the last text by one token."""
        self._masks.reset()

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """Return the logits ``[1, width]``, -inf for the excluded tokens.

        Args:
            tokens: an ``mx.array`` ``[length]``, prompt and output so far.
            logits: an ``mx.array`` ``[1, width]``, of the next tokens.

        Raises:
            GenerationError: the logits are narrower than the vocabulary of the grammar.
            BudgetError: ``max_tokens`` is less than the shortest text needs.
        """
        import mlx.core as mx

        allowed = self._masks.allowed([tokens.tolist()], logits.shape[-1])
        return mx.where(mx.array(allowed), logits, -mx.inf)
