"""Decode steps with packed weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from constrain.bench.random_model import FORMS, random_model
from constrain.bench.shapes import SHAPES, Shape
from constrain.cli.bench import bench
from constrain.errors import BenchmarkError
from constrain.kernels import PackedWeight, multiplies_packed

kept_packed = pytest.mark.skipif(
    not multiplies_packed(torch.device("cpu"), torch.float32),
    reason="weights stay packed on processors with AVX2 or AVX-512",
)


@kept_packed
@pytest.mark.parametrize("form", FORMS)
def test_random_weights_may_be_packed(
    form: str, tiny_shape: Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model, _ = random_model(tiny_shape, tmp_path, form=form)
    assert isinstance(model.modules[-1].weight, PackedWeight)  # type: ignore[attr-defined]
    logits = model.forward(torch.tensor([[3, 95]]))
    assert logits.isfinite().all() and logits.std() > 0


@kept_packed
def test_memory_and_time_of_each_form(tiny_shape: Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(SHAPES, "llama-3.2-1b", tiny_shape)
    arguments = ["weights", "--shape", "llama-3.2-1b", "--batch", "2", "--json", str(tmp_path / "figures.json")]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [form["name"] for form in figures["forms"]] == ["float32", *FORMS]
    assert all(form["cpu_seconds"] > 0 for form in figures["forms"])
    plain, int8, int4, *_ = (form["bytes"] for form in figures["forms"])
    assert plain > 3.5 * int8 > 6 * int4
    assert all(form in result.output for form in FORMS)


def test_a_gpu_dequantises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    result = CliRunner().invoke(bench, ["weights"])
    assert isinstance(result.exception, BenchmarkError) and "where there is no GPU" in str(result.exception)
