"""The page of an evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import chromium

from constrain.errors import RunError
from constrain.evaluation import evaluate, write_page
from constrain.evaluation.plots import reliability_diagram, risk_coverage_plot
from constrain.evaluation.reliability import Bin, RiskPoint

SCRIPT = "<script>document.title = 'run'</script>"


def lines(names: list[str], **members: Any) -> list[dict[str, Any]]:
    return [
        {"key": f"{n}", "source": f"{n}.txt", "record": {"name": name, "ok": True}} | members
        for n, name in enumerate(names)
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    confidence = {"/name": {"probability": 0.75}, "/ok": {"probability": 0.5}}
    found = lines(["Ann", SCRIPT, "Cid"], confidence=confidence, spans={"/name": [0, 3]})
    gold = lines(["Ann", "Ben", "Cid"], spans={"/name": [0, 3]})
    path = tmp_path_factory.mktemp("page") / "evaluation.html"
    write_page(evaluate(found, gold), path, title=SCRIPT)
    return path


def test_the_page_shows_all_parts_and_runs_nothing(page: Path) -> None:
    with chromium() as browser:
        shown = browser.new_page()
        problems: list[str] = []
        shown.on("console", lambda message: problems.append(message.text))
        shown.on("request", lambda request: problems.append(request.url) if request.url != page.as_uri() else None)
        shown.goto(page.as_uri())
        assert shown.title() == f"{SCRIPT} – evaluation"
        assert shown.locator("h2").all_inner_texts() == ["Fields", "Confidence", "Spans", "Confusion", "Differences"]
        assert shown.locator("svg.plot").count() == 2
        assert shown.locator("tfoot td").all_inner_texts()[:8] == ["5", "1", "0", "0", "0", "83.3%", "83.3%", "83.3%"]
        assert shown.locator(".differences td").all_inner_texts() == [
            *["1.txt", "/name", "wrong", '"Ben"', f'"{SCRIPT}"', "75.0%"],
        ]
        assert not problems


def test_the_page_needs_no_other_file(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "http:" not in text and "https:" not in text and "<script>" not in text


def test_parts_without_data_are_left_out(tmp_path: Path) -> None:
    write_page(evaluate(lines(["Ann"]), lines(["Ann"])), tmp_path / "page.html", title="records")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Confidence" not in text and "Spans" not in text


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be written: is a directory"):
        write_page(evaluate(lines(["Ann"]), lines(["Ann"])), tmp_path, title="records")


def test_the_axis_of_the_risk_ends_above_it() -> None:
    plot = risk_coverage_plot([RiskPoint(0.9, 0.5, 0.0), RiskPoint(0.1, 1.0, 0.07)])
    assert ">10%<" in plot and ">2.5%<" in plot
    assert ">0.1%<" in risk_coverage_plot([RiskPoint(0.9, 1.0, 0.0)])


def test_bars_stand_at_their_range() -> None:
    plot = reliability_diagram([Bin(0.9, 1.0, 4, 0.95, 0.5)])
    assert 'class="bar"' in plot and "4 values of mean probability 0.950: 50.0% right" in plot
