"""The LLM in asyncio: the same answers, side by side, and nothing left running when a task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

import constrain
from constrain import LLM
from constrain.completion import Completion, Failure
from constrain.errors import ArgumentError, BudgetError, GenerationTimeout, GrammarError
from constrain.extract import Extraction

PROMPTS = [f"{'hello ' * (number % 5)}{number}" for number in range(24)]
LONG: dict[str, Any] = {"regex": "[a-z]{150,}", "max_new_tokens": 220}


@dataclass
class Name:
    name: Annotated[str, Field(max_length=6)]


def short_prompt(schema: object, text: str) -> str:
    return text + "\n"


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir, prompt=short_prompt)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what other threads are about to do."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it did not happen")


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 120))


def test_answers_are_those_of_the_other_methods(llm: LLM) -> None:
    alone = [llm.generate(prompt, max_new_tokens=10, seed=number) for number, prompt in enumerate(PROMPTS)]
    records = [llm.extract(Name, prompt) for prompt in PROMPTS]

    async def main() -> None:
        asked = [llm.agenerate(prompt, max_new_tokens=10, seed=number) for number, prompt in enumerate(PROMPTS)]
        wanted = [llm.aextract(Name, prompt) for prompt in PROMPTS]
        assert list(await asyncio.gather(*asked)) == alone
        assert list(await asyncio.gather(*wanted)) == records
        several = await llm.agenerate(PROMPTS[0], max_new_tokens=10, seed=0, n=3)
        assert [each.text for each in several] == [
            llm.generate(PROMPTS[0], max_new_tokens=10, seed=seed).text for seed in range(3)
        ]

    run(main)


def test_many(llm: LLM) -> None:
    expected = list(llm.generate_many(PROMPTS, max_new_tokens=10, seed=0))
    records = list(llm.extract_many(Name, PROMPTS))

    async def prompts() -> AsyncIterator[str]:
        for prompt in PROMPTS:
            await asyncio.sleep(0)
            yield prompt

    async def main() -> None:
        for source in (PROMPTS, prompts()):
            assert [each async for each in llm.agenerate_many(source, max_new_tokens=10, seed=0)] == expected
        unordered = [each async for each in llm.agenerate_many(PROMPTS, max_new_tokens=10, seed=0, ordered=False)]
        assert sorted(unordered, key=lambda each: each.index) == expected
        assert [each async for each in llm.aextract_many(Name, PROMPTS)] == records
        mixed = [each async for each in llm.aextract_many(Name, ["hello", " ", "hell"])]
        assert [type(each) for each in mixed] == [Extraction, Failure, Extraction]

    run(main)


def test_a_source_that_breaks_loses_nothing_that_it_gave(llm: LLM) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "hello"
        yield "hell"
        raise OSError("the line is dead")

    async def main() -> None:
        found = []
        with pytest.raises(OSError, match="the line is dead"):
            async for each in llm.agenerate_many(broken(), max_new_tokens=4):
                found.append(each)
        assert [type(each) for each in found] == [Completion, Completion]

    run(main)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_prompt_may_be_made_of_earlier_answers(llm: LLM, ordered: bool) -> None:
    """Answers come while the source waits, which is left when nobody wants its prompts any more."""
    left = []

    async def conversation(answers: asyncio.Queue[str]) -> AsyncIterator[str]:
        try:
            while True:
                yield await answers.get()
        finally:
            left.append(True)

    async def main() -> None:
        answers = asyncio.Queue[str]()
        answers.put_nowait("hello")
        results = llm.agenerate_many(conversation(answers), regex="[ab]{4}", ordered=ordered)
        for number in range(3):
            found = await anext(results)
            assert isinstance(found, Completion) and found.index == number
            answers.put_nowait(found.text)
        await results.aclose()
        await until(lambda: bool(left))

    run(main)


def test_a_stream(llm: LLM) -> None:
    whole = llm.generate("hello", max_new_tokens=12, seed=2)

    async def main() -> None:
        stream = llm.astream("hello", max_new_tokens=12, seed=2)
        assert stream.completion is None
        pieces = [piece async for piece in stream]
        assert "".join(pieces) == whole.text and len(pieces) > 1
        assert stream.completion == whole
        assert [piece async for piece in stream] == []

    run(main)


def test_a_stream_that_is_closed_cancels_its_request(llm: LLM) -> None:
    async def main() -> None:
        async with llm.astream("hello", **LONG) as stream:
            async for _ in stream:
                break
            assert llm.runtime.has_work
        await until(lambda: not llm.runtime.has_work)
        assert [piece async for piece in stream] == [] and stream.completion is None
        async with llm.astream("hello", **LONG) as unused:
            pass
        assert [piece async for piece in unused] == []

    run(main)


@pytest.mark.parametrize("wait", [0, 0.005, 0.03])
def test_a_task_that_is_cancelled_cancels_its_request(llm: LLM, wait: float) -> None:
    async def main() -> None:
        tasks = [
            asyncio.ensure_future(llm.agenerate("hello", **LONG)),
            asyncio.ensure_future(llm.agenerate("hello", n=2, **LONG)),
            asyncio.ensure_future(llm.aextract({"type": "string", "minLength": 150}, "hello", max_new_tokens=220)),
        ]
        await asyncio.sleep(wait)
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in found] == [asyncio.CancelledError] * 3
        await asyncio.sleep(0.05)  # for what was being submitted
        await until(lambda: not llm.runtime.has_work)

    run(main)


def test_many_that_are_left_are_cancelled(llm: LLM) -> None:
    async def main() -> None:
        results = llm.agenerate_many(["hello"] * 30, **LONG)
        async for each in results:
            assert isinstance(each, Completion)
            break
        await results.aclose()
        await asyncio.sleep(0.05)
        await until(lambda: not llm.runtime.has_work)

    run(main)


def test_errors(llm: LLM) -> None:
    async def main() -> None:
        with pytest.raises(GenerationTimeout, match=r"within 0\.005 seconds"):
            await llm.agenerate("hello", timeout=0.005, **LONG)
        with pytest.raises(GenerationTimeout):
            async for _ in llm.astream("hello", timeout=0.005, **LONG):
                pass
        with pytest.raises(BudgetError):
            await llm.agenerate("hello", regex="a{50}", max_new_tokens=5)
        with pytest.raises(GrammarError):
            await llm.agenerate("hello", regex="a(b")
        with pytest.raises(GrammarError):
            await anext(llm.astream("hello", regex="a(b"))
        with pytest.raises(ArgumentError, match="n must be"):
            await llm.agenerate("hello", n=0)
        await until(lambda: not llm.runtime.has_work)

    run(main)


def test_threads_and_tasks_share_a_model(llm: LLM) -> None:
    alone = [llm.generate(prompt, max_new_tokens=10, seed=number).text for number, prompt in enumerate(PROMPTS)]

    async def main() -> None:
        def ask(number: int) -> str:
            return llm.generate(PROMPTS[number], max_new_tokens=10, seed=number).text

        threads = [asyncio.to_thread(ask, number) for number in range(0, 24, 2)]
        tasks = [llm.agenerate(PROMPTS[number], max_new_tokens=10, seed=number) for number in range(1, 24, 2)]
        found = await asyncio.gather(*threads, *tasks)
        assert list(found[:12]) == alone[::2]
        assert [each.text for each in found[12:]] == alone[1::2]  # type: ignore[union-attr]

    run(main)
