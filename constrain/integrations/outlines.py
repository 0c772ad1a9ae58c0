"""Constraints for Outlines, over transformers, llama.cpp or MLX."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from outlines.processors.base_logits_processor import OutlinesLogitsProcessor

from constrain.engine import CompiledGrammar
from constrain.integrations.rows import RowMasks

__all__ = ["ConstraintLogitsProcessor"]


class ConstraintLogitsProcessor(OutlinesLogitsProcessor):
    """Restricts outputs to a grammar: ``outlines.Generator(model, processor=processor)``.

    Args:
        grammar: a grammar compiled for the vocabulary of the model.
        tensor_library_name: the library of the model's tensors, ``"torch"``, ``"numpy"`` or ``"mlx"``; a model of
            Outlines has it as ``model.tensor_library_name``.
        max_new_tokens: as given to the generator: texts are complete within them.
    """

    def __init__(self, grammar: CompiledGrammar, tensor_library_name: str, max_new_tokens: int | None = None) -> None:
        super().__init__(tensor_library_name)
        self._masks = RowMasks(grammar, max_new_tokens)

    def reset(self) -> None:
        """Clear the state: the rows of the next step are prompts."""
        self._masks.reset()

    def process_logits(self, input_ids: Any, logits: Any) -> Any:
        """Set the logits of excluded tokens to -inf.

        Args:
            input_ids: ``[rows, length]``, prompts and outputs so far.
            logits: ``[rows, width]``, of the next tokens.

        Returns:
            The logits, -inf for the excluded tokens.

        Raises:
            GenerationError: the logits are narrower than the vocabulary of the grammar.
            BudgetError: ``max_new_tokens`` is less than the shortest text needs.
        """
        adapter: Any = self.tensor_adapter
        excluded = ~self._masks.allowed(adapter.to_list(input_ids), logits.shape[-1])
        return adapter.apply_mask(logits, _as_tensor(excluded, adapter.library_name, logits), -np.inf)


def _as_tensor(flags: npt.NDArray[np.bool_], library: str, logits: Any) -> Any:
    """Return flags as a tensor of a library, on the device of the logits."""
    if library == "torch":
        import torch

        return torch.from_numpy(flags).to(logits.device)
    if library == "mlx":
        import mlx.core as mx

        return mx.array(flags)
    return flags
