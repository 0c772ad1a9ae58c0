"""Prefill throughput, compared with the limit set by the GPU's matrix units."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from constrain.bench.device import conditions, event_seconds, run_seconds
from constrain.bench.random_model import random_model, random_transformers_model
from constrain.bench.shapes import Shape
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.model import ExLlamaV2, ExLlamaV2Cache
from constrain.runtime.attention_metadata import ragged_attention
from constrain.runtime.forward_batch import BatchRow, ForwardBatch
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE
from constrain.tokenizer import ExLlamaV2Tokenizer

_REPEATS = 5
_MATRIX = 8192
# About half a second of matrix products, after which the GPU has settled at its sustained clock.
_PRODUCTS = 400


def measure_prefill(shape: Shape, prompt: int, peers: bool) -> dict[str, Any]:
    """Measure prefill of one random prompt, up to the logits of its last token, in tokens per second.

    Args:
        shape: of the model, whose weights are random.
        prompt: number of tokens.
        peers: also measure transformers.

    Returns:
        ``matrix_rate``: sustained operations per second of large bfloat16 products. ``limit``: upper bound from that
        rate. ``model``: forward passes in chunks as large as the generator's. ``generator``: the dynamic generator, up
        to the first token. ``transformers``: transformers, or ``None``.
    """
    rate = matrix_rate()
    with tempfile.TemporaryDirectory() as folder:
        model, tokenizer = random_model(shape, Path(folder))
    cache = ExLlamaV2Cache(model, max_seq_len=(-(-prompt // PAGED_PAGE_SIZE) + 1) * PAGED_PAGE_SIZE)
    figures = conditions() | {
        "prompt": prompt,
        "matrix_rate": rate,
        "limit": prompt * rate / shape.prefill_operations(prompt),
        "model": _passes(model, cache, prompt),
        "generator": _generator(model, cache, tokenizer, prompt),
    }
    model.unload()
    del model, cache
    torch.cuda.empty_cache()
    return figures | {"transformers": _transformers(shape, prompt) if peers else None}


def matrix_rate() -> float:
    """Measure operations per second of large random bfloat16 matrix products, sustained for half a second."""
    x, y = (torch.randn(_MATRIX, _MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(x)
    return 2 * _MATRIX**3 / statistics.median(event_seconds(lambda: torch.mm(x, y, out=out), _PRODUCTS))


def _median_rate(tokens: int, work: Callable[[], object]) -> float:
    """Return the median tokens per second; the first run is a warm-up."""
    return tokens / statistics.median([run_seconds(work) for _ in range(_REPEATS + 1)][1:])


def _passes(model: ExLlamaV2, cache: ExLlamaV2Cache, prompt: int) -> float:
    ids = torch.randint(0, model.config.vocab_size, (1, prompt))
    pages = range(-(-prompt // PAGED_PAGE_SIZE))
    ends = [*range(0, prompt, model.config.max_input_len), prompt]

    def run() -> None:
        for start, end in pairwise(ends):
            part = ids[:, start:end]
            batch = ForwardBatch([BatchRow(part[0].tolist(), start, pages)], PAGED_PAGE_SIZE)
            attention = ragged_attention(batch, model, cache)
            model.forward(part, attention=attention, preprocess_only=end < prompt, last_id_only=True)

    return _median_rate(prompt, run)


def _generator(model: ExLlamaV2, cache: ExLlamaV2Cache, tokenizer: ExLlamaV2Tokenizer, prompt: int) -> float:
    settings = ExLlamaV2Sampler.Settings.greedy()
    generator = ExLlamaV2DynamicGenerator(model, cache, tokenizer)

    def run() -> None:
        ids = torch.randint(0, model.config.vocab_size, (1, prompt))
        generator.enqueue(ExLlamaV2DynamicJob(ids, max_new_tokens=1, gen_settings=settings))
        while generator.num_remaining_jobs():
            generator.iterate()

    return _median_rate(prompt, run)


def _transformers(shape: Shape, prompt: int) -> float:
    model = random_transformers_model(shape)
    ids = torch.randint(0, shape.vocab_size, (1, prompt), device="cuda")

    def run() -> None:
        with torch.no_grad():
            model(ids, use_cache=True, logits_to_keep=1)

    return _median_rate(prompt, run)
