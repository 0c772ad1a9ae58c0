"""An evaluation as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from constrain.evaluation.confusion import Confusion
from constrain.evaluation.evaluation import Documents, Evaluation
from constrain.evaluation.reliability import Reliability
from constrain.evaluation.scores import Score
from constrain.evaluation.spans import SpanScore

#: Shares of the values for which the risk is shown.
COVERAGES = (0.5, 0.8, 0.9, 1.0)


def print_tables(evaluation: Evaluation, console: Console) -> None:
    """Print an evaluation."""
    console.print(summary(evaluation.documents), _scores(evaluation))
    if evaluation.spans:
        console.print(_spans(evaluation))
    for field, confusion in evaluation.confusions.items():
        if not confusion.is_diagonal:
            console.print(_confusion(field, confusion))
    if evaluation.reliability:
        console.print(reliability_summary(evaluation.reliability), _risks(evaluation.reliability))


def summary(documents: Documents) -> str:
    """Return the counts of the documents in words."""
    parts = [f"{documents.gold:,} document{'s' * (documents.gold != 1)}", f"{documents.right:,} entirely right"]
    if documents.failed:
        parts.append(f"{documents.failed:,} failed")
    if documents.missing:
        parts.append(f"{documents.missing:,} without a line in the records")
    return ", ".join(parts)


def reliability_summary(reliability: Reliability) -> str:
    """Return the measures of the probabilities, in words."""
    area = "" if reliability.auroc is None else f"AUROC {reliability.auroc:.3f}, "
    error = f"expected calibration error {reliability.calibration_error:.3f}"
    values = f"{reliability.count:,} value{'s' * (reliability.count != 1)}"
    return f"Probabilities of {values}: {area}{error}"


def percent(share: float | None) -> str:
    """Return a share as a percentage; a dash if there is none."""
    return "–" if share is None else f"{share:.1%}"


def _scores(evaluation: Evaluation) -> Table:
    table = _table("field", "right", "wrong", "invented", "missed", "absent", "precision", "recall", "F1")
    for field, score in evaluation.fields.items():
        table.add_row(escape(field) or "(record)", *_score(score))
    table.add_section()
    table.add_row("all", *_score(evaluation.total))
    return table


def _score(score: Score) -> Iterator[str]:
    for count in (score.right, score.wrong, score.invented, score.missed, score.absent):
        yield f"{count:,}"
    yield from map(percent, (score.precision, score.recall, score.f1))


def _spans(evaluation: Evaluation) -> Table:
    table = _table("spans of", "gold", "found", "overlapping", "exact", "precision", "recall", "F1", "overlap")
    for field, score in evaluation.spans.items():
        table.add_row(escape(field), *_span(score))
    return table


def _span(score: SpanScore) -> Iterator[str]:
    for count in (score.gold, score.found, score.overlapping, score.exact):
        yield f"{count:,}"
    yield from map(percent, (score.precision, score.recall, score.f1, score.mean_overlap))


def _confusion(field: str, confusion: Confusion) -> Table:
    table = _table(f"{escape(field)}: gold, found →", *map(escape, confusion.values))
    for value, row in zip(confusion.values, confusion.counts, strict=True):
        table.add_row(escape(value), *(f"{count:,}" if count else "·" for count in row))
    return table


def _risks(reliability: Reliability) -> Table:
    table = _table("surest", "probability at least", "wrong")
    points = (next(each for each in reliability.risk_coverage if each.coverage >= least) for least in COVERAGES)
    for point in dict.fromkeys(points):
        table.add_row(percent(point.coverage), f"{point.probability:.3f}", percent(point.risk))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(Column(first, overflow="fold"), box=None, header_style="bold", pad_edge=False)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table
