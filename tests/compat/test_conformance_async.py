"""The asynchronous generator as programs for exllamav2 rely on it, through the alias."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

Run = Callable[[Callable[[Any], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(loaded: Any) -> Run:
    """Runs a program with a generator that is made inside the event loop, and closed at its end."""

    def with_generator(program: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            from exllamav2.generator import ExLlamaV2DynamicGeneratorAsync

            generator = ExLlamaV2DynamicGeneratorAsync(
                model=loaded.model,
                cache=loaded.cache,
                tokenizer=loaded.tokenizer,
                max_batch_size=None,
                draft_model=None,
            )
            await program(generator)
            await generator.close()

        asyncio.run(asyncio.wait_for(main(), 60))

    return with_generator


def make_job(generator: Any, text: str = "hello", max_new_tokens: int = 6, **options: Any) -> Any:
    from exllamav2.generator import ExLlamaV2DynamicJobAsync, ExLlamaV2Sampler

    ids = generator.generator.tokenizer.encode(text)
    options = {"gen_settings": ExLlamaV2Sampler.Settings.greedy(), **options}
    return ExLlamaV2DynamicJobAsync(generator, input_ids=[ids], max_new_tokens=max_new_tokens, **options)


async def collect(job: Any) -> list[dict[str, Any]]:
    return [result async for result in job]


def test_every_result_of_each_job_arrives(run: Run, loaded: Any) -> None:
    from exllamav2.generator import ExLlamaV2DynamicGenerator, ExLlamaV2Sampler

    prompts = ["hello", "The quick brown", "yes, please"]
    alone = ExLlamaV2DynamicGenerator(loaded.model, loaded.cache, loaded.tokenizer)
    settings = ExLlamaV2Sampler.Settings.greedy()
    expected = alone.generate(prompts, 6, gen_settings=settings, completion_only=True)

    async def program(generator: Any) -> None:
        jobs = [make_job(generator, prompt, identifier=prompt) for prompt in prompts]
        assert set(generator.jobs.values()) == set(jobs) and generator.generator.current_loras is None
        found = await asyncio.gather(*map(collect, jobs))
        assert [results[-1]["full_completion"] for results in found] == expected
        for prompt, results in zip(prompts, found, strict=True):
            assert results[0]["stage"] == "started" and results[-1]["eos"]
            assert {result["identifier"] for result in results} == {prompt}
            assert "".join(result.get("text", "") for result in results) == results[-1]["full_completion"]
        assert not generator.jobs

    run(program)


def test_a_cancelled_job_leaves_the_others_alone(run: Run) -> None:
    async def program(generator: Any) -> None:
        cancelled, other = make_job(generator, max_new_tokens=500), make_job(generator, "yes", 20)
        rest = asyncio.create_task(collect(other))
        seen = 0
        async for result in cancelled:
            seen += result["stage"] == "streaming"
            if seen == 3:
                await cancelled.cancel()
        assert cancelled.cancelled and seen == 3
        assert (await rest)[-1]["new_tokens"] == 20
        assert generator.generator.num_remaining_jobs() == 0

    run(program)


def test_a_waiting_consumer_is_woken_by_cancelling(run: Run) -> None:
    async def program(generator: Any) -> None:
        job = make_job(generator, max_new_tokens=500)
        consumer = asyncio.create_task(collect(job))
        await asyncio.sleep(0)
        await job.cancel()
        results = await consumer
        assert not any(result["eos"] for result in results)

    run(program)


def test_errors_reach_every_job(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(generator: Any) -> None:
        jobs = [make_job(generator), make_job(generator, "yes")]

        def broken() -> Any:
            raise RuntimeError("out of order")

        monkeypatch.setattr(generator.generator, "iterate", broken)
        for job in jobs:
            with pytest.raises(RuntimeError, match="out of order"):
                await collect(job)

    run(program)


def test_jobs_that_do_not_fit_are_refused_at_once(run: Run) -> None:
    async def program(generator: Any) -> None:
        with pytest.raises(RuntimeError, match=r"max_seq_len|pages"):
            make_job(generator, max_new_tokens=10_000)
        assert not generator.jobs
        generator.speculative_ngram = True

    run(program)
