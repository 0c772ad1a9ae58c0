"""Runtimes on a tiny model, on the CPU in float32, where outputs do not depend on the rest of the batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import Checkpoint, checkpoints

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer
from constrain.bench.random_model import random_model
from constrain.bench.shapes import Shape
from constrain.runtime import Runtime


@pytest.fixture(autouse=True)
def _on_the_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run tests without the ``gpu`` mark on the CPU, even if there is a GPU."""
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checkpoint]:
    """Return a function from a name in ``FAMILIES`` to the checkpoint of that model family."""
    return checkpoints(tmp_path_factory)


@pytest.fixture(scope="session")
def model(tiny_dir: Path) -> ExLlamaV2:
    """Return the tiny model, for sequences of up to 4096 tokens."""
    config = ExLlamaV2Config(str(tiny_dir))
    config.max_seq_len = 4096
    # If a test enables decode graphs, they run eagerly instead of being captured.
    config.no_graphs = True
    loaded = ExLlamaV2(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        loaded.load()
    return loaded


@pytest.fixture(scope="session")
def tokenizer(model: ExLlamaV2) -> ExLlamaV2Tokenizer:
    return ExLlamaV2Tokenizer(model.config)


@pytest.fixture(scope="session")
def on_gpu(tiny_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    """Return a tiny model on a GPU, of a shape that the CUDA kernels support, and its tokenizer."""
    return random_model(Shape(64, 128, 2, 4, 2, 32, 384), tmp_path_factory.mktemp("tiny"), tiny_dir)


@pytest.fixture
def make(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer) -> Callable[..., Runtime]:
    """Return a factory of runtimes with a cache of ``size`` positions."""

    def make(size: int = 4096, **options: Any) -> Runtime:
        return Runtime(model, ExLlamaV2Cache(model, max_seq_len=size), tokenizer, **options)

    return make
