"""Decode passes of models whose layers are on several devices, or in several places of one, one segment a place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from split_models import GPUS, check_graphs, split_model

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer
from constrain.errors import ModelError
from constrain.model.memory import module_sizes
from constrain.runtime import Request, Runtime, SamplingParams
from constrain.runtime.model_runner import ModelRunner


@pytest.mark.parametrize("devices", [["cpu"] * 3, ["cpu", "cpu:0", "cpu:1"]])
@pytest.mark.parametrize("name", ["llama", "gemma3", "mixtral", "deepseek_v3", "cohere2"])
def test_segments_compute_what_eager_passes_do(checkpoint: Callable[[str], Any], name: str, devices: list[str]) -> None:
    # Those of the second list are one device for torch, and three with their own copies for a model.
    model = split_model(checkpoint(name).folder, devices)
    assert len(model.segments) == 3
    assert [number for segment in model.segments for number in segment.modules] == list(range(model.head_layer_idx))
    check_graphs(model, checkpoint(name).load(), 1e-5)


def test_a_head_may_have_a_place_of_its_own(checkpoint: Callable[[str], Any]) -> None:
    model = ExLlamaV2(ExLlamaV2Config(checkpoint("llama").folder))
    sizes = module_sizes(model)
    model.load(gpu_split=[sum(sizes[:-1]) / 1024**3, 1.0], devices=["cpu", "cpu"])
    last = model.head_layer_idx
    assert [segment.modules for segment in model.segments] == [range(last), range(last, last)]
    check_graphs(model, checkpoint("llama").load(), 1e-5)


def test_a_model_in_one_place_is_one_segment(model: ExLlamaV2) -> None:
    assert [segment.modules for segment in model.segments] == [range(model.head_layer_idx)]


def test_requests_have_the_same_outputs(
    model: ExLlamaV2, tiny_dir: Path, tokenizer: ExLlamaV2Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelRunner, "has_graphs", True)
    parts = split_model(tiny_dir, ["cpu", "cpu:0"], max_seq_len=4096, no_graphs=True)
    outputs = []
    for each in (model, parts):
        runtime = Runtime(each, ExLlamaV2Cache(each, max_seq_len=4096), tokenizer)
        handles = [
            runtime.submit(Request([torch.tensor([prompt])], SamplingParams(), max_new_tokens=20))
            for prompt in ([5, 6, 7], [9, 30], [8] * 300)
        ]
        outputs.append([handle.result() and handle.sequence.rows[0].tokens() for handle in handles])
    assert outputs[0] == outputs[1]


def test_places_are_named_with_their_sizes(tiny_dir: Path) -> None:
    with pytest.raises(ModelError, match="gpu_split has 1 numbers for 2 devices"):
        ExLlamaV2(ExLlamaV2Config(tiny_dir)).load([1], devices=["cpu", "cpu"])


@pytest.mark.gpu
@pytest.mark.parametrize("devices", GPUS)
@pytest.mark.parametrize("name", ["mistral", "qwen3", "gemma3"])
def test_segments_are_graphs_on_a_gpu(checkpoint: Callable[[str], Any], name: str, devices: list[str]) -> None:
    settings = {"compute_dtype": torch.float16}
    model = split_model(checkpoint(name).folder, devices, **settings)
    assert len(model.segments) == 2 and model.capturable
    check_graphs(model, checkpoint(name).load(**settings), 0.05)
