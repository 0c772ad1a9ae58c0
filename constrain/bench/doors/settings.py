"""Throughput of sampling settings and job options, each alone and all together, compared with the defaults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file

from constrain.bench.doors.filters import Many
from constrain.bench.doors.lab import Door, Lab, Runs
from constrain.bench.doors.plain import Dynamic, PlainRates
from constrain.filters import ExLlamaV2RegexFilter
from constrain.generator import ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.model import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2CacheBase,
    ExLlamaV2Lora,
)

WANTED_ALONE, WANTED_TOGETHER = 0.95, 0.90
#: A string that does not occur in outputs.
_NEVER = "zzqqzz"
_LORA_RANK = 16
#: Size of the id set that a third-party filter returns.
_MANY_IDS = 60_000


@dataclass(frozen=True)
class Variant:
    """Differences from a plain job.

    Attributes:
        name: of the setting or option.
        settings: fields of the sampling settings.
        options: arguments of the job.
        biased: a token bias excludes one token.
        filtered: the job has a filter, which stays inactive as its trigger does not occur.
        adapted: a LoRA is active.
        cache: type of the cache.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    biased: bool = False
    filtered: bool = False
    adapted: bool = False
    cache: type[ExLlamaV2CacheBase] = ExLlamaV2Cache


def variants(new_tokens: int, eos: int | None) -> list[Variant]:
    """Return each variant alone, followed by all of them together in each quantised cache."""
    alone = [
        Variant("typical", {"typical": 0.9}),
        Variant("tfs", {"tfs": 0.9}),
        Variant("top_a", {"top_a": 0.1}),
        Variant("skew", {"skew": 0.3}),
        Variant("smoothing_factor", {"smoothing_factor": 0.3}),
        Variant("dynamic temperature", {"min_temp": 0.5, "max_temp": 1.5}),
        Variant("temperature_last", {"temperature_last": True, "min_p": 0.05}),
        Variant("mirostat", {"mirostat": True}),
        Variant("DRY", {"dry_multiplier": 0.8}),
        Variant("XTC", {"xtc_probability": 0.5}),
        Variant("token_bias", biased=True),
        Variant("banned_strings", options={"banned_strings": [_NEVER]}),
        Variant("stop strings", options={"stop_conditions": [_NEVER]}),
        Variant("return_top_tokens=10", options={"return_top_tokens": 10}),
        Variant("return_probs", options={"return_probs": True}),
        Variant("return_logits", options={"return_logits": True}),
        Variant("trigger", options={"trigger": _NEVER}, filtered=True),
        Variant("token_healing", options={"token_healing": True}),
        Variant("min_new_tokens", options={"min_new_tokens": new_tokens, "stop_conditions": [eos or 0]}),
        Variant(f"LoRA of rank {_LORA_RANK}", adapted=True),
    ]
    caches = [
        Variant("ExLlamaV2Cache_8bit", cache=ExLlamaV2Cache_8bit),
        Variant("ExLlamaV2Cache_Q4", cache=ExLlamaV2Cache_Q4),
    ]
    together = [
        _together("all together", alone, ExLlamaV2Cache_8bit),
        _together("all together, Q4 cache", alone, ExLlamaV2Cache_Q4),
    ]
    return [*alone, *caches, *together]


def _together(name: str, alone: list[Variant], cache: type[ExLlamaV2CacheBase]) -> Variant:
    settings: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for each in alone:
        settings |= each.settings
        options |= each.options
    options["stop_conditions"] = [stop for each in alone for stop in each.options.get("stop_conditions", ())]
    return Variant(name, settings, options, True, True, True, cache)


def setting_doors(lab: Lab, plain: PlainRates) -> Iterator[Door]:
    """Yield doors of every variant at each batch size, of guidance, and of filters with large sets."""
    lora = cache(lambda: random_lora(lab.model))
    for batch in lab.batches:
        wanted = WANTED_ALONE if batch == 1 else WANTED_TOGETHER
        for variant in variants(lab.new_tokens, lab.tokenizer.eos_token_id):
            yield Door(variant.name, batch, wanted, partial(_prepare, lab, plain, variant, batch, lora))
    yield Door("guidance, by rows", lab.largest, WANTED_TOGETHER, partial(_guidance, lab, plain))
    for name, shared in (("filter with one large set", True), ("filter with a large set each", False)):
        yield Door(name, lab.largest, WANTED_TOGETHER, partial(_large_sets, lab, plain, shared))


def _prepare(lab: Lab, plain: PlainRates, variant: Variant, batch: int, lora: Callable[[], ExLlamaV2Lora]) -> Runs:
    dynamic = plain.dynamic(batch, variant.cache)
    adapters = [lora()] if variant.adapted else []

    def run() -> float:
        dynamic.generator.set_loras(adapters)
        try:
            return dynamic.rate(partial(_job, lab, variant))
        finally:
            dynamic.generator.set_loras([])

    return Runs(run, plain.run(batch))


def _job(lab: Lab, variant: Variant, number: int) -> ExLlamaV2DynamicJob:
    settings = ExLlamaV2Sampler.Settings(**variant.settings)
    if variant.biased:
        settings.disallow_tokens(lab.tokenizer, [lab.vocabulary - 1])
    filters = [ExLlamaV2RegexFilter(lab.model, lab.tokenizer, "[a-z ]{1,40}")] if variant.filtered else None
    return lab.job(number, settings, filters=filters, **variant.options)


def _guidance(lab: Lab, plain: PlainRates) -> Runs:
    """Measure guidance with two rows per sequence; the rate counts both."""
    dynamic = Dynamic(plain.dynamic(lab.largest).generator, max(1, lab.largest // 2))

    def job(number: int) -> ExLlamaV2DynamicJob:
        prompts = [lab.prompt_ids(), lab.prompt_ids()]
        return lab.job(number, ExLlamaV2Sampler.Settings(cfg_scale=1.5), input_ids=prompts)

    return Runs(lambda: 2 * dynamic.rate(job), plain.run(lab.largest))


def _large_sets(lab: Lab, plain: PlainRates, shared: bool) -> Runs:
    """Measure filters that return a set of ids: one shared by all sequences, or one for each."""
    dynamic = plain.dynamic(lab.largest)
    ids = set(range(min(_MANY_IDS, lab.vocabulary - 1)))

    def job(number: int) -> ExLlamaV2DynamicJob:
        own = ids if shared else ids - {number}
        return lab.job(number, filters=[Many(lab.model, lab.tokenizer, own)])

    return Runs(lambda: dynamic.rate(job), plain.run(lab.largest))


def random_lora(model: ExLlamaV2) -> ExLlamaV2Lora:
    """Create a LoRA with random weights for every linear layer."""
    layers = model.config.layout.layers
    linears = [linear for layer in layers for linear in layer.linears()]
    tensors = {}
    for linear in linears:
        for key, outputs in linear.parts():
            tensors[f"{key}.lora_A.weight"] = torch.randn(_LORA_RANK, linear.inputs) * 0.01
            tensors[f"{key}.lora_B.weight"] = torch.randn(outputs, _LORA_RANK) * 0.01
    with TemporaryDirectory() as made:
        folder = Path(made)
        config = {"r": _LORA_RANK, "lora_alpha": _LORA_RANK}
        (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
        save_file(
            {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}, folder / "adapter_model.safetensors"
        )
        return ExLlamaV2Lora.from_directory(model, folder)
