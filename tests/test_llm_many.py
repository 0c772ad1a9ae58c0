"""Many prompts and documents at a time, on one thread and on several: each gets the answer that it gets alone."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any

import pytest

import constrain
import constrain.errors
from constrain import LLM
from constrain.completion import Completion, Failure
from constrain.errors import (
    ArgumentError,
    BudgetError,
    ExtractionError,
    GenerationError,
    GenerationTimeout,
    SchemaError,
)
from constrain.extract import Extraction
from constrain.filters import ExLlamaV2Filter, ExLlamaV2RegexFilter
from constrain.runtime import Handle, Request

PROMPTS = [f"{'hello ' * (number % 5)}{number}" for number in range(40)]
SCHEMA = {"type": "string", "maxLength": 12}


def short_prompt(schema: object, text: str) -> str:
    return text + "\n"


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir, prompt=short_prompt)


@pytest.fixture(scope="module")
def alone(llm: LLM) -> list[str]:
    """The output of each prompt while nothing else runs."""
    return [llm.generate(prompt, max_new_tokens=12, seed=number).text for number, prompt in enumerate(PROMPTS)]


def texts(results: list[Completion | Failure]) -> list[str]:
    assert not [result for result in results if isinstance(result, Failure)]
    return [result.text for result in results if isinstance(result, Completion)]


def test_each_prompt_gets_its_own_answer(llm: LLM, alone: list[str]) -> None:
    assert len(set(alone)) > 30
    results = list(llm.generate_many(PROMPTS, max_new_tokens=12, seed=0))
    assert texts(results) == alone
    assert [result.index for result in results] == list(range(40))
    assert all(result.error is None for result in results)
    unordered = list(llm.generate_many(iter(PROMPTS), ordered=False, max_new_tokens=12, seed=0))
    assert texts(sorted(unordered, key=lambda result: result.index)) == alone


def test_what_is_done_first_comes_first(tiny_dir: Path) -> None:
    llm = constrain.load(tiny_dir, max_batch_size=4)
    prompts = [f"{number}: hello" for number in range(8)]
    results = llm.generate_many(prompts, regex="[ab]{60}|[c-z0-9 ]", ordered=False, max_new_tokens=60, seed=0)
    lengths = [len(result.text) for result in results if isinstance(result, Completion)]
    assert set(lengths) == {1, 60} and lengths == sorted(lengths)


def test_inputs_are_read_when_there_is_a_place_for_them(tiny_dir: Path) -> None:
    llm = constrain.load(tiny_dir, max_batch_size=2)
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield f"{read}"

    results = llm.generate_many(endless(), max_new_tokens=3)
    for number in range(1, 7):
        assert isinstance(next(results), Completion)
        assert read <= 4 + number
    results.close()
    assert not llm.runtime.has_work


def test_outputs_of_a_prompt_are_submitted_when_there_is_a_place_for_them(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ever so many outputs take no more memory than their texts."""
    llm = constrain.load(tiny_dir, max_batch_size=2)
    most, submit = [0], llm.runtime.submit

    def counted(request: Request) -> Handle:
        handle = submit(request)
        most.append(len(llm.runtime.scheduler.waiting) + len(llm.runtime.scheduler.running))
        return handle

    monkeypatch.setattr(llm.runtime, "submit", counted)
    options: Any = {"max_new_tokens": 3, "seed": 4, "n": 12}
    several = llm.generate("hello", **options)
    assert [each.index for each in several] == list(range(12)) and max(most) <= 4
    assert asyncio.run(llm.agenerate("hello", **options)) == several and max(most) <= 4


def test_a_timeout_is_of_all_outputs_together(tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = constrain.load(tiny_dir, max_batch_size=1)
    monkeypatch.setattr("constrain.llm.base.monotonic", lambda: -1000.0)  # long ago
    for generate in (llm.generate, lambda *given, **options: asyncio.run(llm.agenerate(*given, **options))):
        with pytest.raises(GenerationTimeout, match="within 5 seconds"):
            generate("hello", n=4, max_new_tokens=3, timeout=5)
        assert not llm.runtime.has_work


def test_an_error_of_one_is_its_result(llm: LLM) -> None:
    prompts = ["hello", None, "hello " * 300, "hello", [{"role": "user", "content": "x"}]]
    for ordered in (True, False):
        results = list(llm.generate_many(prompts, max_new_tokens=4, ordered=ordered))  # type: ignore[arg-type]
        errors = {result.index: result.error for result in results if isinstance(result, Failure)}
        assert [type(errors[index]).__name__ for index in sorted(errors)] == [
            "ArgumentError",
            "GenerationError",
            "TokenizerError",
        ]
        assert sorted(result.index for result in results if isinstance(result, Completion)) == [0, 3]


def test_a_source_that_breaks_loses_nothing_that_it_gave(llm: LLM) -> None:
    def broken() -> Iterator[str]:
        yield from PROMPTS[:3]
        raise OSError("the disk is gone")

    results = []
    with pytest.raises(OSError, match="the disk is gone"):
        for result in llm.generate_many(broken(), max_new_tokens=4):
            results.append(result)
    assert [result.index for result in results] == [0, 1, 2] and texts(results)


def test_constraints_are_checked_before_anything_is_read(llm: LLM) -> None:
    class Stateful(ExLlamaV2RegexFilter):
        def next(self) -> object:  # type: ignore[override]
            return super().next()

    with pytest.raises(constrain.errors.GrammarError):
        llm.generate_many(PROMPTS, regex="a(b")
    with pytest.raises(SchemaError):
        llm.extract_many({"type": "strin"}, PROMPTS)
    for many in (llm.generate_many, lambda texts, **options: llm.extract_many(SCHEMA, texts, **options)):
        with pytest.raises(ArgumentError, match=r"Stateful has no clone\(\) of its own"):
            many(PROMPTS, filters=[Stateful(llm.model, llm.tokenizer, "a+")])
        with pytest.raises(ArgumentError, match="max_new_tokens must be"):
            many(PROMPTS, max_new_tokens=0)


@pytest.mark.parametrize("inputs", ["hello", b"hello", {"a": 1}, None, 5], ids=repr)
def test_inputs_are_several(llm: LLM, inputs: Any) -> None:
    asked: list[Callable[[], object]] = [
        lambda: llm.generate_many(inputs),
        lambda: llm.agenerate_many(inputs),
        lambda: llm.extract_many(SCHEMA, inputs),
        lambda: llm.aextract_many(SCHEMA, inputs),
    ]
    for ask in asked:
        with pytest.raises(ArgumentError, match="the inputs must be a list, a generator"):
            ask()


def test_filters_are_copied_for_each(llm: LLM) -> None:
    digits = ExLlamaV2RegexFilter(llm.model, llm.tokenizer, "[0-5]*")
    results = list(llm.generate_many(PROMPTS, regex="[3-9]{4}", filters=[digits], max_new_tokens=8))
    assert all(re.fullmatch("[3-5]{4}", text) for text in texts(results))
    records = llm.extract_many(SCHEMA, PROMPTS, filters=[ExLlamaV2RegexFilter(llm.model, llm.tokenizer, '"[ab]*"')])
    assert all(isinstance(each, Extraction) and re.fullmatch("[ab]*", each.value) for each in records)


def test_filters_of_others_are_copied_too(llm: LLM) -> None:
    class Only(ExLlamaV2Filter):
        def __init__(self, token: int) -> None:
            super().__init__(llm.model, llm.tokenizer)
            self.token = token

        def clone(self, c: object = None) -> Only:
            return Only(self.token)

        def begin(self, prefix_str: str | None) -> None: ...
        def feed(self, token: object) -> None: ...
        def next(self) -> tuple[set[int], set[int]]:
            return {self.token}, set()

    token = llm.tokenizer.single_id("a")
    assert token is not None
    assert set(texts(list(llm.generate_many(PROMPTS[:4], filters=[Only(token)], max_new_tokens=3)))) == {"aaa"}


def test_records_of_many_documents(llm: LLM) -> None:
    one_by_one = [llm.extract(SCHEMA, text).value for text in PROMPTS]
    records = list(llm.extract_many(SCHEMA, PROMPTS))
    assert [record.value for record in records if isinstance(record, Extraction)] == one_by_one
    assert [record.index for record in records] == list(range(40))
    mixed = list(llm.extract_many(SCHEMA, ["hello", " ", "hell"]))
    assert [type(each) for each in mixed] == [Extraction, Failure, Extraction]
    with pytest.raises(AttributeError, match="input 1 failed, so that it has no value; its error is ExtractionError: "):
        getattr(mixed[1], "value")  # noqa: B009  # type checkers know that it has none
    assert not hasattr(mixed[1], "json")
    assert copy(mixed[1]) == mixed[1]
    assert isinstance(mixed[1].error, ExtractionError) and mixed[1].index == 1
    (short,) = llm.extract_many({"const": "a long text"}, ["hello"], max_new_tokens=2)
    assert isinstance(short.error, BudgetError)
    late = list(llm.extract_many(SCHEMA, PROMPTS[:3], timeout=0, ordered=False))
    assert [type(each.error) for each in late] == [GenerationTimeout] * 3


def test_a_value_that_its_type_refuses_is_a_failure(llm: LLM) -> None:
    class Moody(str):
        @classmethod
        def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
            from pydantic_core import core_schema

            def refuse(value: str) -> str:
                raise ZeroDivisionError(value)

            return core_schema.no_info_after_validator_function(refuse, core_schema.str_schema(max_length=4))

    results = list(llm.extract_many(Moody, PROMPTS[:2]))
    errors = [result.error for result in results]
    assert [type(error) for error in errors] == [ExtractionError] * 2
    assert all(error and isinstance(error.__cause__, ZeroDivisionError) for error in errors)


def test_threads_get_their_own_answers(llm: LLM, alone: list[str]) -> None:
    def ask(number: int) -> tuple[str, str, object]:
        plain = llm.generate(PROMPTS[number], max_new_tokens=12, seed=number).text
        bound = llm.generate(PROMPTS[number], regex=f"[ab]{{4}}{number}", seed=number).text
        return plain, bound, llm.extract(SCHEMA, PROMPTS[number]).value

    expected = [ask(number) for number in range(40)]
    assert [plain for plain, _, _ in expected] == alone
    start = threading.Barrier(8)
    with ThreadPoolExecutor(8, initializer=start.wait) as threads:
        assert list(threads.map(ask, range(40))) == expected
    assert not llm.runtime.has_work


def test_threads_stream_side_by_side(llm: LLM, alone: list[str]) -> None:
    def read(number: int) -> str:
        return "".join(llm.generate(PROMPTS[number], max_new_tokens=12, seed=number, stream=True))

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(read, range(18))) == alone[:18]


def test_a_thread_that_gives_up_leaves_the_others_alone(llm: LLM, alone: list[str]) -> None:
    def ask(number: int) -> str | None:
        if number % 3:
            return llm.generate(PROMPTS[number], max_new_tokens=12, seed=number).text
        with pytest.raises(GenerationTimeout):
            llm.generate(PROMPTS[number], max_new_tokens=200, regex="[a-z]{190,}", timeout=0.01)
        return None

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(ask, range(18)))
    assert answers == [alone[number] if number % 3 else None for number in range(18)]
    assert not llm.runtime.has_work


def test_a_prompt_for_which_one_of_several_texts_fails(llm: LLM) -> None:
    with pytest.raises(GenerationError):
        llm.generate("hello " * 300, n=3)
    assert not llm.runtime.has_work
