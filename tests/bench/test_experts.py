"""Benchmarks of mixtures of experts: the weights that a step reads, and the time of steps."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch

from constrain.bench import experts
from constrain.bench.random_model import random_model
from constrain.bench.shapes import MIXTURES, MixtureShape

MIXTRAL = MixtureShape(64, 32, 3, 4, 2, 16, 96, 8, 2, normed=False)
QWEN = MixtureShape(64, 32, 3, 4, 2, 16, 96, 16, 4, normed=True)


@pytest.mark.parametrize("shape", [MIXTRAL, QWEN])
def test_weights_that_a_large_batch_reads(shape: MixtureShape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model, _ = random_model(shape, tmp_path)
    attention, mixture = model.modules[1:3]
    norms = 2 * shape.hidden_size  # which the layers of a model count twice
    assert shape.layer_weights_read(10**6) == attention.parameters() + mixture.parameters() - norms
    assert [seconds > 0 for seconds in experts._step_seconds(shape, (1, 3), 2)] == [True, True]


def test_experts_that_a_batch_reads() -> None:
    assert [round(MIXTURES["mixtral-8x7b"].active_experts(batch), 2) for batch in (1, 2)] == [2, 3.5]
    # Over all pairs of choices among three experts: two experts are read unless both choices are equal.
    shape = MixtureShape(8, 8, 1, 1, 1, 8, 8, 3, 1, normed=False)
    assert shape.active_experts(2) == pytest.approx(sum(len({*pair}) for pair in product(range(3), repeat=2)) / 9)
