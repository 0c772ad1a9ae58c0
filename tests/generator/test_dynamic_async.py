"""The asynchronous generator: many jobs at once, cancelled, failing and closed at any time."""

from __future__ import annotations

import asyncio
import gc
import random
from typing import Any

import pytest
import torch

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Tokenizer
from constrain.errors import GenerationError
from constrain.filters import ExLlamaV2RegexFilter
from constrain.generator import (
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicGeneratorAsync,
    ExLlamaV2DynamicJobAsync,
    ExLlamaV2Sampler,
)
from constrain.runtime import SequenceState
from constrain.runtime.model_runner import ModelRunner

GREEDY = ExLlamaV2Sampler.Settings.greedy()
IDS = torch.tensor([[10, 11, 12, 13]])


class Raising:
    """Raises at once."""

    def begin(self, prefix_str: str) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def next(self) -> Any:
        raise KeyError("lost")


class World:
    """The parts of generators."""

    def __init__(self, model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer

    def make(self, size: int = 1024) -> ExLlamaV2DynamicGeneratorAsync:
        return ExLlamaV2DynamicGeneratorAsync(
            model=self.model, cache=ExLlamaV2Cache(self.model, max_seq_len=size), tokenizer=self.tokenizer
        )

    def alone(self, ids: torch.Tensor, count: int, **options: Any) -> str:
        generator = ExLlamaV2DynamicGenerator(self.model, ExLlamaV2Cache(self.model, max_seq_len=256), self.tokenizer)
        job = generator.job_type(ids, count, **options)
        generator.enqueue(job)
        while generator.num_remaining_jobs():
            generator.iterate()
        return job.full_completion


@pytest.fixture
def world(long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> World:
    return World(long_model, tiny_tokenizer)


def test_results_come_as_they_are_made(world: World) -> None:
    async def main() -> None:
        generator = world.make()
        job = ExLlamaV2DynamicJobAsync(generator, IDS, 6, gen_settings=GREEDY)
        results = [result async for result in job]
        assert [result["stage"] for result in results] == ["started", "prefill"] + ["streaming"] * 6
        assert results[-1]["full_completion"] == world.alone(IDS, 6, gen_settings=GREEDY)
        assert [result async for result in job] == []
        assert not generator.jobs
        with pytest.raises(GenerationError, match="not running"):
            await job.cancel()
        await generator.close()

    asyncio.run(main())


def test_who_waits_for_a_cancelled_job_is_woken(world: World) -> None:
    async def main() -> None:
        generator = world.make(256)
        first = ExLlamaV2DynamicJobAsync(generator, IDS, 200, gen_settings=GREEDY)
        second = ExLlamaV2DynamicJobAsync(generator, IDS, 200, gen_settings=GREEDY)

        async def read(job: ExLlamaV2DynamicJobAsync) -> int:
            return len([result async for result in job])

        waiting = asyncio.create_task(read(second))
        async for result in first:
            if result["stage"] == "streaming":
                await second.cancel()
                break
        assert await waiting == 0 and second.cancelled
        await generator.close()
        assert first.cancelled and [result async for result in first] == []
        assert generator.generator.num_remaining_jobs() == 0
        with pytest.raises(GenerationError, match="closed"):
            ExLlamaV2DynamicJobAsync(generator, IDS, 4)

    asyncio.run(main())


def test_a_job_can_be_iterated_in_parts(world: World) -> None:
    async def main() -> None:
        generator, text = world.make(), ""
        job = ExLlamaV2DynamicJobAsync(generator, IDS, 6, gen_settings=GREEDY)
        for _ in range(8):
            async for result in job:
                text += result.get("text", "")
                break
            await asyncio.sleep(0)
        assert text == world.alone(IDS, 6, gen_settings=GREEDY)
        await generator.close()

    asyncio.run(main())


def test_jobs_that_nobody_reads_any_more_are_cancelled(world: World) -> None:
    async def until_no_job_is_left(generator: ExLlamaV2DynamicGeneratorAsync) -> None:
        for _ in range(20):
            gc.collect()
            await asyncio.sleep(0)
        assert not generator.jobs and generator.generator.num_remaining_jobs() == 0

    async def main() -> None:
        generator = world.make()

        async def leave() -> None:
            async for _ in ExLlamaV2DynamicJobAsync(generator, IDS, 500):
                break

        await leave()
        await until_no_job_is_left(generator)

        job = ExLlamaV2DynamicJobAsync(generator, IDS, 500)

        async def read() -> None:
            async for _ in job:
                pass

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert job.cancelled
        await until_no_job_is_left(generator)
        await generator.close()

    asyncio.run(main())


def test_closing_cancels_jobs_that_nobody_reads_any_more(world: World) -> None:
    async def main() -> None:
        generator = world.make()
        job = ExLlamaV2DynamicJobAsync(generator, IDS, 100)
        await anext(aiter(job))
        del job
        gc.collect()
        await generator.close()
        assert generator.generator.num_remaining_jobs() == 0

    asyncio.run(main())


def test_jobs_that_cannot_be_are_refused_at_once(world: World) -> None:
    async def main() -> None:
        generator = world.make(256)
        with pytest.raises(GenerationError, match="cannot be enqueued"):
            ExLlamaV2DynamicJobAsync(generator, IDS, 500)
        assert not generator.jobs
        await generator.close()

    asyncio.run(main())


def test_an_error_of_the_generator_reaches_every_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        generator = world.make()
        jobs = [ExLlamaV2DynamicJobAsync(generator, IDS, 6) for _ in range(2)]
        monkeypatch.setattr(ModelRunner, "decode", lambda *_: 1 / 0)
        for job in jobs:
            with pytest.raises(ZeroDivisionError):
                async for _ in job:
                    pass
        await generator.close()

    asyncio.run(main())


def test_a_thousand_jobs(world: World) -> None:
    choose = random.Random(7)
    prompts = [torch.randint(3, 350, (1, n), generator=torch.Generator().manual_seed(n)) for n in (1, 3, 8, 20)]
    grammar = ExLlamaV2RegexFilter(world.model, world.tokenizer, "(yes|no|[0-9]{2})!")

    def options(kind: int) -> dict[str, Any]:
        more: list[dict[str, Any]] = [
            {"gen_settings": GREEDY},
            {"gen_settings": ExLlamaV2Sampler.Settings(temperature=2.0), "seed": 5},
            {"gen_settings": GREEDY, "filters": [grammar.clone()], "stop_conditions": [1]},
            {"gen_settings": GREEDY, "banned_strings": ["e", "a"]},
            {"gen_settings": GREEDY, "stop_conditions": ["e"], "token_healing": True},
        ]
        return more[kind]

    expected = {(p, k): world.alone(prompts[p], 6, **options(k)) for p in range(4) for k in range(5)}

    async def one(generator: ExLlamaV2DynamicGeneratorAsync, fate: str) -> None:
        prompt, kind = choose.randrange(4), choose.randrange(5)
        given = {"filters": [Raising()]} if fate == "raise" else options(kind)
        job = ExLlamaV2DynamicJobAsync(generator, prompts[prompt], 6, **given)
        last: dict[str, Any] = {}
        async for result in job:
            last = result
            if fate == "cancel" and choose.random() < 0.4 and job.job in generator.jobs:
                await job.cancel()
        if fate == "raise":
            assert last["eos_reason"] == "filter_error"
        elif not job.cancelled:
            assert last["full_completion"] == expected[prompt, kind]

    async def main() -> None:
        generator = world.make(2048)
        for _ in range(10):
            fates = choose.choices(["live", "cancel", "raise"], [8, 3, 1], k=100)
            await asyncio.wait_for(asyncio.gather(*(one(generator, fate) for fate in fates)), 60)
        assert not generator.jobs and generator.generator.num_remaining_jobs() == 0
        assert not any(page.users for page in generator.generator.runtime.allocator.pages)
        await generator.close()

    def alive() -> set[int]:
        gc.collect()
        return {id(thing) for thing in gc.get_objects() if type(thing) in (ExLlamaV2DynamicJobAsync, SequenceState)}

    earlier = alive()
    asyncio.run(main())
    assert alive() <= earlier
