"""Benchmarks of mixtures of experts: a layer alone, and decode steps, against the time to read the weights."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from constrain.bench.device import conditions, read_bandwidth, seconds_per_call, synchronize
from constrain.bench.random_model import random_model, random_weight
from constrain.bench.shapes import MixtureShape
from constrain.errors import BenchmarkError
from constrain.kernels import Activation, ExpertMLP, ExpertWeight, Routing, StackedWeight, expert_mlp, route
from constrain.kernels.expert_mlp import expert_mlp_reference
from constrain.model import ExLlamaV2Cache
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE

_DTYPE = torch.bfloat16
_CHOICES = 24
_REPEATS = 3
#: Numbers of layers of two models: their times differ by those of the additional layers.
_DEPTHS = (2, 6)


def measure_experts(
    shape: MixtureShape, batches: tuple[int, ...], steps: int, form: str | None = None
) -> dict[str, Any]:
    """Measure a mixture of experts, with random weights and random choices; times in seconds.

    Args:
        shape: of the model.
        batches: numbers of sequences.
        steps: of decoding in a run.
        form: of the weights, one of those that stay packed; ``None``: bfloat16.

    Returns:
        ``layer``: for each batch, the time of the chosen experts of a layer, of choosing them, and of these experts in
        torch. ``steps``: for each batch, the times of decode steps of two models that differ in depth, of a layer, and
        of a step of the whole model, both extrapolated from the two. Limits are the times to read the weights that are
        used on average, if all choices are equally likely.
    """
    bandwidth = read_bandwidth()
    return conditions() | {
        "read_bandwidth": bandwidth,
        "form": form or "bfloat16",
        "layer": list(_layers(shape, batches, bandwidth, form)),
        "steps": list(_steps(shape, batches, steps, bandwidth, form)),
    }


def _layers(
    shape: MixtureShape, batches: tuple[int, ...], bandwidth: float, form: str | None
) -> Iterator[dict[str, Any]]:
    count, size, width = shape.num_experts, shape.hidden_size, shape.intermediate_size
    mlp = ExpertMLP(_experts(count, 2 * width, size, form), _experts(count, size, width, form), Activation.SILU)
    bytes_per_weight = _bytes_per_weight(form)
    routing = Routing(shape.num_experts_per_tok)
    for batch in batches:
        x, logits = _random(batch, size), [_random(batch, count) * 50 for _ in range(_CHOICES)]
        choices = [route(each, routing) for each in logits]
        active = statistics.mean(torch.unique(experts).numel() for experts, _ in choices)
        limit = bytes_per_weight * active * shape.expert_weights / bandwidth
        seconds = seconds_per_call([partial(expert_mlp, x, choice, mlp, x) for choice in choices])
        torch_seconds = seconds_per_call([partial(expert_mlp_reference, x, choice, mlp, x) for choice in choices[:4]])
        yield {
            "batch": batch,
            "active_experts": active,
            "limit_seconds": limit,
            "seconds": seconds,
            "share_of_read_limit": limit / seconds,
            "routing_seconds": seconds_per_call([partial(route, each, routing) for each in logits]),
            "torch_seconds": torch_seconds,
        }


def _experts(count: int, outputs: int, inputs: int, form: str | None) -> ExpertWeight:
    if form is None:
        return _random(count, outputs, inputs)
    device = torch.device("cuda")
    weights = (random_weight(form, outputs, inputs, device).prepared(_DTYPE) for _ in range(count))
    stacked = StackedWeight.of(weights, count)
    if stacked is None:
        raise BenchmarkError(f"experts in {form} do not stay packed on a GPU")
    return stacked


def _bytes_per_weight(form: str | None) -> float:
    if form is None:
        return _DTYPE.itemsize
    sample = random_weight(form, 1024, 1024, torch.device("cuda")).prepared(_DTYPE)
    return sample.nbytes / 1024**2


def _random(*size: int) -> torch.Tensor:
    return torch.randn(size, device="cuda", dtype=_DTYPE).mul_(0.02)


def _steps(
    shape: MixtureShape, batches: tuple[int, ...], steps: int, bandwidth: float, form: str | None
) -> Iterator[dict[str, Any]]:
    few, more = (_step_seconds(replace(shape, num_hidden_layers=depth), batches, steps, form) for depth in _DEPTHS)
    bytes_per_weight = _bytes_per_weight(form)
    head = shape.vocab_size * shape.hidden_size
    for batch, short, long in zip(batches, few, more, strict=True):
        layer = (long - short) / (_DEPTHS[1] - _DEPTHS[0])
        model = short + (shape.num_hidden_layers - _DEPTHS[0]) * layer
        layer_limit = bytes_per_weight * shape.layer_weights_read(batch) / bandwidth
        limit = shape.num_hidden_layers * layer_limit + 2 * head / bandwidth
        yield {
            "batch": batch,
            "active_experts": shape.active_experts(batch),
            "depths": _DEPTHS,
            "step_seconds": [short, long],
            "layer_seconds": layer,
            "layer_limit_seconds": layer_limit,
            "layer_share_of_read_limit": layer_limit / layer,
            "model_seconds": model,
            "model_limit_seconds": limit,
            "model_share_of_read_limit": limit / model,
            "tokens_per_second": batch / model,
        }


def _step_seconds(shape: MixtureShape, batches: tuple[int, ...], steps: int, form: str | None = None) -> list[float]:
    with TemporaryDirectory() as folder:
        model, _ = random_model(shape, Path(folder), form=form)
    cache = ExLlamaV2Cache(model, max_seq_len=max(batches) * PAGED_PAGE_SIZE)
    runner = ModelRunner(model, cache, PAGED_PAGE_SIZE)
    seconds = [statistics.median(_times(partial(_run, runner, batch, steps))) / steps for batch in batches]
    model.unload()
    torch.cuda.empty_cache()
    return seconds


def _times(run: Callable[[], float]) -> list[float]:
    run()
    return [run() for _ in range(_REPEATS)]


def _run(runner: ModelRunner, batch: int, steps: int) -> float:
    """Return the seconds of some decode steps.

    The inputs are random tokens: greedy ones could be equal in all sequences, which would then choose equal experts.
    """
    tokens = torch.randint(0, runner.model.config.vocab_size, (steps, batch)).tolist()
    synchronize()
    begin = time.perf_counter()
    for length, given in enumerate(tokens):
        output = runner.decode([BatchRow((token,), length, (row,)) for row, token in enumerate(given)])
        with torch.inference_mode():
            runner.model.head(output.states[:batch], output.context).argmax(1).tolist()
    return time.perf_counter() - begin
