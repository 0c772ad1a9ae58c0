"""Throughput of every entry point and setting, relative to plain decoding in the same run.

Plain decoding is the dynamic generator with default settings. Each benchmark is a :class:`Door`.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from constrain.bench.device import conditions, read_bandwidth
from constrain.bench.doors.documents import MANY_BESIDE_LOOP, document_doors
from constrain.bench.doors.fronts import front_doors
from constrain.bench.doors.lab import Door, Lab, Runs
from constrain.bench.doors.plain import PlainRates
from constrain.bench.doors.settings import setting_doors
from constrain.bench.doors.speculation import speculation_doors
from constrain.bench.random_model import random_model_of
from constrain.bench.shapes import Shape
from constrain.demo import demo_documents
from constrain.llm import load_model
from constrain.model import ExLlamaV2

PARTS = ("fronts", "speculation", "settings")
#: See the attributes of :class:`Lab`.
RANDOM_SIZES = {"prompt": 64, "new_tokens": 128, "forced_tokens": 200, "documents": 64, "record_tokens": 320}
BUILT_IN_SIZES = {"prompt": 32, "new_tokens": 32, "forced_tokens": 48, "documents": 64, "record_tokens": 192}

_FIELDS = [f"field_{number}" for number in range(8)]
_STRINGS = {
    "type": "object",
    "properties": {name: {"type": "string", "minLength": 20, "maxLength": 40} for name in _FIELDS},
    "required": _FIELDS,
    "additionalProperties": False,
}
_SENTENCE = "The quick brown fox jumps over the lazy dog."
#: The demo document from which the built-in model extracts records.
_DOCUMENT = "log-line"


def measure_random(
    shape: Shape,
    draft_shape: Shape,
    tokenizer_dir: Path,
    *,
    parts: Sequence[str] = PARTS,
    batches: tuple[int, ...] = (1, 32),
    repeats: int = 3,
    seconds: float = 500,
    **sizes: Any,
) -> Iterator[dict[str, Any]]:
    """Measure all doors on a model with random weights, yielding the figures after each door.

    Args:
        shape, draft_shape: of the model and its draft model; their vocabulary is that of the tokenizer.
        tokenizer_dir: has a ``tokenizer.json``.
        parts: groups of doors to run.
        batches: batch sizes.
        repeats: runs of each door, each followed by a run of plain decoding.
        seconds: time after which no further door is started.
        sizes: attributes of the :class:`Lab`.
    """
    begin = time.perf_counter()

    @cache
    def draft() -> ExLlamaV2:
        return random_model_of(tokenizer_dir, draft_shape)[0]

    model, tokenizer = random_model_of(tokenizer_dir, shape)
    given = RANDOM_SIZES | sizes
    lab = Lab(model, tokenizer, batches, schema=_STRINGS, text=lambda number: f"{number}. {_SENTENCE * 4}", **given)
    limits = _limits(replace(shape, vocab_size=model.config.vocab_size), lab) if torch.cuda.is_available() else {}
    yield from _measure(lab, _doors(lab, parts, draft, limits, loop=False), repeats, begin + seconds)


def measure_built_in(
    *,
    parts: Sequence[str] = PARTS,
    batches: tuple[int, ...] = (1, 8),
    repeats: int = 1,
    seconds: float = 500,
    **sizes: Any,
) -> Iterator[dict[str, Any]]:
    """Measure all doors except draft models on the built-in model; arguments as for :func:`measure_random`.

    Most doors have no target ratio, since a step of a model this small costs little more than the settings add.
    """
    begin = time.perf_counter()
    model, tokenizer = load_model()
    document = next(each for each in demo_documents() if each.name == _DOCUMENT)
    given = BUILT_IN_SIZES | sizes
    lab = Lab(
        model,
        tokenizer,
        batches,
        schema=document.schema,
        text=lambda number: f"{number}. {document.text}",
        **given,
    )
    found = _doors(lab, parts, None, {}, loop=True)
    doors = (door if door.name == MANY_BESIDE_LOOP else replace(door, wanted=None) for door in found)
    yield from _measure(lab, doors, repeats, begin + seconds)


def _doors(
    lab: Lab, parts: Sequence[str], draft: Callable[[], ExLlamaV2] | None, limits: Mapping[int, float], loop: bool
) -> Iterator[Door]:
    plain = PlainRates(lab)
    if "fronts" in parts:
        yield from front_doors(lab, plain, limits)
        yield from document_doors(lab, loop)
    if "speculation" in parts:
        yield from speculation_doors(lab, draft)
    if "settings" in parts:
        yield from setting_doors(lab, plain)


def _limits(shape: Shape, lab: Lab) -> dict[int, float]:
    """Return the tokens per second that the measured bandwidth allows for reading weights and cache, by batch size."""
    bandwidth, length = read_bandwidth(), lab.prompt + lab.new_tokens // 2
    sizes = {batch: 2 * (shape.weights_read + batch * length * shape.cache_elements) for batch in lab.batches}
    return {batch: batch * bandwidth / size for batch, size in sizes.items()}


def _measure(lab: Lab, doors: Iterator[Door], repeats: int, deadline: float) -> Iterator[dict[str, Any]]:
    sizes = {name: getattr(lab, name) for name in ("prompt", "new_tokens", "forced_tokens", "documents")}
    figures = conditions() | sizes | {"repeats": repeats, "doors": []}
    gc.collect()
    gc.freeze()  # long-lived objects are then not rescanned in each collection
    try:
        for door in doors:
            figures["doors"].append(_figure(door, repeats, deadline))
            yield figures
    finally:
        gc.unfreeze()


def _figure(door: Door, repeats: int, deadline: float) -> dict[str, Any]:
    """Measure one door; errors are recorded in its figure, so that the other doors still run."""
    figure: dict[str, Any] = {"name": door.name, "batch": door.batch, "wanted": door.wanted}
    begin = time.perf_counter()
    if begin > deadline:
        return figure | {"error": "left out: the time was up"}
    try:
        rates = _rates(door.prepare(), repeats)
    except Exception as error:
        return figure | {"error": f"{type(error).__name__}: {error}"[:400]}
    return figure | rates | {"seconds": time.perf_counter() - begin}


def _rates(runs: Runs, repeats: int) -> dict[str, Any]:
    """Measure a door and plain decoding in turns, so that a slow host affects both equally.

    Plain decoding comes second, as it may repeat the lengths of what the door generated.
    """
    pairs: list[tuple[float, float]] = []
    try:
        runs.door()  # warm-up: captures its CUDA graphs
        for _ in range(repeats):
            pairs.append((runs.door(), runs.plain()))
    finally:
        runs.close()
    rates, plain_rates = ([*each] for each in zip(*pairs, strict=True))
    rate, plain = statistics.median(rates), statistics.median(plain_rates)
    ratio = statistics.median(door / base for door, base in pairs)
    return {"rate": rate, "plain": plain, "ratio": ratio, "rates": rates, "plain_rates": plain_rates, **runs.notes}
