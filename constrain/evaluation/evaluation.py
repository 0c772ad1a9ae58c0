"""Evaluation of the output of a run against gold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from constrain.engine.pointers import pointer
from constrain.evaluation.confusion import Confusion
from constrain.evaluation.judge import Judgement, judge
from constrain.evaluation.match import Match, match
from constrain.evaluation.reliability import Reliability
from constrain.evaluation.scores import Score
from constrain.evaluation.spans import SpanScore
from constrain.runs import Line


@dataclass(frozen=True)
class Documents:
    """Counts of the documents of gold, by outcome.

    Attributes:
        gold: number of documents.
        missing: those without a line in the output.
        failed: those with an error instead of a record.
        right: those whose values are all right.
    """

    gold: int
    missing: int
    failed: int
    right: int


@dataclass(frozen=True)
class Evaluation:
    """How a run compares with gold. Fields are JSON pointers with a star for each index, such as ``/lines/*/price``.

    Attributes:
        documents: their counts.
        total: score of all values.
        fields: score of each field.
        spans: scores of the spans of each field that has them in gold.
        confusions: confusion of the values of fields that have few, see :class:`Confusion`.
        reliability: how far probabilities can be relied on; ``None`` if the run has told none.
        differences: the values that are not right, the surest first.
    """

    documents: Documents
    total: Score
    fields: Mapping[str, Score]
    spans: Mapping[str, SpanScore]
    confusions: Mapping[str, Confusion]
    reliability: Reliability | None
    differences: Sequence[Judgement]

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as JSON."""
        return {
            "documents": asdict(self.documents),
            "total": _with_ratios(self.total),
            "fields": {field: _with_ratios(score) for field, score in self.fields.items()},
            "spans": {field: _with_ratios(score) for field, score in self.spans.items()},
            "confusions": {field: asdict(confusion) for field, confusion in self.confusions.items()},
            "reliability": self.reliability and asdict(self.reliability),
            "differences": [_difference(each) for each in self.differences],
        }


def evaluate(lines: Iterable[Line], gold: Iterable[Line], *, ignore_case: bool = False) -> Evaluation:
    """Compare the output of a run with gold.

    Args:
        lines: records and failures, see :func:`constrain.runs.read_lines`.
        gold: gold records, read likewise. For how they are matched, see :func:`~constrain.evaluation.match.match`.
        ignore_case: whether strings that differ only in case are the same.

    Raises:
        ArgumentError: the lines are none, but the path of a file, for example, or one has neither source nor key.
        RunError: gold has no records, a line of it has none, or none belongs to a line.
    """
    matches = match(lines, gold)
    judged = [judge(each, ignore_case=ignore_case) for each in matches]
    fields: defaultdict[str, list[Judgement]] = defaultdict(list)
    for judgement in chain.from_iterable(judged):
        fields[judgement.pair.field].append(judgement)
    return Evaluation(
        documents=_documents(matches, judged),
        total=Score.of(each.pair for group in fields.values() for each in group),
        fields={field: Score.of(each.pair for each in group) for field, group in fields.items()},
        spans=_spans(fields),
        confusions=_confusions(fields),
        reliability=_reliability(fields),
        differences=_differences(fields),
    )


def _documents(matches: Sequence[Match], judged: Sequence[Sequence[Judgement]]) -> Documents:
    lines = [each.line for each in matches]
    return Documents(
        gold=len(matches),
        missing=lines.count(None),
        failed=sum(line is not None and "record" not in line for line in lines),
        right=sum(
            line is not None and "record" in line and all(each.pair.is_right for each in values)
            for line, values in zip(lines, judged, strict=True)
        ),
    )


def _spans(fields: Mapping[str, Sequence[Judgement]]) -> dict[str, SpanScore]:
    scores = {name: SpanScore.of((each.span, each.gold_span) for each in group) for name, group in fields.items()}
    return {name: score for name, score in scores.items() if score.gold}


def _confusions(fields: Mapping[str, Sequence[Judgement]]) -> dict[str, Confusion]:
    confusions = {name: Confusion.of(each.pair for each in group) for name, group in fields.items()}
    return {name: confusion for name, confusion in confusions.items() if confusion is not None}


def _reliability(fields: Mapping[str, Sequence[Judgement]]) -> Reliability | None:
    told = [
        (each.probability, each.pair.is_right)
        for group in fields.values()
        for each in group
        if each.probability is not None
    ]
    return Reliability.of([probability for probability, _ in told], [is_right for _, is_right in told])


def _differences(fields: Mapping[str, Sequence[Judgement]]) -> list[Judgement]:
    wrong = [each for group in fields.values() for each in group if not each.pair.is_right]
    return sorted(wrong, key=lambda each: each.probability or 0.0, reverse=True)


def _with_ratios(score: Score | SpanScore) -> dict[str, Any]:
    return {**asdict(score), "precision": score.precision, "recall": score.recall, "f1": score.f1}


def _difference(judgement: Judgement) -> dict[str, Any]:
    pair = judgement.pair
    return {
        "source": judgement.source,
        "pointer": pointer(pair.path),
        "outcome": pair.outcome.value,
        "gold": pair.gold,
        "found": pair.found,
        "probability": judgement.probability,
    }
