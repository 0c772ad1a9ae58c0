"""The benchmark of decode steps: its counts, and the model that it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from constrain.bench.random_model import prefer, random_model
from constrain.bench.shapes import Shape
from constrain.bench.step import forced_share
from constrain.engine import Vocabulary, compile_regex


def test_the_share_of_forced_tokens() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"b", b"c", b"d", b""], [4])
    grammar = compile_regex("[ab]cd[ab]", vocabulary)
    assert forced_share(grammar, [0, 2, 3, 1]) == 0.5
    assert forced_share(compile_regex("[abcd]{4}", vocabulary), [0, 2, 3, 1]) == 0.0
    assert forced_share(grammar, []) == 0.0


def test_tokens_are_sampled_as_often_as_they_are_preferred(
    tiny_shape: Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model, _ = random_model(tiny_shape, tmp_path)
    weights = torch.arange(1.0, 97.0)
    prefer(model, weights)
    probabilities = model.forward(torch.tensor([[3, 95, 7]])).float().softmax(-1)[..., :96]
    torch.testing.assert_close(probabilities, (weights / weights.sum()).expand_as(probabilities), atol=1e-3, rtol=0.1)
