"""Evaluation of extracted records against gold."""

from constrain.evaluation.compare import Outcome, Pair, compare, correctness
from constrain.evaluation.confusion import Confusion
from constrain.evaluation.evaluation import Documents, Evaluation, evaluate
from constrain.evaluation.judge import Judgement
from constrain.evaluation.match import Match, match
from constrain.evaluation.page import write_page
from constrain.evaluation.reliability import Bin, Reliability, RiskPoint
from constrain.evaluation.scores import Score
from constrain.evaluation.spans import SpanScore
from constrain.evaluation.values import same

__all__ = [
    "Bin",
    "Confusion",
    "Documents",
    "Evaluation",
    "Judgement",
    "Match",
    "Outcome",
    "Pair",
    "Reliability",
    "RiskPoint",
    "Score",
    "SpanScore",
    "compare",
    "correctness",
    "evaluate",
    "match",
    "same",
    "write_page",
]
