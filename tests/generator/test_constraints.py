"""Filters inside generators: when they are evaluated, what is forced, budgets, triggers, guesses."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Tokenizer
from constrain.errors import BudgetError, DeadEnd, GenerationError
from constrain.filters import (
    ExLlamaV2Filter,
    ExLlamaV2GrammarFilter,
    ExLlamaV2JSONSchemaFilter,
    ExLlamaV2RegexFilter,
    ExLlamaV2SelectFilter,
)
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.runtime.model_runner import ModelRunner

EOS = 1
GREEDY = ExLlamaV2Sampler.Settings.greedy()
RANDOM = ExLlamaV2Sampler.Settings(temperature=1.5, top_k=0, top_p=0.0)
PROMPT = "hello there, the quick brown"
SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
Make = Callable[..., ExLlamaV2DynamicGenerator]


@pytest.fixture
def make(long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> Make:
    def make(size: int = 2048, **options: Any) -> ExLlamaV2DynamicGenerator:
        if options.pop("draft", False):
            options |= {"draft_model": long_model, "draft_cache": ExLlamaV2Cache(long_model, max_seq_len=size)}
        cache = ExLlamaV2Cache(long_model, max_seq_len=size)
        return ExLlamaV2DynamicGenerator(long_model, cache, tiny_tokenizer, **options)

    return make


def regex(generator: ExLlamaV2DynamicGenerator, pattern: str) -> ExLlamaV2RegexFilter:
    return ExLlamaV2RegexFilter(generator.model, generator.tokenizer, pattern)


def text(generator: ExLlamaV2DynamicGenerator, count: int = 60, prompt: str = PROMPT, **options: Any) -> str:
    options = {"gen_settings": GREEDY, "stop_conditions": [EOS], **options}
    return str(generator.generate(prompt, count, completion_only=True, **options))


def widths(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """A list that will hold the width of each row of each decode pass."""
    seen: list[list[int]] = []
    decode = ModelRunner.decode

    def watched(self: ModelRunner, rows: Any, *rest: Any) -> Any:
        seen.append([len(row.ids) for row in rows])
        return decode(self, rows, *rest)

    monkeypatch.setattr(ModelRunner, "decode", watched)
    return seen


# When filters are evaluated


class Overlapping(ExLlamaV2RegexFilter):
    """Does not finish before the model has started."""

    started = threading.Event()
    finished = threading.Event()
    overlaps: list[bool]

    def use_background_worker(self) -> bool:
        return True

    def fill_bitmask(self, bits: Any, row: int = 0, budget: int | None = None) -> bool:
        self.overlaps.append(self.started.wait(5))
        restricted = super().fill_bitmask(bits, row, budget)
        self.finished.set()
        return restricted


def test_filters_are_evaluated_while_the_model_runs(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = make(jump_forward=False)
    decode = generator.runtime.runner.decode
    waited = []

    def watched(rows: Any, *rest: Any) -> Any:
        Overlapping.started.set()
        waited.append(Overlapping.finished.wait(5))
        output = decode(rows, *rest)
        Overlapping.started.clear()
        Overlapping.finished.clear()
        return output

    monkeypatch.setattr(generator.runtime.runner, "decode", watched)
    monkeypatch.setattr(Overlapping, "overlaps", [], raising=False)
    written = text(generator, filters=[Overlapping(generator.model, generator.tokenizer, "[0-9]{4}")])
    assert len(written) == 4
    # Neither could have finished alone.
    assert waited == [True] * len(waited) and Overlapping.overlaps == [True] * len(waited) != []


class Tracing(ExLlamaV2Filter):
    """Allows everything in one of the protocol's forms, and writes down what it hears."""

    def __init__(self, model: Any, tokenizer: Any, background: bool, masks: bool) -> None:
        super().__init__(model, tokenizer)
        self.background, self.masks = background, masks
        self.heard: list[Any] = []

    def use_background_worker(self) -> bool:
        return self.background

    def can_mask_logits(self) -> bool:
        return self.masks

    def begin(self, prefix_str: str | None) -> None:
        self.heard.append(prefix_str)

    def feed(self, token: torch.Tensor) -> None:
        self.heard.append(int(token[0][0]))

    def next(self) -> Any:
        self.heard.append("next")
        return None, set()

    def prepare_logit_mask(self) -> bool:
        self.heard.append("prepare")
        return True

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        self.heard.append("mask")
        return logits


@pytest.mark.parametrize(("background", "masks"), [(False, False), (True, False), (False, True), (True, True)])
def test_filters_hear_of_every_token_in_order(make: Make, background: bool, masks: bool) -> None:
    generator = make()
    listener = Tracing(generator.model, generator.tokenizer, background, masks)
    job = ExLlamaV2DynamicJob(generator.tokenizer.encode(PROMPT), 3, gen_settings=GREEDY, filters=[listener])
    generator.enqueue(job)
    while generator.num_remaining_jobs():
        generator.iterate()
    fed = job.sequences[0].sequence_ids.torch()[0, -3:].tolist()
    asked = ["prepare", "mask"] if masks else ["next"]
    assert listener.heard == ["", *[each for token in fed for each in (*asked, token)]]


# Forced text


@pytest.mark.parametrize("settings", [GREEDY, RANDOM])
@pytest.mark.parametrize("as_tokenized", [True, False])
def test_forced_tokens_go_through_in_one_pass(
    make: Make, monkeypatch: pytest.MonkeyPatch, settings: ExLlamaV2Sampler.Settings, as_tokenized: bool
) -> None:
    pattern = "the (quick|lazy) brown fox jumps over (12|34) hello dogs, naïve café"
    plain, jumping = make(jump_forward=False), make()
    if as_tokenized:
        # A model that spells texts in long tokens, as the tokenizer does.
        lengths = [len(piece) for piece in plain.tokenizer.get_id_to_piece_list(True)]
        settings = settings.clone()
        settings.token_bias = 50.0 * torch.tensor(lengths + [0] * (384 - len(lengths)))
    expected = text(plain, filters=[regex(plain, pattern)], gen_settings=settings, seed=3)
    seen = widths(monkeypatch)
    # Also where the model spells it differently, the text is what it would have been.
    assert text(jumping, filters=[regex(jumping, pattern)], gen_settings=settings, seed=3) == expected
    passes = len(seen)
    assert max(row for rows in seen for row in rows) > 2
    seen.clear()
    text(plain, filters=[regex(plain, pattern)], gen_settings=settings, seed=3)
    assert passes < len(seen) / 2 if as_tokenized else passes <= len(seen)


def test_forced_tokens_of_many_jobs(make: Make) -> None:
    generator = make()
    patterns = ["hello there hello", "[0-9]{3}", "(yes|no), thanks"]
    alone = [text(make(jump_forward=False), filters=[regex(generator, pattern)]) for pattern in patterns]
    filters = [[regex(generator, pattern)] for pattern in patterns]
    options: dict[str, Any] = {"gen_settings": GREEDY, "stop_conditions": [EOS], "completion_only": True}
    assert generator.generate([PROMPT] * 3, 60, filters=filters, **options) == alone


def test_an_end_is_preferred_on_demand(make: Make) -> None:
    generator = make()
    result = generator.generate(
        PROMPT,
        20,
        gen_settings=GREEDY,
        stop_conditions=[EOS],
        filters=[regex(generator, "[0-9]{2,9}")],
        filter_prefer_eos=True,
        return_last_results=True,
    )
    assert result["eos_reason"] == "stop_token" and len(result["full_completion"]) == 2


def test_a_complete_option_ends_the_text(make: Make) -> None:
    generator = make()
    select = ExLlamaV2SelectFilter(generator.model, generator.tokenizer, ["yes", "no"])
    result = generator.generate(PROMPT, 20, filters=[select], return_last_results=True)
    assert result["eos_reason"] == "end_filter" and result["full_completion"] in ("yes", "no")


def test_an_error_says_where_the_constraints_part(make: Make) -> None:
    generator = make()
    filters = [regex(generator, "[0-9]{2}-x"), regex(generator, "[0-9]{3}-x")]
    result = generator.generate(PROMPT, 20, gen_settings=GREEDY, filters=filters, return_last_results=True)
    error = result["exception"]
    assert result["eos_reason"] == "dead_end" and isinstance(error, DeadEnd)
    assert error.tail == result["full_completion"] and error.state == "`-x`; [0-9]"
    assert error.filters == ("ExLlamaV2RegexFilter",) * 2


# Budgets


@pytest.mark.parametrize(
    "name", ["address", "any-of-lengths", "array-bounded", "all-of-merge", "any-of-required", "ambiguous-objects"]
)
def test_texts_are_complete_within_their_budget(make: Make, name: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    schema = schema.get("schema", schema)
    generator = make()
    single = ExLlamaV2JSONSchemaFilter(generator.model, generator.tokenizer, schema)
    least = single.grammar.matcher().min_tokens() - 1
    with pytest.raises(BudgetError):
        text(generator, least - 1, filters=[single])
    budgets = [least, least + 1, least + 5, least + 20]
    filters = [[single.clone()] for _ in budgets]
    jobs = [
        ExLlamaV2DynamicJob(
            generator.tokenizer.encode("x"),
            budget,
            gen_settings=RANDOM,
            seed=budget,
            filters=each,
            stop_conditions=[EOS],
        )
        for budget, each in zip(budgets, filters, strict=True)
    ]
    generator.enqueue(jobs)
    while generator.num_remaining_jobs():
        generator.iterate()
    for job in jobs:
        jsonschema.Draft202012Validator(schema).validate(json.loads(job.full_completion))


def test_without_a_budget_texts_may_be_cut_off(make: Make) -> None:
    generator = make()
    with pytest.raises(json.JSONDecodeError):
        schema = {"type": "array", "items": {"type": "string"}, "minItems": 9}
        single = ExLlamaV2JSONSchemaFilter(generator.model, generator.tokenizer, schema)
        json.loads(text(generator, 5, filters=[single], complete_within_budget=False))


# Triggers


def forcing(tokens: list[int]) -> ExLlamaV2Sampler.Settings:
    """Settings that make each of the given tokens most likely in turn, and then leave the choice to the model."""
    settings = ExLlamaV2Sampler.Settings.greedy()
    given = iter(tokens)

    def hook(result: Any) -> None:
        settings.token_bias = bias(next(given, None))

    def bias(token: int | None) -> torch.Tensor | None:
        return None if token is None else torch.zeros(384).index_fill(0, torch.tensor([token]), 1e4)

    settings.token_bias = bias(next(given))
    settings.post_sampling_hooks = [hook]
    return settings


def test_texts_are_free_before_the_trigger(make: Make) -> None:
    generator = make()
    tokens = generator.tokenizer.encode("hello 12</th")[0].tolist() + generator.tokenizer.encode("ink>")[0].tolist()
    options: dict[str, Any] = {"filters": [regex(generator, "[0-9]{3}!")], "trigger": "</think>"}
    written = text(generator, gen_settings=forcing(tokens), **options)
    free, constrained = written.split("</think>")
    assert free == "hello 12" and constrained[:3].isdigit() and constrained[3:] == "!"
    # Without the trigger, nothing is constrained.
    assert text(generator, 12, **options) == text(generator, 12)
    with pytest.raises(GenerationError, match="trigger"):
        text(generator, filters=[regex(generator, "a")], trigger="")


def test_what_a_token_has_beyond_the_trigger_is_constrained(make: Make) -> None:
    generator = make()
    hello, he = (generator.tokenizer.get_id_to_piece_list().index(piece) for piece in ("hello", "he"))
    for pattern, free in (("llo[0-9]", "hello"), ("llx[0-9]", "he"), ("[0-9]{2}", "he")):
        # "hello" is what the model wants; it may come only where the constraint begins with what it has beyond "he".
        settings = forcing([hello, he])
        job = ExLlamaV2DynamicJob(
            generator.tokenizer.encode("x"),
            20,
            gen_settings=settings,
            filters=[regex(generator, pattern)],
            trigger="he",
        )
        generator.enqueue(job)
        while generator.num_remaining_jobs():
            generator.iterate()
        assert regex(generator, pattern).grammar.accepts(job.full_completion.removeprefix("he"))
        first = int(job.sequences[0].sequence_ids.torch()[0, 1])
        assert generator.tokenizer.get_id_to_piece_list()[first] == free


def test_a_trigger_may_be_a_special_token(make: Make) -> None:
    generator = make()
    job = {"filters": [regex(generator, "[0-9]{2}")], "trigger": "<s>", "stop_conditions": [EOS]}
    written = text(generator, gen_settings=forcing([77, 0]), **job)
    assert written.startswith(generator.tokenizer.get_id_to_piece_list()[77]) and written[-2:].isdigit()


def test_banned_strings_take_triggers_back(make: Make) -> None:
    """The constraint waits for the trigger again, and applies after the next one."""
    generator = make()
    he, two, seven = (generator.tokenizer.get_id_to_piece_list().index(piece) for piece in ("he", "2", "7"))
    written = text(
        generator,
        8,
        gen_settings=forcing([two, he, seven, he]),
        filters=[regex(generator, "[0-9]{2}es")],
        trigger="he",
        banned_strings=["2he"],
    )
    assert re.fullmatch("7he[0-9]{2}es", written)


def test_a_constraint_is_complete_although_a_banned_string_may_have_begun(make: Make) -> None:
    assert text(make(), filters=[regex(make(), "yes hello")], stop_conditions=[EOS, "loy"]) == "yes hello"


def test_a_banned_string_ends_otherwise_where_it_has_to_begin(make: Make) -> None:
    """All that the constraint allows begins like the banned string."""
    generator = make()
    written = text(
        generator, filters=[regex(generator, "he(llo|y|n) [0-9]{2}")], banned_strings=["hello", "hey", "n 1"]
    )
    assert re.fullmatch("hen [02-9][0-9]", written)
    results = [
        r
        for r in _all_results(generator, filters=[regex(generator, "he(llo|y)")], banned_strings=["hello", "hey"])
        if r["eos"]
    ]
    assert results[0]["eos_reason"] == "dead_end" and "'hello', 'hey'" in str(results[0]["exception"])


def _all_results(generator: ExLlamaV2DynamicGenerator, **options: Any) -> list[dict[str, Any]]:
    job = ExLlamaV2DynamicJob(generator.tokenizer.encode(PROMPT), 60, gen_settings=GREEDY, **options)
    generator.enqueue(job)
    results = []
    while generator.num_remaining_jobs():
        results += generator.iterate()
    return results


class Forgetful(ExLlamaV2Filter):
    """Allows digits in order; one ``feed`` fails."""

    def __init__(self, generator: ExLlamaV2DynamicGenerator, background: bool) -> None:
        super().__init__(generator.model, generator.tokenizer)
        self.digits = [generator.tokenizer.get_id_to_piece_list().index(str(digit)) for digit in range(10)]
        self.background, self.num_fed, self.seen = background, 0, 0

    def use_background_worker(self) -> bool:
        return self.background

    def begin(self, prefix_str: str | None) -> None:
        self.num_fed = self.seen = 0

    def feed(self, token: torch.Tensor) -> None:
        self.num_fed += 1
        if self.num_fed == 2:
            raise RuntimeError("a lookup failed")
        self.seen += 1

    def next(self) -> Any:
        return {self.digits[self.seen]}, set()


@pytest.mark.parametrize("background", [False, True])
def test_a_filter_that_has_missed_a_token_is_not_asked_again(make: Make, background: bool) -> None:
    generator = make()
    end = _all_results(generator, filters=[Forgetful(generator, background)])[-1]
    assert end["eos_reason"] == "filter_error" and "a lookup failed" in str(end["exception"])
    assert end["full_completion"] in ("0", "01")


# Guesses


class Stubborn:
    """Somebody else's filter: no digits, and it cannot be copied."""

    def __init__(self, generator: ExLlamaV2DynamicGenerator) -> None:
        pieces = generator.tokenizer.get_id_to_piece_list()
        self.allowed = {i for i, piece in enumerate(pieces) if i > 2 and not any(c.isdigit() for c in piece)}

    def begin(self, prefix_str: str) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def next(self) -> Any:
        return self.allowed, set()


@pytest.mark.parametrize("guess", [{"draft": True}, {"use_ngram_draft": True}])
@pytest.mark.parametrize("settings", [GREEDY, RANDOM])
def test_guesses_do_not_change_texts(make: Make, guess: dict[str, Any], settings: ExLlamaV2Sampler.Settings) -> None:
    plain, guessing = make(jump_forward=False), make(**guess)

    def jobs(generator: ExLlamaV2DynamicGenerator) -> list[ExLlamaV2DynamicJob]:
        prompts = [generator.tokenizer.encode(prompt) for prompt in (PROMPT, "yes, yes, yes", "12")]
        more: list[dict[str, Any]] = [
            {},
            {"filters": [regex(generator, "(hello |yes, ){5}[0-9]{4}")]},
            # A filter that cannot be copied has no masks after a draft.
            {"filters": [Stubborn(generator)], "max_new_tokens": 16},
            {"banned_strings": ["e", "o"], "max_new_tokens": 20},
            {"token_healing": True, "stop_conditions": ["a", EOS]},
            {"filters": [regex(generator, "[a-z ]{3}")], "trigger": "e"},
        ]
        made = [
            ExLlamaV2DynamicJob(
                prompts[n % 3],
                gen_settings=settings.clone(),
                seed=n,
                **{"max_new_tokens": 40, "stop_conditions": [EOS], **m},
            )
            for n, m in enumerate(more)
        ]
        pair = [prompts[0], prompts[2]]
        guided = settings.clone()
        guided.cfg_scale = 1.5
        return [*made, ExLlamaV2DynamicJob(pair, 20, gen_settings=guided, seed=9)]

    expected, got = jobs(plain), jobs(guessing)
    counts = []
    for generator, each in ((plain, expected), (guessing, got)):
        generator.enqueue(each)
        rounds = 0
        while generator.num_remaining_jobs():
            generator.iterate()
            rounds += 1
        counts.append(rounds)
    assert [job.full_completion for job in got] == [job.full_completion for job in expected]
    assert [job.new_tokens for job in got] == [job.new_tokens for job in expected]
    if settings is GREEDY and guess.get("draft"):
        assert all(job.accepted_draft_tokens > 2 * job.rejected_draft_tokens for job in got[:2])
        assert counts[1] < 0.6 * counts[0]
    assert not any(page.users for page in guessing.runtime.allocator.pages)


def test_results_count_guesses(make: Make) -> None:
    result = make(draft=True).generate(PROMPT, 20, gen_settings=GREEDY, return_last_results=True)
    assert result["accepted_draft_tokens"] >= 15 and result["rejected_draft_tokens"] >= 0
    assert "accepted_draft_tokens" not in make().generate(PROMPT, 2, return_last_results=True)


@pytest.mark.parametrize("guess", [{"draft": True}, {"use_ngram_draft": True}])
def test_without_draft_tokens_nothing_is_drafted(make: Make, guess: dict[str, bool]) -> None:
    """The draft model does not even prefill the prompt."""
    assert make(num_draft_tokens=1, **guess).runtime.speculation.proposer is not None
    assert make(num_draft_tokens=0, **guess).runtime.speculation.proposer is None


def test_special_tokens_of_a_grammar(make: Make) -> None:
    """They are sampled where the grammar asks for them, and shown only on request; ``</s>`` ends the text."""
    generator = make()
    grammar = ExLlamaV2GrammarFilter(generator.model, generator.tokenizer, 'start: <pad> /[a-z]{3}/ <s> "!" </s>')
    for complete in (False, True):
        plain = text(generator, filters=[grammar], complete_within_budget=complete)
        assert re.fullmatch("[a-z]{3}!", plain)
        shown = text(generator, filters=[grammar], complete_within_budget=complete, decode_special_tokens=True)
        assert shown.replace("<pad>", "") == f"{plain[:3]}<s>!"
