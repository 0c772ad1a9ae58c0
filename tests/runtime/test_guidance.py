"""Classifier-free guidance: two prompts, one output."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from constrain.errors import GenerationError
from constrain.runtime import Request, Runtime, SamplingParams

Make = Callable[..., Runtime]
WITH, WITHOUT = [5, 90, 17, 33], [5, 60]


def expected(model: torch.nn.Module, scale: float, count: int) -> list[int]:
    """Return the greedy output under guidance, computed without a cache."""
    new: list[int] = []
    for _ in range(count):
        first, second = (model.forward(torch.tensor([[*ids, *new]]))[0, -1, :380] for ids in (WITH, WITHOUT))
        guided = scale * first.log_softmax(-1) + (1 - scale) * second.log_softmax(-1)
        new.append(int(guided.argmax()))
    return new


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1.7])
def test_each_prompt_ends_in_its_own_token(make: Make, scale: float, asynchronous: bool) -> None:
    runtime = make()
    runtime.runner.is_asynchronous = asynchronous
    prompts = [torch.tensor([ids]) for ids in (WITH, WITHOUT)]
    handle = runtime.submit(Request(prompts, SamplingParams(guidance=scale), max_new_tokens=9))
    assert [token.id for token in handle.result().tokens] == expected(runtime.model, scale, 9)
    first, second = (row.sequence_ids.torch()[0].tolist() for row in handle.sequence.rows)
    assert first[4:] == second[2:]


def test_both_outputs_have_to_fit_without_a_limit(make: Make) -> None:
    prompts = [torch.tensor([ids]) for ids in (WITH, WITHOUT)]
    with pytest.raises(GenerationError, match=r"requires 4 pages \(only 2 available\)"):
        make(512).submit(Request(prompts, SamplingParams(guidance=1.0)))


def test_a_request_that_fits_in_part_takes_no_pages(make: Make) -> None:
    runtime = make(512)
    first = runtime.submit(Request([torch.tensor([WITH])], SamplingParams(), max_new_tokens=9))
    prompts = [torch.tensor([ids]) for ids in (WITH, WITHOUT)]
    second = runtime.submit(Request(prompts, SamplingParams(guidance=1.7), max_new_tokens=9))
    runtime.step()
    assert len(runtime.allocator.idle) == 1 and second.sequence in runtime.scheduler.waiting
    assert first.result().tokens
    assert [token.id for token in second.result().tokens] == expected(runtime.model, 1.7, 9)
