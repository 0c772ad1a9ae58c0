"""The grammar and the back end, driven as vLLM's scheduler does; vLLM itself is not needed."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from constrain_vllm.backend import KINDS, ConstrainBackend, model_vocabulary
from constrain_vllm.grammar import ConstrainGrammar
from transformers import AutoTokenizer

from constrain.demo import model_dir
from constrain.engine.bitmask import unpacked
from constrain.errors import GrammarError
from constrain.integrations.serving import ConstraintKind
from constrain.testing import backends

#: Logits of the model, and words of a mask.
WIDTH = json.loads((model_dir() / "config.json").read_text())["vocab_size"]
WORDS = (WIDTH + 31) // 32
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}

PERSON_TAG = {"structures": [{"begin": "<p>", "schema": PERSON, "end": "</p>"}], "triggers": ["<p>"]}
PERSONS = ('{"name":"Ada","age":36}', '{"name": "Ada",\n"age":36}', '{"age":36,"name":"Ada"}')


@dataclass
class Request:
    """The part of vLLM's request that the plugin reads."""

    max_tokens: int
    num_prompt_tokens: int = 5
    output: list[int] = field(default_factory=list)

    @property
    def num_output_tokens(self) -> int:
        return len(self.output)


def configured(**options: bool) -> Any:
    """vLLM's configuration of the built-in model."""
    options = {"disable_any_whitespace": False, "disable_additional_properties": False, **options}
    model = SimpleNamespace(
        try_get_generation_config=lambda: {"eos_token_id": [2]}, hf_text_config=SimpleNamespace(eos_token_id=2)
    )
    return SimpleNamespace(structured_outputs_config=SimpleNamespace(**options), model_config=model)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(model_dir())


@pytest.fixture(scope="module")
def backend(tokenizer: Any) -> ConstrainBackend:
    return ConstrainBackend(configured(), tokenizer, vocab_size=WIDTH)


def compiled(backend: ConstrainBackend, kind: str, text: str, stop_ids: set[int] | None = None) -> ConstrainGrammar:
    name = next(name for name, value in KINDS.items() if value == kind)
    return backend.compile_grammar(SimpleNamespace(name=name), text, stop_ids)


def allowed(grammar: ConstrainGrammar) -> set[int]:
    bits = torch.full((3, WORDS), -1, dtype=torch.int32)
    grammar.fill_bitmask(bits, 1)
    assert (bits[[0, 2]] == -1).all()
    return set(unpacked(bits[1].numpy()).tolist())


class VLLMOutput(backends.Output):
    """A request, whose tokens are sampled one by one."""

    def __init__(self, grammar: ConstrainGrammar, request: Request) -> None:
        self.grammar, self.request = grammar, request

    def allowed(self) -> set[int]:
        return allowed(self.grammar)

    def accept(self, token: int) -> bool:
        self.request.output.append(token)
        accepted = self.grammar.accept_tokens("r", [token])
        if not accepted:
            self.request.output.pop()
        return accepted

    def is_terminated(self) -> bool:
        return self.grammar.is_terminated()

    def rollback(self, count: int) -> None:
        self.grammar.rollback(count)

    def valid_prefix(self, tokens: list[int]) -> list[int]:
        return self.grammar.validate_tokens(tokens)


class VLLMBackend(backends.Backend):
    abilities = ("refuse", "end", "budget", "rollback", "drafts")

    def __init__(self, backend: ConstrainBackend) -> None:
        self.backend, self.vocabulary = backend, backend._vocabulary

    def start(self, kind: ConstraintKind, text: str, max_tokens: int | None = None) -> VLLMOutput:
        grammar, request = compiled(self.backend, kind, text), Request(max_tokens or 0)
        if max_tokens is not None:
            grammar.begin(request, max_model_len=1000)
        return VLLMOutput(grammar, request)


@pytest.mark.parametrize(
    "check", [c for c, ability in backends.CHECKS if not ability or ability in VLLMBackend.abilities]
)
def test_the_back_end_conforms(backend: ConstrainBackend, check: backends.Check) -> None:
    check(VLLMBackend(backend))


def run_with_drafts(grammar: ConstrainGrammar, request: Request, choose: Any, rng: random.Random) -> None:
    """Generate as vLLM does with drafts: masks for each position of a draft, then a rollback, then what was sampled."""
    bits = torch.full((4, WORDS), -1, dtype=torch.int32)
    while not grammar.is_terminated() and request.num_output_tokens < request.max_tokens:
        draft = grammar.validate_tokens([rng.choice(sorted(allowed(grammar))), rng.randrange(WIDTH), 7])
        tried = 0
        for position, token in enumerate([*draft, None]):
            bits[position].fill_(-1)
            if not grammar.is_terminated():
                grammar.fill_bitmask(bits, position)
            if token is not None and grammar.accept_tokens("r", [token]):
                tried += 1
        grammar.rollback(tried)
        sampled = []
        for position in range(len(draft) + 1):
            sampled.append(choose(unpacked(bits[position].numpy())))
            if position == len(draft) or sampled[-1] != draft[position]:
                break
        sampled = sampled[: request.max_tokens - request.num_output_tokens]
        if 2 in sampled:
            sampled = sampled[: sampled.index(2) + 1]
        request.output += sampled
        assert grammar.accept_tokens("r", sampled)


@pytest.mark.parametrize("max_tokens", [11, 12, 17, 30])
@pytest.mark.parametrize("seed", range(4))
def test_outputs_with_drafts_are_complete_within_max_tokens(
    backend: ConstrainBackend, tokenizer: Any, max_tokens: int, seed: int
) -> None:
    rng, grammar, request = random.Random(seed), compiled(backend, "json", json.dumps(PERSON)), Request(max_tokens)
    grammar.begin(request, max_model_len=1000)
    run_with_drafts(grammar, request, lambda tokens: int(rng.choice(tokens)), rng)
    assert grammar.is_terminated()
    assert json.loads(tokenizer.decode(request.output, skip_special_tokens=True)).keys() == {"name", "age"}


def test_thoughts_count_against_max_tokens(backend: ConstrainBackend) -> None:
    """vLLM feeds the grammar only what follows the thoughts."""
    grammar, request = compiled(backend, "regex", "[0-9]+"), Request(max_tokens=10)
    grammar.begin(request, max_model_len=1000)
    request.output = [7] * 7
    for _ in range(2):
        digit = max(allowed(grammar))
        request.output.append(digit)
        assert grammar.accept_tokens("r", [digit])
    assert allowed(grammar) == {2}


def test_thoughts_of_a_draft_count_before_they_are_output(backend: ConstrainBackend) -> None:
    """vLLM computes masks for what follows the end of the thoughts in a draft; the output grows when it is accepted."""
    grammar, request = compiled(backend, "regex", "[0-9]+"), Request(max_tokens=10)
    grammar.begin(request, max_model_len=1000)
    request.output = [7] * 4
    grammar.num_drafted_thoughts = 3
    digit = max(allowed(grammar) - {2})
    assert grammar.accept_tokens("r", [digit]) and grammar.accept_tokens("r", [digit])
    assert allowed(grammar) == {2}
    grammar.rollback(2)
    grammar.num_drafted_thoughts = 0
    request.output += [7] * 3 + [digit]
    assert grammar.accept_tokens("r", [digit]) and allowed(grammar) != {2}
    grammar.num_drafted_thoughts = 3
    grammar.reset()
    assert grammar.num_drafted_thoughts == 0


def test_the_length_of_the_model_is_a_budget(backend: ConstrainBackend) -> None:
    grammar, request = compiled(backend, "regex", "[0-9]+"), Request(max_tokens=100, num_prompt_tokens=30)
    grammar.begin(request, max_model_len=32)
    request.output.append(max(allowed(grammar)))
    assert grammar.accept_tokens("r", request.output)
    assert allowed(grammar) == {2}


def test_a_budget_that_is_too_small_leaves_the_shortest_way(backend: ConstrainBackend) -> None:
    grammar = compiled(backend, "regex", "[0-9]{3}")
    grammar.begin(Request(max_tokens=1), max_model_len=1000)
    assert allowed(grammar)


def test_stop_tokens_end_a_complete_output_only(backend: ConstrainBackend) -> None:
    letter = backend._vocabulary.core
    stop = next(i for i in range(WIDTH) if letter.bytes(i) == b"b")
    grammar = compiled(backend, "regex", "[ab]c?", {stop})
    start = allowed(grammar)
    assert start and stop not in start and 2 not in start
    assert grammar.accept_tokens("r", [next(i for i in start if letter.bytes(i) == b"a")])
    assert stop in allowed(grammar) and 2 not in allowed(grammar)
    assert grammar.accept_tokens("r", [stop]) and grammar.is_terminated()
    grammar.rollback(1)
    assert not grammar.is_terminated() and stop in allowed(grammar)


def test_what_comes_after_the_end_is_ignored(backend: ConstrainBackend) -> None:
    grammar = compiled(backend, "choice", '["a"]')
    (token,) = allowed(grammar)
    assert grammar.accept_tokens("r", [token, 2, 9, 9]) and grammar.is_terminated()
    grammar.reset()
    assert not grammar.is_terminated() and allowed(grammar) == {token}


def test_a_limit_that_is_reached_ends_the_request_only(backend: ConstrainBackend, monkeypatch: Any) -> None:
    """The scheduler ends a request whose tokens are refused; an exception would end the engine."""
    grammar = compiled(backend, "regex", "[0-9]+")

    class Exhausted:
        def __getattr__(self, name: str) -> Any:
            def fail(*args: Any) -> None:
                raise GrammarError("limit max_seconds=10 reached")

            return fail

    monkeypatch.setattr(grammar.state, "_matcher", Exhausted())
    assert allowed(grammar) == {2}
    assert not grammar.accept_tokens("r", [2])
    assert grammar.validate_tokens([5]) == []
    assert "max_seconds" in str(grammar.state.error)


def test_bitmasks_are_as_wide_as_the_logits(backend: ConstrainBackend) -> None:
    bits = backend.allocate_token_bitmask(5)
    assert bits.shape == (5, WORDS) and bits.dtype == torch.int32 and np.all(bits.numpy() == -1)


def test_white_space_can_be_switched_off(tokenizer: Any) -> None:
    backend = ConstrainBackend(configured(disable_any_whitespace=True), tokenizer, WIDTH)
    state = compiled(backend, "json", json.dumps(PERSON)).state
    assert state.grammar.accepts('{"name":"Ada","age":36}') and not state.grammar.accepts('{"name": "Ada","age":36}')
    tag = compiled(backend, "structural_tag", json.dumps(PERSON_TAG)).state.grammar
    assert [tag.accepts(f"<p>{text}</p>") for text in PERSONS] == [True, False, False]


def test_documents_in_tags_are_laid_out_as_documents_are(backend: ConstrainBackend) -> None:
    document = compiled(backend, "json", json.dumps(PERSON)).state.grammar
    tag = compiled(backend, "structural_tag", json.dumps(PERSON_TAG)).state.grammar
    for text in PERSONS:
        assert document.accepts(text) == tag.accepts(f"<p>{text}</p>") == (text != PERSONS[2])


def test_the_generation_config_is_read_once(tokenizer: Any) -> None:
    """vLLM reads it from its file each time, or asks the server of the model for it; each request is checked."""
    reads = []
    model = configured().model_config
    model.try_get_generation_config = lambda: reads.append(True) or {"eos_token_id": [2]}
    first = model_vocabulary(model, tokenizer, WIDTH + 32)
    assert model_vocabulary(model, tokenizer, WIDTH + 32) is first and len(reads) == 1


@pytest.fixture
def closing(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> ConstrainBackend:
    """A back end whose objects are to have no other members than those that are listed; vLLM closes the schemas."""
    for name in ("vllm", "vllm.v1", "vllm.v1.structured_output"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    closed = SimpleNamespace(process_for_additional_properties=lambda schema: {**schema, "additionalProperties": False})
    monkeypatch.setitem(sys.modules, "vllm.v1.structured_output.backend_guidance", closed)
    return ConstrainBackend(configured(disable_additional_properties=True), tokenizer, WIDTH)


def test_additional_properties_can_be_switched_off(closing: ConstrainBackend) -> None:
    schema = {"properties": {"a": {"type": "integer"}}}
    format = {"type": "json_schema", "json_schema": schema}
    for spec, before, after in [
        (schema, "", ""),
        ({"structures": [{"begin": "<p>", "schema": schema, "end": "</p>"}], "triggers": ["<p>"]}, "<p>", "</p>"),
        ({"format": {"begin": "<p>", "content": format, "end": "</p>"}}, "<p>", "</p>"),
        ({"format": {"type": "dispatch", "rules": [["<p>", format]]}}, "<p>", ""),
    ]:
        grammar = compiled(closing, "structural_tag" if before else "json", json.dumps(spec)).state.grammar
        accepted = [grammar.accepts(before + text + after) for text in ('{"a": 1}', '{"a": 1, "b": 2}')]
        assert accepted == [True, False], spec


def test_a_schema_that_is_no_json_is_a_mistake_of_its_request(closing: ConstrainBackend) -> None:
    """vLLM parses it where objects are to have no other members than those that are listed."""
    for kind in ("json", "structural_tag"):
        with pytest.raises(GrammarError, match="the constraint is not JSON"):
            compiled(closing, kind, "{")
