"""Generators in several threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from constrain import LLM, ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Tokenizer
from constrain.errors import GenerationError
from constrain.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
    ExLlamaV2Sampler,
    ExLlamaV2StreamingGenerator,
)

GREEDY = ExLlamaV2Sampler.Settings.greedy()
RANDOM = ExLlamaV2Sampler.Settings(temperature=1.5, top_k=0, top_p=0.0)


def test_threads_that_generate_get_what_they_would_alone(
    long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer
) -> None:
    generator = ExLlamaV2DynamicGenerator(long_model, ExLlamaV2Cache(long_model, max_seq_len=1024), tiny_tokenizer)
    prompts = ["yes", "hello there", "12 345", "the quick"]

    def text(prompt: str) -> str:
        found: str = generator.generate(prompt, 8, gen_settings=GREEDY)
        return found

    alone = [text(prompt) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as threads:
        assert list(threads.map(text, prompts * 3)) == alone * 3
    assert generator.num_remaining_jobs() == 0


def test_jobs_can_be_added_and_cancelled_while_another_thread_steps(
    long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer
) -> None:
    generator = ExLlamaV2DynamicGenerator(long_model, ExLlamaV2Cache(long_model, max_seq_len=4096), tiny_tokenizer)
    ids = tiny_tokenizer.encode("hello")
    endless = ExLlamaV2DynamicJob(ids, 1000)
    generator.enqueue(endless)

    def step() -> None:
        while generator.num_remaining_jobs():
            generator.iterate()

    with ThreadPoolExecutor(1) as threads:
        stepping = threads.submit(step)
        for _ in range(20):
            job = ExLlamaV2DynamicJob(ids, 500)
            generator.enqueue(job)
            generator.cancel(job)
        assert not endless.is_finished, "others wait for a step, not for the end"
        generator.cancel(endless)
        stepping.result()


def test_jobs_and_requests_share_a_runtime(long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> None:
    """A step for either gets both on, and none takes the results of the other."""
    generator = ExLlamaV2DynamicGenerator(long_model, ExLlamaV2Cache(long_model, max_seq_len=2048), tiny_tokenizer)
    llm = LLM(generator)
    alone = generator.generate("hello", 8, gen_settings=GREEDY), llm.generate("yes", max_new_tokens=24, seed=1).text
    job = ExLlamaV2DynamicJob(tiny_tokenizer.encode("hello"), 8, gen_settings=GREEDY)
    generator.enqueue(job)
    assert llm.generate("yes", max_new_tokens=24, seed=1).text == alone[1]
    results = generator.iterate()
    assert "hello" + "".join(each.get("text", "") for each in results) == alone[0] and results[-1]["eos"]
    pending = llm.submitter({"max_new_tokens": 24, "seed": 1}, copied=False)(0, "yes")
    assert generator.generate("hello", 8, gen_settings=GREEDY) == alone[0] and generator.pending_jobs == []
    assert pending.result().text == alone[1]


def test_threads_share_a_base_generator(tiny_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> None:
    prompts = ["yes", "hello there", "12 345", "the quick"]

    def text_of(generator: ExLlamaV2BaseGenerator, prompt: str) -> str:
        return generator.generate_simple(prompt, RANDOM, 12, seed=3)

    generators = [ExLlamaV2BaseGenerator(tiny_model, ExLlamaV2Cache(tiny_model), tiny_tokenizer) for _ in range(2)]
    alone = [text_of(generators[0], prompt) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as threads:
        assert list(threads.map(partial(text_of, generators[1]), prompts * 3)) == alone * 3


def read(generator: ExLlamaV2StreamingGenerator, count: int) -> str:
    return "".join(generator.stream_ex()["chunk"] for _ in range(count))


def test_a_stream_that_another_thread_replaces(tiny_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> None:
    """Its thread must not get text of the other one."""
    generator = ExLlamaV2StreamingGenerator(tiny_model, ExLlamaV2Cache(tiny_model), tiny_tokenizer)
    ids = tiny_tokenizer.encode("hello")
    generator.begin_stream_ex(ids, RANDOM, seed=1)
    read(generator, 2)
    with ThreadPoolExecutor(1) as other:
        other.submit(generator.begin_stream_ex, tiny_tokenizer.encode("yes"), RANDOM, seed=2).result()
        with pytest.raises(GenerationError, match="one stream at a time"):
            generator.stream_ex()
        found = other.submit(read, generator, 4).result()
    generator.begin_stream_ex(tiny_tokenizer.encode("yes"), RANDOM, seed=2)
    assert read(generator, 4) == found


def test_any_thread_continues_a_stream(tiny_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> None:
    """As those of a pool do, also those that have begun streams which ended."""
    generator = ExLlamaV2StreamingGenerator(tiny_model, ExLlamaV2Cache(tiny_model), tiny_tokenizer)
    ids = tiny_tokenizer.encode("hello")
    generator.begin_stream_ex(ids, RANDOM, max_new_tokens=1)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(generator.stream_ex).result()["eos"]
        other.submit(generator.begin_stream_ex, ids, RANDOM, max_new_tokens=1).result()
    assert generator.stream_ex()["eos"]


def test_tasks_that_take_turns_at_a_streaming_generator(
    tiny_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer
) -> None:
    generator = ExLlamaV2StreamingGenerator(tiny_model, ExLlamaV2Cache(tiny_model), tiny_tokenizer)

    async def stream(prompt: str) -> str:
        generator.begin_stream_ex(tiny_tokenizer.encode(prompt), RANDOM, seed=1, max_new_tokens=4)
        text = ""
        for _ in range(4):
            await asyncio.sleep(0)
            text += generator.stream_ex()["chunk"]
        return text

    async def main() -> list[Any]:
        return await asyncio.gather(stream("yes"), stream("hello"), return_exceptions=True)

    first, last = asyncio.run(main())
    assert isinstance(first, GenerationError) and last == asyncio.run(stream("hello"))
