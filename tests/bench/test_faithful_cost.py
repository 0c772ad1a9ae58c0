"""The benchmark of faithful sampling compares it with masked sampling of the same constraints."""

from __future__ import annotations

from pathlib import Path

import pytest

import constrain
from constrain.bench.faithful import measure_faithful


def test_both_kinds_are_measured(tiny_dir: Path) -> None:
    llm = constrain.load(tiny_dir, max_batch_size=4, cache_tokens=8 * 256)
    figures = measure_faithful(llm, outputs=4, repeats=1, max_new_tokens=60)
    assert [case["name"] for case in figures["cases"]] == ["choice", "date", "words", "record"]
    for case in figures["cases"]:
        masked, faithful = case["masked"], case["faithful"]
        assert masked["tokens"] >= 4 and faithful["tokens"] >= 4
        assert case["ratio"] == pytest.approx(faithful["seconds"] / masked["seconds"])
        per_token = faithful["seconds"] / faithful["tokens"] / (masked["seconds"] / masked["tokens"])
        assert case["token_ratio"] == pytest.approx(per_token)
    seconds = [sum(case[kind]["seconds"] for case in figures["cases"]) for kind in ("faithful", "masked")]
    assert figures["ratio"] == pytest.approx(seconds[0] / seconds[1])
