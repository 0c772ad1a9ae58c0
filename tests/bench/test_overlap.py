"""Records of decode steps: every pass, and the masks of its sequences."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from constrain.bench import overlap
from constrain.bench.random_model import random_model
from constrain.bench.shapes import Shape
from constrain.filters import ExLlamaV2RegexFilter
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob
from constrain.model import ExLlamaV2Cache
from constrain.runtime.model_runner import ModelRunner


class HostEvent:
    """Stands in for an event of a GPU."""

    def __init__(self) -> None:
        self.moment = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: HostEvent) -> float:
        return (other.moment - self.moment) * 1e3


def test_passes_and_masks_of_every_step(
    tiny_shape: Shape, tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(overlap, "_event", HostEvent)
    monkeypatch.setattr(ModelRunner, "has_graphs", property(lambda self: True))
    model, tokenizer = random_model(replace(tiny_shape, vocab_size=380), tmp_path, tiny_dir)
    model.config.no_graphs = True
    generator = ExLlamaV2DynamicGenerator(model, ExLlamaV2Cache(model, max_seq_len=256), tokenizer)
    filters = [ExLlamaV2RegexFilter(model, tokenizer, "[abc]{9}")]
    generator.enqueue(ExLlamaV2DynamicJob(torch.tensor([[3, 4, 5]]), 9, filters=filters))
    with overlap.watched() as watch:
        while generator.num_remaining_jobs():
            generator.iterate()
    steps = watch.steps()
    assert len(steps) == len(watch.passes) >= 5
    for step in steps:
        assert step["forward"][0] <= step["forward"][1] and step["masks"][0] <= step["masks"][1]
    begins = [step["forward"][0] for step in steps]
    assert begins[0] == 0 and begins == sorted(begins)
