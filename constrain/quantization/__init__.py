"""Models in fewer bits, and what that costs: perplexity, and divergence from the original."""

from __future__ import annotations

from constrain.quantization.evaluate import Divergence, ModelEvaluation, evaluate_model
from constrain.quantization.texts import Text, read_texts

__all__ = ["Divergence", "ModelEvaluation", "Text", "evaluate_model", "read_texts"]
