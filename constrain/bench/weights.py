"""Memory and decode steps of a model on the CPU, with its weights in each form in which they stay packed."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from constrain.bench.device import conditions
from constrain.bench.random_model import FORMS, random_model
from constrain.bench.shapes import Shape
from constrain.errors import BenchmarkError
from constrain.kernels import multiplies_packed
from constrain.model import ExLlamaV2, ExLlamaV2Cache
from constrain.model.modules import Embedding, Head

_CONTEXT, _WARM_UP, _STEPS = 32, 2, 10


def measure_weights(shape: Shape, batch: int) -> dict[str, Any]:
    """Measure decode steps of models that differ in their weights alone, in turns.

    Args:
        shape: of the models, whose weights are random.
        batch: number of sequences.

    Returns:
        ``forms``: for each its ``name``, the ``bytes`` of all matrices, and ``cpu_seconds`` of a step, the median.

    Raises:
        BenchmarkError: weights do not stay packed here.
    """
    if torch.cuda.is_available() or not multiplies_packed(torch.device("cpu"), torch.float32):
        raise BenchmarkError("weights stay packed on processors with AVX2 or AVX-512 where there is no GPU")
    models = {form or "float32": _model(shape, form) for form in (None, *FORMS)}
    caches = {name: ExLlamaV2Cache(model, batch, max_seq_len=2 * _CONTEXT) for name, model in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(_WARM_UP + _STEPS):
        for name, model in models.items():
            seconds[name].append(_step(model, caches[name], batch))
    forms = [
        {"name": name, "bytes": _bytes(model), "cpu_seconds": statistics.median(seconds[name][_WARM_UP:])}
        for name, model in models.items()
    ]
    return conditions() | {"threads": torch.get_num_threads(), "batch": batch, "forms": forms}


def _model(shape: Shape, form: str | None) -> ExLlamaV2:
    with tempfile.TemporaryDirectory() as folder:
        return random_model(shape, Path(folder), form=form)[0]


def _step(model: ExLlamaV2, cache: ExLlamaV2Cache, batch: int) -> float:
    """Return the CPU time, of all threads, of a step after some tokens."""
    cache.current_seq_len = _CONTEXT
    ids = torch.ones(batch, 1, dtype=torch.long)
    begin = time.process_time()
    model.forward(ids, cache)
    return time.process_time() - begin


def _bytes(model: ExLlamaV2) -> int:
    return sum(weight.nbytes for weight in _matrices(model))


def _matrices(model: ExLlamaV2) -> Iterator[Any]:
    for module in model.modules:
        if isinstance(module, (Embedding, Head)):
            yield module.weight
        yield from {id(linear): linear.weight for _, linear in module.submodules()}.values()
