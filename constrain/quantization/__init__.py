"""Models in fewer bits, and what that costs: perplexity, and divergence from the original."""

from __future__ import annotations

from constrain.quantization.conversion import Quantization, quantize
from constrain.quantization.evaluate import Divergence, ModelEvaluation, evaluate_model
from constrain.quantization.texts import Text, read_texts

__all__ = ["Divergence", "ModelEvaluation", "Quantization", "Text", "evaluate_model", "quantize", "read_texts"]
