"""Decode throughput, compared with the limit set by the GPU's memory bandwidth."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from constrain.bench.device import conditions, read_bandwidth, run_seconds, synchronize
from constrain.bench.random_model import random_model, random_transformers_model
from constrain.bench.shapes import Shape
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2CacheBase
from constrain.model.modules import find_linear
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE
from constrain.tokenizer import ExLlamaV2Tokenizer

_REPEATS = 3


def measure_decode(
    shape: Shape, batch: int, prompt: int, new_tokens: int, peers: bool, form: str | None = None
) -> dict[str, Any]:
    """Measure greedy decoding at a model shape, in tokens per second of all sequences together.

    Args:
        shape: of the model, whose weights are random.
        batch: number of sequences.
        prompt, new_tokens: tokens of each sequence.
        peers: also measure transformers, compiled and with a static cache.
        form: of the weights of all layers but the head, one of ``FORMS`` of :mod:`constrain.bench.random_model`;
            ``None``: bfloat16.

    Returns:
        ``limit``: upper bound from reading weights and cache at the measured bandwidth. ``model``: forward passes and
        argmax only. ``generator``: the dynamic generator. ``transformers``: transformers, or ``None``.
    """
    bandwidth = read_bandwidth()
    with tempfile.TemporaryDirectory() as folder:
        model, tokenizer = random_model(shape, Path(folder), form=form)
    pages = -(-(prompt + new_tokens) // PAGED_PAGE_SIZE)
    cache = ExLlamaV2Cache(model, max_seq_len=batch * pages * PAGED_PAGE_SIZE)
    size = _bytes_read(model, shape) + 2 * batch * (prompt + new_tokens // 2) * shape.cache_elements
    figures = conditions() | {
        "weights": form or "bfloat16",
        "weight_bytes": _bytes_read(model, shape),
        "batch": batch,
        "prompt": prompt,
        "new_tokens": new_tokens,
        "read_bandwidth": bandwidth,
        "limit": batch * bandwidth / size,
        "model": step_rate(model, cache, batch, prompt, new_tokens),
        "generator": generator_rate(model, cache, tokenizer, batch, prompt, new_tokens),
    }
    model.unload()
    del model, cache
    torch.cuda.empty_cache()
    return figures | {"transformers": _transformers(shape, batch, prompt, new_tokens) if peers else None}


def _bytes_read(model: ExLlamaV2, shape: Shape) -> int:
    """Return the bytes of weights that a decode step reads."""
    packed = {id(layer): layer.weight for layer in find_linear(model.modules).values()}
    saved = sum(2 * weight.shape[0] * weight.shape[1] - weight.nbytes for weight in packed.values())
    return 2 * shape.weights_read - saved


def _median_rate(tokens: int, work: Callable[[], float]) -> float:
    """Return the median tokens per second; ``work`` returns seconds, and its first run is a warm-up."""
    return tokens / statistics.median([work() for _ in range(_REPEATS + 1)][1:])


def _random_ids(batch: int, length: int, size: int) -> torch.Tensor:
    return torch.randint(0, size, (batch, length))


def step_rate(model: ExLlamaV2, cache: ExLlamaV2CacheBase, batch: int, past: int, new_tokens: int) -> float:
    """Return tokens per second of decode steps that only run the model and take the argmax.

    Args:
        model: a loaded model.
        cache: has pages for all sequences; their content does not matter.
        batch: number of sequences.
        past: tokens of each sequence before the first step.
        new_tokens: number of steps.
    """
    per_row = cache.max_seq_len // PAGED_PAGE_SIZE // batch
    block_tables = [range(row * per_row, (row + 1) * per_row) for row in range(batch)]
    runner = ModelRunner(model, cache, PAGED_PAGE_SIZE)

    def run() -> float:
        tokens = _random_ids(1, batch, model.config.vocab_size)[0].tolist()
        synchronize()
        begin = time.perf_counter()
        for length in range(past, past + new_tokens):
            rows = [BatchRow((token,), length, own) for token, own in zip(tokens, block_tables, strict=True)]
            output = runner.decode(rows)
            with torch.inference_mode():
                tokens = model.head(output.states[:batch], output.context).argmax(1).tolist()
        return time.perf_counter() - begin

    return _median_rate(batch * new_tokens, run)


def generator_rate(
    model: ExLlamaV2,
    cache: ExLlamaV2CacheBase,
    tokenizer: ExLlamaV2Tokenizer,
    batch: int,
    prompt: int,
    new_tokens: int,
) -> float:
    """Return tokens per second of the dynamic generator, decoding greedily."""
    settings = ExLlamaV2Sampler.Settings.greedy()
    # Shared by all runs, so that only the first one captures CUDA graphs.
    generator = ExLlamaV2DynamicGenerator(model, cache, tokenizer, max_batch_size=batch)

    def run() -> float:
        for ids in _random_ids(batch, prompt, model.config.vocab_size):
            generator.enqueue(ExLlamaV2DynamicJob(ids.unsqueeze(0), max_new_tokens=new_tokens, gen_settings=settings))
        begin, done = 0.0, 0
        while generator.num_remaining_jobs():
            results = generator.iterate()
            if begin:
                done += sum(result["stage"] == "streaming" for result in results)
            elif len(generator.pending_jobs) == 0 and any(result["stage"] == "streaming" for result in results):
                begin = time.perf_counter()
        return (time.perf_counter() - begin) * batch * new_tokens / max(1, done)

    return _median_rate(batch * new_tokens, run)


def _transformers(shape: Shape, batch: int, prompt: int, new_tokens: int) -> float:
    model = random_transformers_model(shape)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    def run(tokens: int) -> float:
        ids = _random_ids(batch, prompt, shape.vocab_size).cuda()
        generate = partial(
            model.generate,
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            cache_implementation="static",
        )
        with torch.no_grad():
            return run_seconds(generate)

    for _ in range(2):
        run(new_tokens)
    # Prefill time cancels out in the difference between two output lengths.
    return _median_rate(batch * (new_tokens - new_tokens // 4), lambda: run(new_tokens) - run(new_tokens // 4))
