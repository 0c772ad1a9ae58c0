"""The benchmark of loading, on a model of some kilobytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from constrain.bench.load import measure_load
from constrain.bench.shapes import Shape
from constrain.model import ExLlamaV2, ExLlamaV2Config

SHAPE = Shape(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=96,
)


@pytest.mark.gpu
def test_rates_of_all_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    monkeypatch.setattr("constrain.bench.load._SHARD_BYTES", 10_000)
    figures = measure_load(SHAPE, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert figures["bytes"] > 2 * SHAPE.weights_read
    for way in ("read", "constrain", "safetensors"):
        assert figures["cold"][way] > 0 and figures["cached"][way] > 0
    model = ExLlamaV2(ExLlamaV2Config(str(tmp_path)))
    model.load()
    assert model.modules_dict["lm_head"].weight.std() > 0.5
