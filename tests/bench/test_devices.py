"""The benchmark of several devices, on a tiny model: that it runs, not how fast."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from constrain.bench.shapes import SHAPES, Shape
from constrain.cli.bench import bench
from constrain.errors import BenchmarkError


def test_ways_to_split_a_model(tiny_shape: Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(SHAPES, "llama-3.2-1b", tiny_shape)
    arguments = ["devices", "--shape", "llama-3.2-1b", "--device", "cpu", "--device", "cpu:0", "--batch", "2"]
    arguments += ["--prompt", "5", "--tokens", "4", "--json", str(tmp_path / "figures.json")]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    ways = json.loads((tmp_path / "figures.json").read_text())["ways"]
    assert [way["name"] for way in ways] == ["one device", "tensor parallel", "by layers"]
    assert all(way["model"] > 0 and way["generator"] > 0 and way["same_tokens"] == 64 for way in ways)
    assert "64 of 64" in result.output


def test_without_gpus_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    result = CliRunner().invoke(bench, ["devices"])
    assert isinstance(result.exception, BenchmarkError)
