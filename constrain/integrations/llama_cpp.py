"""Constraints for ``llama-cpp-python``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from constrain.engine import CompiledGrammar
from constrain.integrations.rows import RowMasks

__all__ = ["ConstraintLogitsProcessor"]


class ConstraintLogitsProcessor:
    """Restricts an output to a grammar: ``llama(prompt, logits_processor=LogitsProcessorList([processor]))``.

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

    def __call__(self, input_ids: npt.NDArray[np.intc], scores: npt.NDArray[np.single]) -> npt.NDArray[np.single]:
        """Return the scores ``[width]``, -inf for the excluded tokens.

        Args:
            input_ids: ``[length]``, prompt and output so far.
            scores: ``[width]``, of the next tokens.

        Raises:
            GenerationError: the scores are narrower than the vocabulary of the grammar.
            BudgetError: ``max_tokens`` is less than the shortest text needs.
        """
        allowed = self._masks.allowed([input_ids.tolist()], len(scores))[0]
        return np.where(allowed, scores, np.single(-np.inf))
