"""An evaluation as a page: one HTML file, without script, that needs no network."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from constrain import __version__
from constrain.engine.pointers import pointer
from constrain.errors import RunError
from constrain.evaluation.evaluation import Evaluation
from constrain.evaluation.plots import reliability_diagram, risk_coverage_plot, score_bar
from constrain.evaluation.tables import percent, reliability_summary, summary
from constrain.review.page import csp_hash, theme_style

#: Most differences on a page, and steps of shade of a confusion matrix.
MAX_DIFFERENCES, SHADES = 1000, 8


def write_page(evaluation: Evaluation, path: str | Path, *, title: str) -> None:
    """Write a page with the scores, plots, and the values that are not right, the surest first and 1000 at most.

    Args:
        evaluation: the evaluation.
        path: the file.
        title: what was evaluated.

    Raises:
        RunError: the file cannot be written.
    """
    try:
        # The name of a file need not be text.
        Path(path).write_text(_rendered(evaluation, title), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise RunError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error


def _rendered(evaluation: Evaluation, title: str) -> str:
    from jinja2 import Environment
    from markupsafe import Markup

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(percent=percent, json=_json, pointer=pointer)
    style = theme_style() + _asset("page.css")
    return environment.from_string(_asset("page.html")).render(
        title=title,
        version=__version__,
        style=Markup(style),
        style_hash=csp_hash(style),
        evaluation=evaluation,
        summary=summary(evaluation.documents),
        reliability=evaluation.reliability and reliability_summary(evaluation.reliability),
        differences=evaluation.differences[:MAX_DIFFERENCES],
        plots={name: Markup(plot) for name, plot in _plots(evaluation).items()},
        bar=lambda share: Markup(score_bar(share)),
        shade=lambda count, row: round(SHADES * count / max(sum(row), 1)),
    )


def _plots(evaluation: Evaluation) -> dict[str, str]:
    if not evaluation.reliability:
        return {}
    return {
        "reliability": reliability_diagram(evaluation.reliability.bins),
        "risk_coverage": risk_coverage_plot(evaluation.reliability.risk_coverage),
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _asset(name: str) -> str:
    return (files("constrain.evaluation") / "assets" / name).read_text(encoding="utf-8")
