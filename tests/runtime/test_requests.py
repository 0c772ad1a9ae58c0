"""Requests with special needs: cache space, priorities, their own block tables, hooks on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from constrain.errors import ArgumentError, BudgetError, GenerationError
from constrain.filters import ExLlamaV2RegexFilter, combine
from constrain.generator import ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.runtime import Request, Runtime, SamplingParams
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.sampler.params import TokenBias

GREEDY = SamplingParams()
Make = Callable[..., Runtime]


def asked(count: int | None = 8, ids: tuple[int, ...] = (5, 6, 7), **options: object) -> Request:
    return Request([torch.tensor([ids])], GREEDY, max_new_tokens=count, **options)  # type: ignore[arg-type]


def test_only_hooks_keep_a_request_on_the_host(make: Make) -> None:
    """With all other settings and options, sampling runs on the device."""
    runtime = make()
    fields = ExLlamaV2Sampler.Settings(
        typical=0.5, mirostat=True, dry_multiplier=1.0, xtc_probability=0.5, token_bias=torch.zeros(384)
    )
    filters = [ExLlamaV2RegexFilter(runtime.model, runtime.tokenizer, "[a-z]+")]
    options = {"filters": filters, "banned_strings": ["x"], "trigger": "e", "return_logits": True}
    ids = torch.tensor([[5, 6]])
    plain = ExLlamaV2DynamicJob(ids, 4, gen_settings=fields, **options).request(runtime.tokenizer, 384)
    assert plain.host_bound == []
    fields.post_sampling_hooks = [lambda _: None]
    hooked = ExLlamaV2DynamicJob(ids, 4, gen_settings=fields).request(runtime.tokenizer, 384)
    assert hooked.host_bound == ["post_sampling_hooks"]


def test_every_row_of_a_pass_may_have_its_own_bias(make: Make) -> None:
    runtime = make(100 * 256)
    handles = []
    for token in range(40, 120):
        values = torch.zeros(384)
        values[token] = 1e4
        request = Request([torch.tensor([[5, 6]])], SamplingParams(bias=TokenBias(values)), max_new_tokens=2)
        handles.append(runtime.submit(request))
    found = [[token.id for token in handle.result().tokens] for handle in handles]
    assert found == [[token] * 2 for token in range(40, 120)]


def test_a_hook_waits_for_its_own_sequence_alone(make: Make) -> None:
    """Sequences without hooks stay one step ahead of the host."""
    runtime = make()
    runtime.runner.is_asynchronous = True
    calls: list[int] = []

    def hook(token: int, *_: object) -> tuple[int, bool]:
        calls.append(token)
        return token, True

    plain, hooked = runtime.submit(asked(8)), runtime.submit(asked(8, hook=hook))
    counts = []
    while not (plain.done and hooked.done):
        runtime.step()
        counts.append((plain.sequence.new_tokens, hooked.sequence.new_tokens))
    assert counts[:4] == [(0, 0), (1, 1), (2, 1), (3, 2)]
    assert plain.output.text == hooked.output.text and len(calls) == 8


@pytest.mark.parametrize("chosen", [None, 384, -1])
def test_an_error_of_a_hook_ends_its_own_sequence(make: Make, chosen: int | None) -> None:
    """A hook that raises, or that chooses a token that does not exist."""

    def hook(token: int, *_: object) -> tuple[int, bool]:
        if chosen is None:
            raise ValueError("no luck")
        return chosen, True

    runtime = make()
    hooked, plain = runtime.submit(asked(8, hook=hook)), runtime.submit(asked(8))
    with pytest.raises(GenerationError, match="no luck" if chosen is None else f"token {chosen}"):
        hooked.result()
    assert len(plain.result().tokens) == 8


def test_short_prompts_do_not_wait_for_long_ones(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step computes one chunk of prompts, so that others get their tokens, and can be cancelled, in between."""
    runtime = make(16 * 256, max_chunk_size=256)
    passes: list[int] = []
    prefill = runtime.runner.prefill

    def counted(rows: Sequence[BatchRow], *rest: Any) -> None:
        passes.append(sum(len(row.ids) for row in rows))
        prefill(rows, *rest)

    monkeypatch.setattr(runtime.runner, "prefill", counted)
    long = [runtime.submit(asked(2, (5, n, *range(3, 300), *range(3, 300)))) for n in (6, 7)]
    short = runtime.submit(asked(2, (8, 9, 10)))
    for _ in range(2):
        runtime.step()
    assert short.sequence.new_tokens and not any(each.sequence.is_prefilled for each in long)
    long[1].cancel()
    assert long[0].result().text == make(16 * 256).submit(long[0].sequence.request).result().text
    assert len(passes) == 4 and max(passes) == 256, "what was cancelled was not computed any further"


def test_higher_priorities_start_first(make: Make) -> None:
    runtime = make(max_batch_size=1)
    handles = {name: runtime.submit(asked(2, priority=each)) for name, each in zip("abcd", (0, 1, 0, 2), strict=True)}
    names = {handle.sequence: name for name, handle in handles.items()}
    order = []
    while runtime.has_work:
        order += [names[event.sequence] for event in runtime.step() if event.update is event.progress is None]
    assert order == ["d", "b", "a", "c"]


def test_a_request_is_overtaken_as_often_as_it_allows(make: Make) -> None:
    runtime = make(1024)
    first = runtime.submit(asked(100, (5,) * 600))
    big = runtime.submit(asked(100, (6,) * 600, max_skips=2))
    small = [runtime.submit(asked(2, (7, n))) for n in range(5)]
    names = {each.sequence: name for name, each in zip("fb01234", (first, big, *small), strict=True)}
    order = []
    while runtime.has_work:
        order += [names[event.sequence] for event in runtime.step() if event.update is event.progress is None]
    assert "".join(order) == "f01b234" and big.sequence.skips == 2


def test_fixed_block_tables(make: Make) -> None:
    """A request may bring its own block table, in any order and partly filled, unknown to the page allocator."""
    expected = make().submit(asked(40, tuple(range(5, 305)))).result().text
    runtime = make(2048)
    request = asked(40, tuple(range(5, 305)))
    first = runtime.add(request, [[6, 1]])
    passes: list[int] = []
    prefill = runtime.runner.prefill
    runtime.runner.prefill = lambda rows, *rest: passes.append(sum(len(r.ids) for r in rows)) or prefill(rows, *rest)  # type: ignore[method-assign, func-returns-value, assignment]

    def finish(sequence: object) -> str:
        text = ""
        while runtime.has_work:
            for event in runtime.step():
                if event.update is not None and event.sequence is sequence:
                    text += event.update.released.text
        return text

    assert finish(first) == expected and sum(passes) == 299
    assert not any(page.tokens or page.users for page in runtime.allocator.pages)
    # The pages still hold the prompt, so prefill computes its last tokens only.
    passes.clear()
    assert finish(runtime.add(request, [[6, 1]], 290)) == expected and sum(passes) == 9
    # The prefix cache does not know these pages, so prefill computes the whole prompt.
    passes.clear()
    assert finish(runtime.add(request)) == expected and sum(passes) == 299


def test_requests_that_cannot_be(make: Make) -> None:
    runtime = make(512, max_batch_size=1)
    for request, message in (
        (asked(513), "cannot be enqueued"),
        (asked(8, (5, 384)), "holds id 384, which is outside the vocabulary"),
        (asked(8, (5, -1)), "holds id -1, which is outside the vocabulary"),
        (Request([torch.tensor([[5]])] * 2, GREEDY, max_new_tokens=2), "more than max_batch_size=1"),
    ):
        with pytest.raises(GenerationError, match=message):
            runtime.submit(request)
    filters = [ExLlamaV2RegexFilter(runtime.model, runtime.tokenizer, "[0-9]{30}")]
    constraint = combine(filters, runtime.tokenizer, 384)
    with pytest.raises(BudgetError):
        runtime.submit(asked(4, constraint=constraint, within_budget=True))
    for options in ({"min_new_tokens": -1}, {"return_top_tokens": -1}, {"banned_strings": "e"}, {"trigger": 3}):
        with pytest.raises(ArgumentError):
            asked(**options)  # type: ignore[arg-type]
    assert not runtime.has_work


def test_without_a_limit_a_sequence_ends_with_the_context(make: Make) -> None:
    runtime = make(256)
    handle = runtime.submit(asked(None))
    output = handle.result()
    assert output.finish is not None and output.finish.reason == "max_new_tokens"
    assert len(handle.sequence) == runtime.max_seq_len == 256
