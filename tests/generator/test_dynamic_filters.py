"""The dynamic generator: filters, which may fail or hang, and budgets."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from dynamic_jobs import (
    GREEDY,
    PROMPT,
    RANDOM,
    Make,
    encode,
    last,
    reference,
    run,
    streamed,
)

from constrain.errors import BudgetError, DeadEnd, FilterError
from constrain.filters import ExLlamaV2Filter, ExLlamaV2RegexFilter
from constrain.generator import (
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
)


class Raising:
    """Allows everything until it raises."""

    def __init__(self, after: int) -> None:
        self.after = after

    def begin(self, prefix_str: str) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...

    def next(self) -> Any:
        self.after -= 1
        if self.after < 0:
            raise KeyError("lost")
        return None, set()


def test_a_filter_that_fails_ends_its_own_job_only(generator: ExLlamaV2DynamicGenerator) -> None:
    jobs = [
        ExLlamaV2DynamicJob(encode(generator, PROMPT), 8, gen_settings=GREEDY, filters=filters)
        for filters in ([Raising(3)], None, [Nothing()])
    ]
    generator.enqueue(jobs)
    results = run(generator)
    assert last(results, jobs[0])["eos_reason"] == "filter_error"
    error = last(results, jobs[0])["exception"]
    assert isinstance(error, FilterError) and error.filters == ("Raising",) and error.tail
    assert streamed(results, jobs[0]) == reference(generator, encode(generator, PROMPT), 8)[:3]
    assert last(results, jobs[2])["eos_reason"] == "dead_end"
    assert isinstance(last(results, jobs[2])["exception"], DeadEnd)
    assert streamed(results, jobs[1]) == reference(generator, encode(generator, PROMPT), 8)
    with pytest.raises(FilterError, match="lost"):
        generator.generate(PROMPT, 8, filters=[Raising(2)])


class Nothing(Raising):
    """Allows nothing."""

    def __init__(self) -> None: ...

    def next(self) -> Any:
        return set(), set()


class Hanging(Raising):
    """Does not return before it is told to."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def next(self) -> Any:
        self.release.wait(30)
        return None, set()


class HangingBehind(ExLlamaV2Filter):
    """The same, on another thread."""

    release = threading.Event()

    def use_background_worker(self) -> bool:
        return True

    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def next(self) -> Any:
        self.release.wait(30)
        return None, set()


def test_filters_that_hang_end_their_own_jobs_only(make: Make) -> None:
    generator, hanging = make(filter_time_limit=0.2), Hanging()
    behind = [HangingBehind(generator.model, generator.tokenizer) for _ in range(6)]
    digits = ExLlamaV2RegexFilter(generator.model, generator.tokenizer, "[0-9]{4}")
    jobs = [
        ExLlamaV2DynamicJob(encode(generator, PROMPT), 4, gen_settings=GREEDY, filters=filters)
        for filters in ([hanging], [Raising(99)], [digits], *([each] for each in behind))
    ]
    generator.enqueue(jobs)
    results = generator.iterate()
    generator.cancel(jobs[-1])
    results += run(generator)
    for event in (hanging.release, HangingBehind.release):
        event.set()
    for job in [jobs[0], *jobs[3:-1]]:
        assert last(results, job)["eos_reason"] == "filter_error"
        assert "within 0.2 seconds" in str(last(results, job)["exception"])
    assert streamed(results, jobs[1]) == reference(generator, encode(generator, PROMPT), 4)
    assert last(results, jobs[2])["full_completion"].isdigit()


def test_filters_end_texts(generator: ExLlamaV2DynamicGenerator) -> None:
    def regex() -> list[Any]:
        return [ExLlamaV2RegexFilter(generator.model, generator.tokenizer, "[0-9]{3}-(yes|no)")]

    prompts: list[Any] = ["x", PROMPT, "12"]
    options: dict[str, Any] = {"seed": 1, "gen_settings": RANDOM, "completion_only": True}
    texts = generator.generate(prompts, 20, filters=[regex(), None, regex()], **options)
    assert [text[:3].isdigit() and text[4:] in ("yes", "no") for text in texts] == [True, False, True]
    alone = [generator.generate(prompts[n], 20, filters=regex(), **options | {"seed": 1 + n}) for n in (0, 2)]
    assert alone == texts[::2]


def test_a_budget_that_cannot_suffice_is_refused(generator: ExLlamaV2DynamicGenerator) -> None:
    f = ExLlamaV2RegexFilter(generator.model, generator.tokenizer, "[0-9]{30}")
    with pytest.raises(BudgetError):
        generator.generate("x", 4, filters=[f])
    with pytest.raises(BudgetError):
        generator.generate(["x", "x"], 4, filters=[None, [f]])
    assert generator.num_remaining_jobs() == 0
