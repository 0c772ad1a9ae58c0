"""A model of a shape, without a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from constrain.bench.random_model import random_model
from constrain.bench.shapes import Shape
from constrain.cli.bench import bench
from constrain.errors import BenchmarkError
from constrain.runtime.model_runner import ModelRunner


def test_model_and_tokenizer_have_the_shape(tiny_shape: Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model, tokenizer = random_model(tiny_shape, tmp_path)
    logits = model.forward(torch.tensor([[3, 95]]))
    assert logits.shape == (1, 2, 96) and logits.isfinite().all() and logits.std() > 0
    assert tokenizer.encode("t3 t95").tolist() == [[3, 95]]
    embedding = tiny_shape.vocab_size * tiny_shape.hidden_size
    norms = (2 * tiny_shape.num_hidden_layers) * tiny_shape.hidden_size  # which the layers of a model count twice
    assert tiny_shape.weights_read == sum(module.parameters() for module in model.modules) - embedding - norms


def test_operations_of_a_prompt(tiny_shape: Shape) -> None:
    layers, head, heads = tiny_shape.weights_read - 96 * 32, 96 * 32, 4 * 8
    # A token by itself: every weight is used once; and each of the scores and of the weighted values that it sees.
    assert tiny_shape.prefill_operations(2) == 2 * (2 * layers + head + 2 * 2 * heads * 2)


@pytest.mark.parametrize("command", ["decode", "prefill", "kernels", "load", "caches", "experts"])
def test_without_a_gpu_there_is_nothing_to_measure(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(bench, [command])
    assert isinstance(result.exception, BenchmarkError) and "no CUDA device" in str(result.exception)


@pytest.mark.parametrize("command", ["caches", "experts"])
def test_no_more_sequences_than_a_pass_takes(command: str) -> None:
    result = CliRunner().invoke(bench, [command, "--batch", str(ModelRunner.max_rows + 1)])
    assert result.exit_code == 2 and f"1<=x<={ModelRunner.max_rows}" in result.stderr
