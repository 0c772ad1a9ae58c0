"""Handles: no update is lost, and no request is left behind."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import constrain
from constrain import LLM
from constrain.completion import Completion, Options, PendingResult, encode, run_many, submit
from constrain.completion.many import window_of
from constrain.completion.result import finish_reason
from constrain.errors import GenerationError
from constrain.generator import ExLlamaV2Sampler
from constrain.runtime.handle import Handle
from constrain.runtime.outputs import Finish, Piece, Update


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir)


class Interrupted(Handle):
    """A handle to which another thread adds the last update just when the others were read."""

    def _read(self) -> list[Update]:
        updates = super()._read()
        if not self.done:
            self.push(Update(Piece("b"), finish=Finish("stop_token")))
        return updates


class Idle:
    """A driver whose updates come from elsewhere."""

    def run_until(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        return done()

    def run_in_background(self) -> None: ...
    def cancel(self, sequence: object) -> None: ...


def test_an_update_that_comes_while_another_is_taken_is_not_lost() -> None:
    handle = Interrupted(cast(Any, None), Idle())
    handle.push(Update(Piece("a")))
    assert "".join(update.released.text for update in handle) == "ab"


def test_a_thread_that_steps_lets_others_in(llm: LLM) -> None:
    """Requests are submitted and cancelled after hardly more than one step of another thread, not after many."""
    finished = threading.Event()

    def generate() -> None:
        while not finished.is_set():
            llm.generate("hello", regex="[a-z]{200,}", max_new_tokens=220)

    thread = threading.Thread(target=generate)
    thread.start()
    waited = 0
    for _ in range(20):
        before = llm.runtime.num_steps
        while llm.runtime.num_steps == before:
            time.sleep(1e-4)
        before = llm.runtime.num_steps
        llm.generate("hello", max_new_tokens=100, stream=True).close()
        waited += llm.runtime.num_steps - before
    finished.set()
    thread.join()
    assert waited < 100


def test_a_cancelled_request_has_no_result(llm: LLM) -> None:
    pending = submit(llm.runtime, encode(llm.tokenizer, "hello"), [], Options(), lambda completion: completion)
    pending.cancel()
    with pytest.raises(GenerationError, match="the request was cancelled"):
        pending.result()


def test_as_many_wait_as_run(llm: LLM, tiny_dir: Path) -> None:
    assert window_of(llm.runtime) == 16
    assert window_of(constrain.load(tiny_dir, max_batch_size=3).runtime) == 6


def test_the_first_of_many_run_while_others_are_submitted(llm: LLM) -> None:
    steps: list[int] = []

    def begin(index: int, text: str) -> PendingResult[Completion]:
        steps.append(llm.runtime.num_steps)
        options = Options(max_new_tokens=8)
        return submit(llm.runtime, encode(llm.tokenizer, text), [], options, lambda completion: completion)

    half = window_of(llm.runtime) // 2
    results = list(run_many(llm.runtime, begin, ["hello"] * (half + 4)))
    assert len(results) == half + 4
    assert steps[0] == steps[min(7, half - 1)] < steps[half]
    assert len(set(steps[half:])) == 4  # the batch is full, and goes on


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        ([5] * 16, "repetition"),
        ([5] * 15, "length"),
        ([1, 2, *[5] * 40, 3], "repetition"),
        ([*[5] * 40, *range(6, 6 + 32)], "repetition"),
        ([*[5] * 40, *range(6, 6 + 33)], "length"),
        ([], "length"),
    ],
)
def test_loops(tokens: list[int], reason: str) -> None:
    assert finish_reason("max_new_tokens", tokens) == reason
    assert finish_reason("stop_token", tokens) == "stop"


def test_a_request_may_be_cancelled_within_a_step(llm: LLM) -> None:
    """As when a stream that nobody uses any more is collected while the model runs."""
    expected = llm.generate("hello", max_new_tokens=20, seed=4)
    seen = []

    def give_up(result: object) -> None:
        seen.append(result)
        if len(seen) == 3:
            doomed.cancel()

    settings = ExLlamaV2Sampler.Settings(post_sampling_hooks=[give_up])
    ids = encode(llm.tokenizer, "hello there")
    doomed = submit(llm.runtime, ids, [], Options(settings=settings), lambda completion: completion)
    assert llm.generate("hello", max_new_tokens=20, seed=4) == expected
    assert len(seen) == 3 and not llm.runtime.has_work
    with pytest.raises(GenerationError, match="the request was cancelled"):
        doomed.result()


def test_nothing_is_printed_where_nobody_listens() -> None:
    handlers = logging.getLogger("constrain").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]


@pytest.mark.parametrize("awaited", [False, True])
def test_a_request_that_ended_in_time_is_read_later(llm: LLM, awaited: bool) -> None:
    pending = submit(
        llm.runtime, encode(llm.tokenizer, "hello"), [], Options(max_new_tokens=3, timeout=60), lambda found: found
    )
    pending.handle.result()
    pending._deadline = time.monotonic() - 1

    async def pieces() -> str:
        return "".join([piece async for piece in pending.apieces()])

    assert asyncio.run(pieces()) if awaited else "".join(pending.pieces())
    found = asyncio.run(pending.aresult()) if awaited else pending.result()
    assert found.finish_reason == "length"
