"""Inputs that are asked whether they are ready, and whether to stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import constrain
from constrain import LLM
from constrain.completion import Completion, Failure, Options, PendingResult, encode, run_many, submit
from constrain.runtime import Event


class Stopped(Iterator[str]):
    """Endless prompts that stop when asked to."""

    def __init__(self) -> None:
        self.taken, self.stopped = 0, False

    def __next__(self) -> str:
        self.taken += 1
        return f"{self.taken}"

    def is_ready(self) -> bool:
        return True

    def is_stopped(self) -> bool:
        return self.stopped


class Pausing(Stopped):
    """A prompt at a time: the next is ready only when all earlier ones are done."""

    done = 0

    def is_ready(self) -> bool:
        return self.done == self.taken


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir, max_batch_size=2)


@pytest.mark.parametrize("ordered", [True, False])
def test_only_requests_that_have_started_end_after_a_stop(llm: LLM, ordered: bool) -> None:
    prompts = Stopped()
    results = llm.generate_many(prompts, regex="[ab]{9}", max_new_tokens=9, seed=0, ordered=ordered)
    first = next(results)
    assert isinstance(first, Completion) and prompts.taken == 4  # two ran, and two waited
    prompts.stopped = True
    others = list(results)
    assert all(isinstance(each, Completion) and len(each.text) == 9 for each in others)
    assert len(others) <= 1 and prompts.taken == 4
    assert not llm.runtime.has_work


@pytest.mark.parametrize("ordered", [True, False])
def test_requests_go_on_while_the_next_input_is_not_ready(llm: LLM, ordered: bool) -> None:
    prompts = Pausing()
    results = llm.generate_many(prompts, max_new_tokens=3, seed=0, ordered=ordered)
    for number in range(4):
        prompts.done = number
        assert next(results).index == number
        assert prompts.taken == number + 1
    results.close()


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_a_result_is_read_while_the_next_step_runs(
    llm: LLM, is_asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that runs passes by itself gets the next one before the host reads what is done."""
    monkeypatch.setattr(llm.runtime.runner, "is_asynchronous", is_asynchronous)
    runtime = llm.runtime
    order: list[str] = []
    step = runtime.step
    monkeypatch.setattr(runtime, "step", lambda: order.append("step") or step())

    def begin(place: int, prompt: str) -> PendingResult[Completion]:
        options = Options(max_new_tokens=2 + 6 * place)
        ids = encode(llm.tokenizer, prompt)
        return submit(runtime, ids, [], options, lambda completion: order.append(f"read {place}") or completion)

    assert len(list(run_many(runtime, begin, ["hello", "hello"]))) == 2
    before = order[: order.index("read 0")].count("step")
    assert before == (4 if is_asynchronous else 2) and order[-1] == "read 1"


def test_a_finished_result_survives_a_failure_of_the_runtime(tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that runs before the result is read fails: only requests in progress do."""
    runtime = constrain.load(tiny_dir, max_batch_size=2).runtime
    monkeypatch.setattr(runtime.runner, "is_asynchronous", True)
    step, handles = runtime.step, runtime._handles

    def failing() -> list[Event]:
        if len(handles) == 1:
            raise MemoryError("no memory on the device")
        return step()

    monkeypatch.setattr(runtime, "step", failing)

    def begin(place: int, prompt: str) -> PendingResult[Completion]:
        ids = encode(runtime.tokenizer, prompt)
        return submit(runtime, ids, [], Options(max_new_tokens=2 + 6 * place), lambda completion: completion)

    first, second = run_many(runtime, begin, ["hello", "hello"])
    assert isinstance(first, Completion) and first.finish_reason == "length"
    assert isinstance(second, Failure) and isinstance(second.error, MemoryError)
