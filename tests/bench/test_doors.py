"""The benchmark of all doors, on models that are tiny: that every door opens, not how fast."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from constrain.bench import doors
from constrain.bench.doors.speculation import never_again
from constrain.bench.shapes import Shape
from constrain.cli.bench import bench
from constrain.errors import BenchmarkError

SIZES: dict[str, Any] = {"prompt": 6, "new_tokens": 6, "forced_tokens": 12, "documents": 2, "record_tokens": 400}
FRONTS = {
    "ExLlamaV2BaseGenerator",
    "ExLlamaV2StreamingGenerator",
    "ExLlamaV2DynamicGeneratorAsync",
    "LLM.generate",
    "LLM.extract",
    "LLM.extract_many",
}
SETTINGS = {
    *("typical", "tfs", "top_a", "skew", "smoothing_factor", "dynamic temperature", "temperature_last", "mirostat"),
    *("DRY", "XTC", "token_bias", "banned_strings", "stop strings", "return_top_tokens=10", "return_probs"),
    *("return_logits", "trigger", "token_healing", "min_new_tokens", "LoRA of rank 16", "ExLlamaV2Cache_8bit"),
    *("ExLlamaV2Cache_Q4", "all together", "all together, Q4 cache"),
}
FILTERS = {"guidance, by rows", "filter with one large set", "filter with a large set each"}


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("gc.freeze", lambda: None)


def random_figures(shape: Shape, tokenizer_dir: Path, **options: Any) -> dict[str, Any]:
    """The last figures of models with random weights."""
    given = {"batches": (1, 2), "repeats": 1, **SIZES, **options}
    (*_, figures) = doors.measure_random(shape, shape, tokenizer_dir, **given)
    return figures


def check(figures: dict[str, Any]) -> None:
    for each in figures["doors"]:
        assert "error" not in each, each
        pairs = list(zip(each["rates"], each["plain_rates"], strict=True))
        assert len(pairs) == figures["repeats"] and min(min(pair) for pair in pairs) > 0
        assert each["ratio"] == median(door / plain for door, plain in pairs)


def test_fronts(tiny_shape: Shape, tiny_dir: Path) -> None:
    figures = random_figures(tiny_shape, tiny_dir, parts=["fronts"])
    check(figures)
    assert {each["name"] for each in figures["doors"]} == FRONTS
    assert figures["date"] and figures["device"] and figures["new_tokens"] == 6


def test_settings_at_every_batch(tiny_shape: Shape, tiny_dir: Path) -> None:
    figures = random_figures(tiny_shape, tiny_dir, parts=["settings"])
    check(figures)
    for batch, names in ((1, SETTINGS), (2, SETTINGS | FILTERS)):
        assert {each["name"] for each in figures["doors"] if each["batch"] == batch} == names


def test_drafts_are_accepted_or_not(tiny_shape: Shape, tiny_dir: Path) -> None:
    figures = random_figures(tiny_shape, tiny_dir, parts=["speculation"], repeats=2)
    check(figures)
    for each in figures["doors"]:
        if each["name"].startswith("draft model") and "all accepted" in each["name"]:
            assert each["accepted"] == each["drafted"] > 0, each
        elif "all accepted" in each["name"]:  # but where the prompt begins again
            assert each["accepted"] > each["drafted"] / 2, each
        else:
            assert each["accepted"] <= each["drafted"] / 4, each


@pytest.mark.parametrize(("count", "size"), [(1, 2), (6, 3), (7, 5), (264, 17)])
def test_a_text_without_two_equal_pairs_of_tokens(count: int, size: int) -> None:
    tokens = never_again(count)
    assert len(tokens) == count and len(set(tokens)) <= size
    pairs = list(pairwise(tokens))
    assert len(set(pairs)) == len(pairs)


def test_a_door_that_is_shut_is_named(tiny_shape: Shape, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shut(*args: Any) -> None:
        raise BenchmarkError("shut")

    monkeypatch.setattr("constrain.bench.doors.speculation._forced_drafts", shut)
    figures = random_figures(tiny_shape, tiny_dir, parts=["speculation"])
    errors = [each["error"] for each in figures["doors"] if "error" in each]
    assert errors == ["BenchmarkError: shut"] and len(figures["doors"]) == 6


def test_no_door_is_begun_when_the_time_is_up(tiny_shape: Shape, tiny_dir: Path) -> None:
    figures = random_figures(tiny_shape, tiny_dir, parts=["fronts"], seconds=0)
    assert {each["error"] for each in figures["doors"]} == {"left out: the time was up"}


def test_command_for_the_built_in_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "BUILT_IN_SIZES", {**doors.BUILT_IN_SIZES, "new_tokens": 2, "prompt": 4, "documents": 1})
    monkeypatch.setattr("constrain.bench.doors.fronts._extract", lambda lab: lambda: 1.0)
    file = tmp_path / "doors.json"
    args = ["doors", "--built-in", "--part", "fronts", "--repeats", "1", "--output", str(file)]
    result = CliRunner().invoke(bench, args, catch_exceptions=False)
    assert result.exit_code == 0
    figures = json.loads(file.read_text(encoding="utf-8"))
    check(figures)
    assert figures["shape"] == "built-in"
    assert len(result.output.splitlines()) == 1 + len(figures["doors"])
    assert "LLM.extract_many, beside a loop" in result.output


def test_command_without_a_tokenizer_or_a_gpu(tiny_dir: Path) -> None:
    result = CliRunner().invoke(bench, ["doors"])
    assert result.exit_code == 2 and "--tokenizer" in result.output
    result = CliRunner().invoke(bench, ["doors", "--tokenizer", str(tiny_dir)])
    assert isinstance(result.exception, BenchmarkError)
