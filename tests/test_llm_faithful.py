"""Faithful sampling from Python: weighted outputs of one prompt, blocking and in asyncio, and what it refuses."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import constrain
from constrain import LLM
from constrain.completion import Completion, Failure
from constrain.errors import ArgumentError, BudgetError, GenerationError, GenerationTimeout, NoTokenLeft
from constrain.filters import ExLlamaV2Filter, ExLlamaV2RegexFilter
from constrain.generator import ExLlamaV2Sampler

OPTIONS: dict[str, Any] = {"regex": "(yes|no|maybe)!?", "max_new_tokens": 12, "n": 16, "seed": 3}


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir, max_batch_size=17, cache_tokens=18 * 256)


def test_outputs_have_weights(llm: LLM) -> None:
    found = llm.generate("hello", faithful=True, **OPTIONS)
    assert [each.index for each in found] == list(range(16))
    for each in found:
        assert re.fullmatch(OPTIONS["regex"], each.text) and each.complete and each.finish_reason == "stop"
        assert each.prompt_tokens > 0 and each.logprobs is None
    log_weights = [each.log_weight for each in found if each.log_weight is not None]
    weights = np.exp(np.array(log_weights) - max(log_weights))
    assert [each.weight for each in found] == pytest.approx(list(weights / weights.sum()))
    assert found == llm.generate("hello", faithful=True, **OPTIONS), "the seed decides"


def test_masked_outputs_have_none(llm: LLM) -> None:
    found = llm.generate("hello", regex="a|b", max_new_tokens=3)
    assert found.log_weight is None and found.weight == 1


def test_weights_are_those_of_the_model(llm: LLM) -> None:
    """The mean weight is the probability of the two texts, however they are divided into tokens."""
    options: dict[str, Any] = {"faithful": True, "max_new_tokens": 8, "n": 16}
    masses = [
        np.mean([math.exp(each.log_weight or 0.0) for each in llm.generate("hello", regex=regex, **options)])
        for regex in ("a|b", "a", "b")
    ]
    assert masses[0] == pytest.approx(masses[1] + masses[2], rel=0.05)


def test_one_output_and_log_probabilities(llm: LLM) -> None:
    found = llm.generate("hello", faithful=True, choices=["one", "two"], logprobs=2, seed=1)
    assert found.weight == 1 and found.log_weight is not None and found.log_weight < 0
    assert found.logprobs is not None and len(found.logprobs) == len(found.tokens)
    assert all(len(each.top) == 2 for each in found.logprobs)


def test_a_stop_token_that_comes_too_early(llm: LLM) -> None:
    """What it ends is no output of the constraint, so that it has no weight."""
    options: dict[str, Any] = {"faithful": True, "max_new_tokens": 6, "n": 16, "seed": 1}
    stop = llm.tokenizer.single_id("1")
    found = llm.generate("hello", regex="[0-9]{3}", stop=stop, **options)
    assert any(each.complete for each in found)
    assert all(each.complete == (each.weight > 0) == (len(each.text) == 3) for each in found)
    found = llm.generate("hello", regex="2[0-9]*", stop=stop, **options)
    assert all(each.complete and "1" not in each.text for each in found)


def test_in_asyncio(llm: LLM) -> None:
    async def main() -> list[Completion]:
        both = [llm.agenerate("hello", faithful=True, **OPTIONS), llm.agenerate("hello", regex="a|b", n=2)]
        first, second = await asyncio.gather(*both)
        assert [each.weight for each in second] == [1, 1]
        one = await llm.agenerate("hello", faithful=True, regex="a|b")
        assert isinstance(one, Completion) and one.weight == 1
        task = asyncio.ensure_future(llm.agenerate("hello", faithful=True, n=8, regex="[a-z]{90,}"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return first

    found = asyncio.run(asyncio.wait_for(main(), 60))
    same = llm.generate("hello", faithful=True, **OPTIONS)
    assert [each.text for each in found] == [each.text for each in same]
    assert [each.weight for each in found] == pytest.approx([each.weight for each in same], abs=1e-4)
    assert not llm.runtime.has_work


def test_time_runs_out(llm: LLM) -> None:
    with pytest.raises(GenerationTimeout):
        llm.generate("hello", faithful=True, n=4, regex="[a-z]{90,}", timeout=0.01)
    assert not llm.runtime.has_work


class Stateful(ExLlamaV2RegexFilter):
    """Cannot be copied: it has state that its base class knows nothing of."""

    def next(self) -> Any:
        return super().next()


class DeadEnded(ExLlamaV2Filter):
    """Allows one token, and nothing after it."""

    length = 0

    def begin(self, prefix_str: str = "") -> None:
        self.length = 0

    def feed(self, token: Any) -> None:
        self.length += 1

    def next(self) -> Any:
        return (set() if self.length else {70, 71}), set()

    def clone(self, c: Any = None) -> DeadEnded:
        other = DeadEnded(self.model, self.tokenizer)
        other.length = self.length
        return other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.5, "top_k": 4}, "own distribution, without temperature, top_k"),
        ({"settings": ExLlamaV2Sampler.Settings()}, "without settings"),
        ({"stop": "x"}, "without stop_strings"),
        ({"stream": True}, "cannot be streamed"),
        ({"n": 0}, "n must be"),
    ],
)
def test_what_is_refused(llm: LLM, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        llm.generate("hello", faithful=True, regex="a+", **options)


def test_filters_that_are_refused(llm: LLM) -> None:
    with pytest.raises(ArgumentError, match=r"Stateful has no clone\(\) of its own"):
        llm.generate("hello", faithful=True, n=4, filters=[Stateful(llm.model, llm.tokenizer, "a+")])
    with pytest.raises(NoTokenLeft, match="no particle has completed an output"):
        llm.generate("hello", faithful=True, n=4, filters=[DeadEnded(llm.model, llm.tokenizer)])


def test_limits_say_what_to_do(llm: LLM) -> None:
    with pytest.raises(BudgetError):
        llm.generate("hello", faithful=True, n=4, regex="a{9}", max_new_tokens=2)
    with pytest.raises(GenerationError, match="max_batch_size"):
        llm.generate("hello", faithful=True, n=18, regex="a", max_new_tokens=4)
    with pytest.raises(GenerationError, match="or fewer outputs"):
        llm.generate("hello", faithful=True, n=19, regex="a", max_new_tokens=4)


def test_other_methods_have_no_weights(llm: LLM) -> None:
    asked: Sequence[Any] = (llm.generate_many, llm.agenerate_many)
    for many in asked:
        with pytest.raises(ArgumentError, match="faithful=True is for generate and agenerate"):
            many(["hello"], regex="a", faithful=True)
    stream = llm.astream("hello", **{"regex": "a", "faithful": True})  # type: ignore[arg-type]

    async def main() -> None:
        await anext(stream)

    with pytest.raises(ArgumentError, match="faithful=True is for generate and agenerate"):
        asyncio.run(main())


def test_beside_others(llm: LLM) -> None:
    """Weighted outputs and those of a running batch do not disturb each other."""
    alone = llm.generate("hello", faithful=True, **OPTIONS)
    many = llm.generate_many(["one", "two", "three"], regex="[ab]{20}", max_new_tokens=22)
    first = next(many)
    beside = llm.generate("hello", faithful=True, **OPTIONS)
    assert [each.text for each in beside] == [each.text for each in alone]
    texts = Counter(len(each.text) for each in (first, *many) if not isinstance(each, Failure))
    assert texts == {20: 3}
