"""Runtimes on a tiny model: on the CPU in float32, where a token never depends on what runs beside its sequence."""

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
    """Without the mark, a test runs on the CPU wherever it runs."""
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checkpoint]:
    """The checkpoint of a family by its name in ``FAMILIES``."""
    return checkpoints(tmp_path_factory)


@pytest.fixture(scope="session")
def model(tiny_dir: Path) -> ExLlamaV2:
    """The tiny model, for sequences of up to 4096 tokens."""
    config = ExLlamaV2Config(str(tiny_dir))
    config.max_seq_len = 4096
    # Decode graphs, where a test switches them on, run their computation without being recorded.
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
    """A tiny model that the CUDA kernels take, on a GPU, and its tokenizer."""
    return random_model(Shape(64, 128, 2, 4, 2, 32, 384), tmp_path_factory.mktemp("tiny"), tiny_dir)


@pytest.fixture
def make(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer) -> Callable[..., Runtime]:
    """Makes runtimes with a cache of ``size`` positions."""

    def make(size: int = 4096, **options: Any) -> Runtime:
        return Runtime(model, ExLlamaV2Cache(model, max_seq_len=size), tokenizer, **options)

    return make
