"""Memory use and decode throughput of each kind of KV cache."""

from __future__ import annotations

import gc
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from constrain.bench.decode import step_rate
from constrain.bench.device import conditions, read_bandwidth
from constrain.bench.random_model import random_model
from constrain.bench.shapes import Shape
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Cache_Q4, ExLlamaV2Cache_Q8, ExLlamaV2CacheBase
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE

_STEPS = 64
_KINDS: tuple[type[ExLlamaV2CacheBase], ...] = (ExLlamaV2Cache, ExLlamaV2Cache_Q8, ExLlamaV2Cache_Q4)


def measure_caches(shape: Shape, batch: int, context: int) -> dict[str, Any]:
    """Measure greedy decode steps over caches filled with random keys and values.

    Args:
        shape: of the model, whose weights are random.
        batch: number of sequences.
        context: tokens of each sequence before the first step.

    Returns:
        ``caches``: for each kind its ``name``, its ``bytes``, and ``tokens_per_second`` of all sequences together.
    """
    with tempfile.TemporaryDirectory() as folder:
        model, _ = random_model(shape, Path(folder))
    about = {"batch": batch, "context": context, "read_bandwidth": read_bandwidth()}
    return conditions() | about | {"caches": [_figures(model, kind, batch, context) for kind in _KINDS]}


def _figures(model: ExLlamaV2, kind: type[ExLlamaV2CacheBase], batch: int, context: int) -> dict[str, Any]:
    gc.collect()  # frees the CUDA graphs of the previous cache
    torch.cuda.empty_cache()
    pages = -(-(context + _STEPS) // PAGED_PAGE_SIZE)
    cache = kind(model, max_seq_len=batch * pages * PAGED_PAGE_SIZE)
    size = 0
    for layer in range(cache.num_hidden_layers):
        for part in chain(*cache.parts(layer)):
            part.normal_() if part.is_floating_point() else part.random_()
            size += part.nbytes
    rate = step_rate(model, cache, batch, context, _STEPS)
    return {"name": kind.__name__, "bytes": size, "tokens_per_second": rate}
