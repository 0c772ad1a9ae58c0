"""Constraints for ``generate`` of ``transformers``."""

from __future__ import annotations

import torch
from transformers import LogitsProcessor

from constrain.engine import CompiledGrammar
from constrain.errors import ArgumentError
from constrain.integrations.rows import RowMasks, check_width
from constrain.kernels import apply_bitmask
from constrain.kernels.bitmask import apply_bitmask_reference

#: Types of scores that the kernel takes.
_FAST = (torch.float32, torch.float16, torch.bfloat16)

__all__ = ["ConstraintLogitsProcessor"]


class ConstraintLogitsProcessor(LogitsProcessor):
    """Restricts the output of ``generate`` to a grammar, separately for each row of a batch or beam.

    A processor can be used for any number of calls of ``generate``, one after another. A call is new unless each row
    extends a row of an earlier step by one token. If the prompts of a new call happen to do so, call :meth:`reset`
    before it.

    After a complete text, only end-of-sequence tokens are allowed, repeatedly if ``generate`` does not know them. The
    same holds for a row that beam search has extended by an excluded token, for lack of allowed ones.

    Args:
        grammar: a grammar compiled for the vocabulary of the model, as wide as its logits or narrower.
        max_new_tokens: as given to ``generate``: texts are complete within them.
    """

    def __init__(self, grammar: CompiledGrammar, max_new_tokens: int | None = None) -> None:
        self.grammar = grammar
        self._masks = RowMasks(grammar, max_new_tokens)

    def reset(self) -> None:
        """Clear the state: the rows of the next step are prompts."""
        self._masks.reset()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Set the scores of excluded tokens to -inf.

        Args:
            input_ids: int64 ``[rows, length]``, prompts and output so far.
            scores: ``[rows, width]``, of the next tokens, of any type of floating-point numbers.

        Returns:
            New scores, -inf for the excluded tokens.

        Raises:
            ArgumentError: the scores are no floating-point numbers, or not one row for each of ``input_ids``.
            GenerationError: the scores are narrower than the vocabulary of the grammar.
            BudgetError: ``max_new_tokens`` is less than the shortest text needs.
        """
        size = self.grammar.vocabulary.size
        if not scores.is_floating_point() or scores.shape[:-1] != input_ids.shape[:-1]:
            given = f"{scores.dtype} {list(scores.shape)}"
            raise ArgumentError(f"the scores must be floating-point numbers [{len(input_ids)}, width], not {given}")
        check_width(scores.shape[1], size)
        bits = torch.from_numpy(self._masks.bits(input_ids.tolist())).to(scores.device)
        scores = scores.clone(memory_format=torch.contiguous_format)
        apply = apply_bitmask if scores.dtype in _FAST else apply_bitmask_reference
        apply(scores[:, :size], bits)
        scores[:, size:] = -torch.inf
        return scores
