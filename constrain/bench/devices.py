"""Decode throughput of a model over several devices, compared with one."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from constrain.bench.decode import generator_rate, step_rate
from constrain.bench.device import conditions
from constrain.bench.random_model import random_model
from constrain.bench.shapes import Shape
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Cache_TP, ExLlamaV2CacheBase
from constrain.model.memory import module_sizes
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE
from constrain.tokenizer import ExLlamaV2Tokenizer

_COMPARED_TOKENS = 64
_ANY_SIZE = 1e6

Load = Callable[[ExLlamaV2], None]


def measure_devices(shape: Shape, devices: Sequence[str], batch: int, prompt: int, new_tokens: int) -> dict[str, Any]:
    """Measure greedy decoding of one model on one device, with every layer split, and split by layers.

    Args:
        shape: of the model, whose weights are random.
        devices: to split it over; the first one is that of the comparison.
        batch: number of sequences.
        prompt, new_tokens: tokens of each sequence.

    Returns:
        ``ways``: for each its ``name``; ``model`` and ``generator``, tokens per second of all sequences together with
        forward passes and argmax only, and with the dynamic generator; and ``same_tokens``, the number of greedy
        tokens, of 64, before the first that differs from that of one device, by half of the layers in float32.
        ``same_rounded_tokens`` is that number by the measured model: the largest logits of random weights are so close
        that sums rounded to bfloat16 in another order choose another token.
    """
    lengths = batch, prompt, new_tokens
    ways = [{"name": name} | _measure(shape, load, lengths) for name, load in _ways(devices).items()]
    for kind in ("same_tokens", "same_rounded_tokens"):
        greedy = [way[kind] for way in ways]
        for way, tokens in zip(ways, greedy, strict=True):
            pairs = zip(tokens, greedy[0], strict=False)
            way[kind] = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return conditions() | {
        "devices": list(devices),
        "batch": batch,
        "prompt": prompt,
        "new_tokens": new_tokens,
        "ways": ways,
    }


def _ways(devices: Sequence[str]) -> dict[str, Load]:
    def by_layers(model: ExLlamaV2) -> None:
        model.choose_dtype()
        share = sum(module_sizes(model)) / len(devices) / 1024**3
        model.load([*[share] * (len(devices) - 1), _ANY_SIZE], devices=list(devices))

    return {
        "one device": lambda model: model.load([_ANY_SIZE], devices=[devices[0]]),
        "tensor parallel": lambda model: model.load_tp(devices=list(devices)),
        "by layers": by_layers,
    }


def _measure(shape: Shape, load: Load, lengths: tuple[int, int, int]) -> dict[str, Any]:
    batch, prompt, new_tokens = lengths
    with _loaded(shape, load) as (model, tokenizer):
        cache = _cache(model, batch, prompt + max(new_tokens, _COMPARED_TOKENS))
        figures: dict[str, Any] = {
            "same_rounded_tokens": _greedy_tokens(model, cache, tokenizer, prompt),
            "model": step_rate(model, cache, batch, prompt, new_tokens),
            "generator": generator_rate(model, cache, tokenizer, batch, prompt, new_tokens),
        }
        del cache
    # Half of the layers take as much memory in float32 as all of them do in bfloat16.
    half = replace(shape, num_hidden_layers=max(1, shape.num_hidden_layers // 2))
    with _loaded(half, partial(_load_in_float32, load)) as (model, tokenizer):
        cache = _cache(model, 1, prompt + _COMPARED_TOKENS)
        return figures | {"same_tokens": _greedy_tokens(model, cache, tokenizer, prompt)}


def _load_in_float32(load: Load, model: ExLlamaV2) -> None:
    model.config.compute_dtype = torch.float32
    load(model)


@contextmanager
def _loaded(shape: Shape, load: Load) -> Iterator[tuple[ExLlamaV2, ExLlamaV2Tokenizer]]:
    """Load a random model, and free its memory at the end."""
    with tempfile.TemporaryDirectory() as folder:
        model, tokenizer = random_model(shape, Path(folder), load=load)
    yield model, tokenizer
    model.unload()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _cache(model: ExLlamaV2, batch: int, length: int) -> ExLlamaV2CacheBase:
    kind = ExLlamaV2Cache_TP if model.tp_context else ExLlamaV2Cache
    return kind(model, max_seq_len=batch * -(-length // PAGED_PAGE_SIZE) * PAGED_PAGE_SIZE)


def _greedy_tokens(
    model: ExLlamaV2, cache: ExLlamaV2CacheBase, tokenizer: ExLlamaV2Tokenizer, prompt: int
) -> list[int]:
    """Return the tokens that follow a prompt which is the same every time."""
    generator = ExLlamaV2DynamicGenerator(model, cache, tokenizer)
    ids = torch.arange(prompt).unsqueeze(0) % model.config.vocab_size
    settings = ExLlamaV2Sampler.Settings.greedy()
    generator.enqueue(ExLlamaV2DynamicJob(ids, max_new_tokens=_COMPARED_TOKENS, gen_settings=settings))
    tokens: list[int] = []
    while generator.num_remaining_jobs():
        for result in generator.iterate():
            tokens += result["token_ids"].flatten().tolist() if "token_ids" in result else []
    return tokens
