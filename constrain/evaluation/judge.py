"""The values of documents, compared with gold one by one."""

from __future__ import annotations

from dataclasses import dataclass

from constrain.engine.pointers import pointer
from constrain.evaluation.compare import Outcome, Pair, Path, compare
from constrain.evaluation.match import Match
from constrain.review.fields import leaves
from constrain.runs import Line


@dataclass(frozen=True)
class Judgement:
    """A value of a document, compared with gold.

    Attributes:
        pair: the value found and that of gold.
        source: the source of the document.
        probability: of the value found, if the run has told it.
        span: span of the value found; ``None`` if it has none, or gold has no spans.
        gold_span: span of the value of gold.
    """

    pair: Pair
    source: str | None
    probability: float | None = None
    span: list[int] | None = None
    gold_span: list[int] | None = None


def judge(match: Match, *, ignore_case: bool = False) -> list[Judgement]:
    """Compare a record with gold. All values of a document without a record are missed.

    If gold has ``marks``, as a review exports them, only values that were marked are compared.
    """
    record = match.line.get("record") if match.line else None
    pairs = compare(record, match.gold["record"], ignore_case=ignore_case)
    return [_judgement(match, pair) for pair in _marked(pairs, match.gold) if _counts(pair)]


def _counts(pair: Pair) -> bool:
    """Return false for nulls that only one record has, which say nothing."""
    return pair.is_right or pair.outcome is not Outcome.ABSENT


def _marked(pairs: list[Pair], gold: Line) -> list[Pair]:
    """Return the pairs of values that a person has looked at: all, if no values of gold were left out."""
    marks = gold.get("marks")
    if marks is None or all(_is_marked(path, marks) for path, _ in leaves(gold["record"])):
        return pairs
    return [pair for pair in pairs if pair.gold_path is not None and _is_marked(pair.gold_path, marks)]


def _is_marked(path: Path, marks: dict[str, str]) -> bool:
    """Return whether a value, or a list or object around it, has a mark."""
    return any(pointer(path[:end]) in marks for end in range(len(path) + 1))


def _judgement(match: Match, pair: Pair) -> Judgement:
    line = match.line or {}
    found = None if pair.found_path is None else pointer(pair.found_path)
    gold = None if pair.gold_path is None else pointer(pair.gold_path)
    has_spans = "spans" in match.gold
    return Judgement(
        pair=pair,
        source=match.gold.get("source"),
        probability=line.get("confidence", {}).get(found, {}).get("probability"),
        span=line.get("spans", {}).get(found) if has_spans else None,
        gold_span=match.gold["spans"].get(gold) if has_spans else None,
    )
