"""Throughput of the public entry points at batch 1: the exllamav2-compatible generators, and ``LLM``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count

from constrain.bench.doors.lab import Door, Lab, Run, Runs, rate_after_prompt
from constrain.bench.doors.plain import PlainRates
from constrain.extract import build_prompt
from constrain.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2DynamicGeneratorAsync,
    ExLlamaV2DynamicJobAsync,
    ExLlamaV2Sampler,
    ExLlamaV2StreamingGenerator,
)
from constrain.llm import LLM
from constrain.model import ExLlamaV2Cache
from constrain.runtime import Runtime

WANTED = 0.95


def front_doors(lab: Lab, plain: PlainRates, limits: Mapping[int, float]) -> Iterator[Door]:
    """Yield plain decoding compared with the bandwidth limit, then a door for each entry point at batch 1.

    Args:
        lab: has the model.
        plain: baseline.
        limits: tokens per second that the memory bandwidth would allow, by batch size; empty if unknown.
    """
    for batch, limit in limits.items():
        yield Door("plain, beside the memory bandwidth", batch, None, partial(_beside_limit, plain, batch, limit))
    fronts = {
        "ExLlamaV2BaseGenerator": _base,
        "ExLlamaV2StreamingGenerator": _streaming,
        "LLM.generate": _generate,
        "LLM.extract": _extract,
    }
    for name, make in fronts.items():
        yield Door(name, 1, WANTED, partial(_beside_plain, make, lab, plain))
    yield Door("ExLlamaV2DynamicGeneratorAsync", 1, WANTED, partial(_asynchronous, lab, plain))


def _beside_limit(plain: PlainRates, batch: int, limit: float) -> Runs:
    return Runs(plain.run(batch), lambda: limit)


def _beside_plain(make: Callable[[Lab], Run], lab: Lab, plain: PlainRates) -> Runs:
    return Runs(make(lab), plain.run(1))


def make_llm(lab: Lab, rows: int) -> LLM:
    """Create an ``LLM`` that can extract this many records concurrently."""
    cache = ExLlamaV2Cache(lab.model, max_seq_len=lab.record_positions(rows))
    return LLM(Runtime(lab.model, cache, lab.tokenizer, max_batch_size=rows), build_prompt)


def _cache(lab: Lab) -> ExLlamaV2Cache:
    return ExLlamaV2Cache(lab.model, max_seq_len=lab.positions(1))


def _base(lab: Lab) -> Run:
    generator = ExLlamaV2BaseGenerator(lab.model, _cache(lab), lab.tokenizer)

    def generate(tokens: int) -> int:
        generator.generate_simple(lab.words(), ExLlamaV2Sampler.Settings(), tokens, stop_token=None)
        return tokens

    return partial(rate_after_prompt, generate, lab.new_tokens)


def _streaming(lab: Lab) -> Run:
    generator = ExLlamaV2StreamingGenerator(lab.model, _cache(lab), lab.tokenizer)
    generator.set_stop_conditions([])

    def run() -> float:
        generator.begin_stream_ex(lab.prompt_ids(), ExLlamaV2Sampler.Settings())
        generator.stream_ex()
        begin, tokens = time.perf_counter(), 0
        while tokens < lab.new_tokens - 1:
            tokens += generator.stream_ex()["chunk_token_ids"].shape[1]
        return tokens / (time.perf_counter() - begin)

    return run


def _asynchronous(lab: Lab, plain: PlainRates) -> Runs:
    loop = asyncio.new_event_loop()
    numbers = count()

    async def make() -> ExLlamaV2DynamicGeneratorAsync:
        return ExLlamaV2DynamicGeneratorAsync(lab.model, _cache(lab), lab.tokenizer, max_batch_size=1)

    generator = loop.run_until_complete(make())

    async def run() -> float:
        begin, first, last = 0.0, 0, 0
        job = ExLlamaV2DynamicJobAsync(
            generator, lab.prompt_ids(), lab.new_tokens, gen_settings=ExLlamaV2Sampler.Settings(), seed=next(numbers)
        )
        async for _ in job:
            last = job.job.new_tokens
            if not begin and last:
                begin, first = time.perf_counter(), last
        return (last - first) / (time.perf_counter() - begin)

    def close() -> None:
        loop.run_until_complete(generator.close())
        loop.close()

    return Runs(lambda: loop.run_until_complete(run()), plain.run(1), close=close)


def _generate(lab: Lab) -> Run:
    llm = make_llm(lab, 1)
    settings = ExLlamaV2Sampler.Settings()
    # A model that knows no such prompts may end its output at once.
    ends = lab.tokenizer.eos_token_id
    settings.disallow_tokens(lab.tokenizer, [] if ends is None else [ends])

    def generate(tokens: int) -> int:
        return len(llm.generate(lab.words(), max_new_tokens=tokens, settings=settings).tokens)

    return partial(rate_after_prompt, generate, lab.new_tokens)


def _extract(lab: Lab) -> Run:
    """Return a run of ``LLM.extract`` without prefill time, measured by generating one token for another document."""
    llm = make_llm(lab, 1)
    numbers = count()

    def generate(tokens: int) -> int:
        text = lab.text(next(numbers))
        if tokens == 1:
            prompt = build_prompt(lab.schema, text)
            return len(llm.generate(prompt, max_new_tokens=1, settings=ExLlamaV2Sampler.Settings.greedy()).tokens)
        return len(llm.extract(lab.schema, text, max_new_tokens=tokens).tokens)

    return partial(rate_after_prompt, generate, lab.record_tokens)
