"""Evaluation of extracted records against gold."""

from constrain.evaluation.compare import Outcome, Pair, compare, correctness
from constrain.evaluation.scores import Score
from constrain.evaluation.values import same

__all__ = ["Outcome", "Pair", "Score", "compare", "correctness", "same"]
