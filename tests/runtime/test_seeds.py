"""A seed gives the same tokens through every entry point, alone and batched with other requests, in every mode."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from request_kinds import EOS, KINDS, OPTIONS, TOKENS, job, prompt, request, settings

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Tokenizer
from constrain.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicGeneratorAsync,
    ExLlamaV2DynamicJobAsync,
    ExLlamaV2StreamingGenerator,
)
from constrain.runtime import Output, Runtime
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.speculative.draft_model import DraftModel
from constrain.runtime.speculative.ngram import NgramProposer

Make = Callable[..., Runtime]


class Outcome(NamedTuple):
    """The result of a request."""

    text: str
    tokens: list[int]
    reason: str


def outcome(output: Output) -> Outcome:
    assert output.finish is not None
    return Outcome(output.text, [token.id for token in output.tokens], output.finish.reason)


def differing(found: dict[str, Outcome], expected: dict[str, Outcome]) -> dict[str, tuple[Outcome, Outcome]]:
    """Return the found and expected outcomes of each kind of request for which they differ."""
    return {kind: (found[kind], each) for kind, each in expected.items() if found[kind] != each}


def alone(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, greedy: bool) -> dict[str, Outcome]:
    """Run every request alone, with all optimisations off."""
    found = {}
    for kind in KINDS:
        runtime = Runtime(
            model, ExLlamaV2Cache(model, max_seq_len=512), tokenizer, jump_forward=False, use_background=False
        )
        found[kind] = outcome(runtime.submit(request(kind, model, tokenizer, greedy)).result())
    return found


@pytest.fixture(scope="module")
def expected(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer) -> dict[str, Outcome]:
    return alone(model, tokenizer, greedy=False)


@pytest.fixture(scope="module")
def expected_greedy(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer) -> dict[str, Outcome]:
    return alone(model, tokenizer, greedy=True)


def test_every_kind_of_request_does_something(expected: dict[str, Outcome]) -> None:
    """All kinds give different outputs, although some share a prompt, and cover the finish reasons."""
    assert len({tuple(each.tokens) for each in expected.values()}) == len(expected)
    assert {each.reason for each in expected.values()} >= {
        "max_new_tokens",
        "stop_token",
        "stop_string",
        "end_filter",
    }
    assert all(len(each.tokens) > 3 for kind, each in expected.items() if kind not in ("one token", "stop tokens"))


def test_seeds_differ(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, make: Make) -> None:
    plain = request("random", model, tokenizer)
    runtime = make()
    handles = [runtime.submit(replace(plain, seed=seed)) for seed in range(5)]
    assert len({handle.result().text for handle in handles}) == 5


@pytest.fixture(params=["synchronous", "asynchronous", "graphs"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Runtime], Runtime]:
    """Return a function that makes a runtime synchronous, asynchronous as on a GPU, or asynchronous with graphs."""
    name = request.param
    if name == "graphs":
        monkeypatch.setattr(ModelRunner, "has_graphs", property(lambda _: True))

    def switched(runtime: Runtime) -> Runtime:
        runtime.runner.is_asynchronous = name != "synchronous"
        return runtime

    return switched


@pytest.mark.parametrize("jump_forward", [False, True])
@pytest.mark.parametrize("proposer", [None, "n-gram", "draft model"])
@pytest.mark.parametrize("greedy", [False, True])
def test_batches_of_all_kinds(
    make: Make,
    mode: Callable[[Runtime], Runtime],
    expected: dict[str, Outcome],
    expected_greedy: dict[str, Outcome],
    proposer: str | None,
    jump_forward: bool,
    greedy: bool,
) -> None:
    runtime = mode(make(16384, jump_forward=jump_forward))
    if proposer == "n-gram":
        runtime.speculation.proposer = NgramProposer(3, 3)
    elif proposer == "draft model":
        cache = ExLlamaV2Cache(runtime.model, max_seq_len=16384)
        runtime.speculation.proposer = DraftModel(runtime.model, cache, runtime.allocator.page_size, 380, 3)
    found, drafted = {}, 0
    # Drafts are proposed for small batches only.
    size = len(KINDS) if proposer is None else 8
    for first in range(0, len(KINDS), size):
        kinds = KINDS[first : first + size]
        handles = {kind: runtime.submit(request(kind, runtime.model, runtime.tokenizer, greedy)) for kind in kinds}
        found |= {kind: outcome(handle.result()) for kind, handle in handles.items()}
        drafted += sum(h.sequence.accepted_draft_tokens + h.sequence.rejected_draft_tokens for h in handles.values())
    assert differing(found, expected_greedy if greedy else expected) == {}
    assert (drafted > 20) == (proposer is not None)
    assert not runtime.has_work and not any(page.users for page in runtime.allocator.pages)


@pytest.mark.parametrize("kind", KINDS)
def test_alone_in_every_mode(
    make: Make, mode: Callable[[Runtime], Runtime], expected: dict[str, Outcome], kind: str
) -> None:
    runtime = mode(make(512))
    assert outcome(runtime.submit(request(kind, runtime.model, runtime.tokenizer)).result()) == expected[kind]


def jobs_of(generator: ExLlamaV2DynamicGenerator) -> dict[str, Any]:
    return {kind: job(kind, generator.model, generator.tokenizer) for kind in KINDS}


def of_results(results: list[dict[str, Any]]) -> Outcome:
    """Return the outcome of a job from all its results."""
    tokens = [token for result in results if "token_ids" in result for token in result["token_ids"][0].tolist()]
    return Outcome(results[-1]["full_completion"], tokens, results[-1]["eos_reason"])


def test_the_dynamic_generator(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, expected: dict[str, Outcome]) -> None:
    generator = ExLlamaV2DynamicGenerator(model, ExLlamaV2Cache(model, max_seq_len=16384), tokenizer)
    jobs = jobs_of(generator)
    generator.enqueue([*jobs.values()])
    results: dict[Any, list[dict[str, Any]]] = {each: [] for each in jobs.values()}
    while generator.num_remaining_jobs():
        for result in generator.iterate():
            results[result["job"]].append(result)
    assert differing({kind: of_results(results[each]) for kind, each in jobs.items()}, expected) == {}


def test_the_asynchronous_generator(
    model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, expected: dict[str, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> dict[str, Outcome]:
        cache = ExLlamaV2Cache(model, max_seq_len=16384)
        generator = ExLlamaV2DynamicGeneratorAsync(model, cache, tokenizer)
        made = iter(KINDS)
        monkeypatch.setattr(generator.generator, "job_type", lambda: job(next(made), model, tokenizer))
        jobs = {kind: ExLlamaV2DynamicJobAsync(generator) for kind in KINDS}

        async def read(each: ExLlamaV2DynamicJobAsync) -> Outcome:
            return of_results([result async for result in each])

        found = await asyncio.gather(*map(read, jobs.values()))
        await generator.close()
        return dict(zip(jobs, found, strict=True))

    assert differing(asyncio.run(main()), expected) == {}


def supported(*names: str) -> Iterator[str]:
    """Yield the kinds whose options are all among the names."""
    return (kind for kind in KINDS if set(OPTIONS.get(kind, {})) <= {"max_new_tokens", *names})


def test_the_streaming_generator(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, expected: dict[str, Outcome]) -> None:
    names = ("filters", "stop_conditions", "banned_strings", "trigger", "token_healing", "filter_prefer_eos")
    # This generator counts and constrains the token regenerated by token healing, and outputs stop tokens as text.
    left_out = {"cfg_scale", "healing", "healing under a filter", "stop tokens"}
    generator = ExLlamaV2StreamingGenerator(model, ExLlamaV2Cache(model, max_seq_len=256), tokenizer)
    for kind in set(supported(*names, "complete_within_budget")) - left_out:
        options = {"max_new_tokens": TOKENS, **OPTIONS.get(kind, {})}
        generator.set_stop_conditions(options.pop("stop_conditions", [EOS]))
        if "filters" in options:
            options["filters"] = options["filters"](model, tokenizer)
        ids = tokenizer.encode(prompt(kind))
        generator.begin_stream_ex(ids, settings(kind), seed=KINDS.index(kind), **options)
        text, end = "", False
        while not end:
            result = generator.stream_ex()
            text, end = text + result["chunk"], result["eos"]
        assert text == expected[kind].text, kind


def test_the_base_generator(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, expected: dict[str, Outcome]) -> None:
    generator = ExLlamaV2BaseGenerator(model, ExLlamaV2Cache(model, max_seq_len=256, batch_size=2), tokenizer)
    kinds = set(supported("filters", "token_healing", "filter_prefer_eos"))
    # This generator has no budgets, and applies filters to the token regenerated by token healing.
    left_out = {"forced text", "JSON", "JSON, the end preferred", "two regexes", "healing under a filter"}
    for kind in kinds - left_out:
        options = dict(OPTIONS.get(kind, {}))
        count = options.pop("max_new_tokens", TOKENS)
        if "filters" in options:
            options["filters"] = options["filters"](model, tokenizer)
        prompts: Any = [prompt(kind), "no, thanks"] if kind == "cfg_scale" else prompt(kind)
        healed = options.get("token_healing", False)
        text = generator.generate_simple(
            prompts, settings(kind), count + healed, seed=KINDS.index(kind), completion_only=True, **options
        )
        assert (text[0] if kind == "cfg_scale" else text) == expected[kind].text, kind


@pytest.mark.gpu
def test_batches_of_all_kinds_on_a_gpu(on_gpu: tuple[ExLlamaV2, ExLlamaV2Tokenizer]) -> None:
    """Matrix products of other batch sizes round differently, so only requests that run alone must match exactly."""
    model, tokenizer = on_gpu

    def run(asynchronous: bool, **options: Any) -> dict[str, Outcome]:
        found = {}
        for kind in KINDS:
            runtime = Runtime(model, ExLlamaV2Cache(model, max_seq_len=4096), tokenizer, **options)
            assert runtime.runner.is_asynchronous and runtime.runner.has_graphs
            runtime.runner.is_asynchronous = asynchronous
            found[kind] = outcome(runtime.submit(request(kind, model, tokenizer)).result())
        return found

    expected = run(False, jump_forward=False, use_background=False)
    assert run(True, jump_forward=False) == expected
    together = Runtime(model, ExLlamaV2Cache(model, max_seq_len=16384), tokenizer)
    handles = {kind: together.submit(request(kind, model, tokenizer)) for kind in KINDS}
    found = {kind: outcome(handle.result()) for kind, handle in handles.items()}
    assert sum(found[kind] == expected[kind] for kind in KINDS) >= len(KINDS) // 2
