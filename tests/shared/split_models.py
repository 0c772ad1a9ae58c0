"""Models in several places of one device, or on several, and a check of their decode passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Cache_TP, ExLlamaV2Config
from constrain.model.memory import module_sizes
from constrain.runtime.cuda_graphs import DecodeGraphRunner
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import ModelRunner

_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
#: Two places of a GPU, and two GPUs.
GPUS = [["cuda:0", "cuda:0"], pytest.param(["cuda:0", "cuda:1"], marks=_two_gpus)]

PAGE, PROMPT = 16, 13
TABLES = [[5, 1], [3, 2], [0, 4]]


def split_model(folder: Path, devices: list[str], **settings: Any) -> ExLlamaV2:
    """Load a model in several places."""
    config = ExLlamaV2Config(folder)
    for name, value in settings.items():
        setattr(config, name, value)
    model = ExLlamaV2(config)
    model.choose_dtype()
    sizes = module_sizes(model)
    share = sum(sizes) / len(devices) / 1024**3
    model.load(gpu_split=[*[share] * (len(devices) - 1), 1.0], devices=devices)
    return model


def sharded_model(folder: Path, devices: list[str], **settings: Any) -> ExLlamaV2:
    """Load a model with layers that are split."""
    config = ExLlamaV2Config(folder)
    for name, value in settings.items():
        setattr(config, name, value)
    model = ExLlamaV2(config)
    model.load_tp(devices=devices)
    return model


def cache_of(model: ExLlamaV2, positions: int) -> ExLlamaV2Cache | ExLlamaV2Cache_TP:
    kind = ExLlamaV2Cache_TP if model.tp_context else ExLlamaV2Cache
    return kind(model, max_seq_len=positions)


def check_graphs(model: ExLlamaV2, whole: ExLlamaV2, bound: float) -> None:
    """Compare graph passes with eager ones of a model on one device, of one token and of several, over two pages."""
    ids = torch.randint(3, 99, (3, 21), generator=torch.Generator().manual_seed(2))
    eager, runner = (ModelRunner(each, cache_of(each, 8 * PAGE), PAGE) for each in (whole, model))
    for each in (eager, runner):
        for row, table in zip(ids, TABLES, strict=True):
            each.prefill([BatchRow(row[:PROMPT].tolist(), 0, table)])
    graphs = DecodeGraphRunner(model, runner.cache, PAGE, runner.history, runner.sampled, runner.uploads)
    for start, end in [(PROMPT, 14), (14, 15), (15, 16), (16, 18), (18, 20), (20, 21)]:
        batch = [BatchRow(row[start:end].tolist(), start, table) for row, table in zip(ids, TABLES, strict=True)]
        out, graph = eager._run_eagerly(batch, (), ()), graphs.run(batch, ())
        with torch.inference_mode():
            expected = whole.head(out.states, out.context).float()
            found = model.head(graph.states, graph.context).float()
            found = found.view(-1, graph.batch.width, found.shape[-1])[: len(batch), : end - start].flatten(0, 1)
            found = found.to(expected.device)
        assert (found - expected)[:, :99].norm() <= bound * expected[:, :99].norm()
