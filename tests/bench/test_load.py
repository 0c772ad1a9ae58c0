"""The benchmark of loading, on a model of some kilobytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from constrain.bench.load import measure_load
from constrain.bench.shapes import Shape
from constrain.model import ExLlamaV2, ExLlamaV2Config


@pytest.mark.gpu
def test_rates_of_all_ways(tiny_shape: Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrain.bench.load._SHARD_BYTES", 10_000)
    figures = measure_load(tiny_shape, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert figures["bytes"] > 2 * tiny_shape.weights_read
    for way in ("read", "constrain", "safetensors"):
        assert figures["cold"][way] > 0 and figures["cached"][way] > 0
    model = ExLlamaV2(ExLlamaV2Config(str(tmp_path)))
    model.load()
    assert model.modules_dict["lm_head"].weight.std() > 0.5
