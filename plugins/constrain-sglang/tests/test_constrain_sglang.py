"""The back end and its grammars, driven as SGLang's scheduler does."""

from __future__ import annotations

import inspect
import json
import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from constrain_sglang import create, masks
from constrain_sglang.backend import ANY_OBJECT, ConstrainBackend
from constrain_sglang.grammar import ConstrainGrammar
from sglang.srt.constrained import base_grammar_backend as interface
from transformers import AutoTokenizer

from constrain.demo import model_dir
from constrain.engine.bitmask import unpacked
from constrain.errors import ArgumentError
from constrain.integrations.serving import ConstraintKind
from constrain.testing import backends

WIDTH = json.loads((model_dir() / "config.json").read_text())["vocab_size"]
needs_sglang = pytest.mark.skipif(not hasattr(interface, "GRAMMAR_BACKEND_REGISTRY"), reason="SGLang is not installed")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(model_dir())


@pytest.fixture(scope="module")
def backend(tokenizer: Any) -> ConstrainBackend:
    return ConstrainBackend(tokenizer, WIDTH, [2])


def created(tokenizer: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """The back end as SGLang asks for it."""
    serving = {
        "reasoning_parser": None,
        "enable_strict_thinking": False,
        "constrained_json_disable_any_whitespace": False,
        "constrained_json_whitespace_pattern": None,
        "constrained_json_max_whitespace_cnt": None,
    }
    monkeypatch.setattr(create, "get_serving", lambda: SimpleNamespace(**serving | options))
    return create.create_backend(None, tokenizer, WIDTH, {2})


def allowed(grammar: Any) -> set[int]:
    """The tokens that keep their logits, from the mask to the logits as SGLang goes."""
    bits = grammar.allocate_vocab_mask(vocab_size=WIDTH, batch_size=2, device="cpu")
    grammar.fill_vocab_mask(bits, 1)
    logits = torch.zeros(2, WIDTH)
    grammar.apply_vocab_mask(logits=logits, vocab_mask=grammar.move_vocab_mask(bits, "cpu"))
    assert not logits[0].any()
    kept = torch.nonzero(logits[1] == 0).flatten().tolist()
    assert kept == [token for token in unpacked(bits[1].numpy()).tolist() if token < WIDTH]
    return set(kept)


class SGLangOutput(backends.Output):
    def __init__(self, grammar: Any) -> None:
        self.grammar = grammar

    def allowed(self) -> set[int]:
        return allowed(self.grammar)

    def accept(self, token: int) -> bool:
        try:
            self.grammar.accept_token(token)
        except ValueError:
            return False
        return True

    def is_terminated(self) -> bool:
        return bool(self.grammar.is_terminated())

    def rollback(self, count: int) -> None:
        self.grammar.rollback(count)

    def forced_tokens(self) -> list[int]:
        helper = self.grammar.try_jump_forward(None)
        return [] if helper is None else helper[0]

    def copy(self) -> SGLangOutput:
        return SGLangOutput(self.grammar.copy())


class SGLangBackend(backends.Backend):
    abilities = ("refuse", "end", "rollback", "forced", "copy")
    kinds = ("json", "json_object", "regex", "grammar", "structural_tag")

    def __init__(self, backend: ConstrainBackend) -> None:
        self.backend, self.vocabulary = backend, backend.vocabulary

    def start(self, kind: ConstraintKind, text: str, max_tokens: int | None = None) -> SGLangOutput:
        return SGLangOutput(dispatch(self.backend, kind, text))


def dispatch(backend: ConstrainBackend, kind: str, text: str) -> ConstrainGrammar:
    name = {"json_object": "json", "grammar": "ebnf"}.get(kind, kind)
    grammar = getattr(backend, f"dispatch_{name}")(ANY_OBJECT if kind == "json_object" else text)
    if isinstance(grammar, interface.InvalidGrammarObject):
        raise ValueError(grammar.error_message)
    return grammar


@pytest.mark.parametrize(
    "check", [c for c, ability in backends.CHECKS if not ability or ability in SGLangBackend.abilities]
)
def test_the_back_end_conforms(backend: ConstrainBackend, check: backends.Check) -> None:
    check(SGLangBackend(backend))


def test_jump_forward_saves_steps_of_the_model(backend: ConstrainBackend, tokenizer: Any) -> None:
    """The names of members, and what is between them, are appended without the model."""
    schema = {"type": "object", "properties": {"identifier": {"type": "boolean"}}, "required": ["identifier"]}
    grammar = ConstrainBackend(tokenizer, WIDTH, [2], "compact").dispatch_json(
        json.dumps({**schema, "additionalProperties": False})
    )
    rng, output, steps = random.Random(0), list[int](), 0
    while not grammar.is_terminated():
        if helper := grammar.try_jump_forward(tokenizer):
            text, state = grammar.jump_forward_str_state(helper)
            assert text == "" and state == -1
            tokens = helper[0]
        else:
            tokens, steps = [rng.choice(sorted(allowed(grammar)))], steps + 1
        for token in tokens:
            grammar.accept_token(token)
        output += tokens
    assert json.loads(tokenizer.decode(output, skip_special_tokens=True)).keys() == {"identifier"}
    assert steps < len(output) / 2


def test_an_output_is_replaced_by_another_tokenization(backend: ConstrainBackend, tokenizer: Any) -> None:
    grammar = dispatch(backend, "regex", "[a-z]+!")
    letters = [tokenizer.encode(letter, add_special_tokens=False)[0] for letter in "text"]
    whole = tokenizer.encode("text", add_special_tokens=False)
    assert len(whole) < len(letters)
    for token in letters:
        grammar.accept_token(token)
    grammar.jump_and_retokenize(letters, whole, -1)
    assert grammar.state.num_tokens == len(whole)
    grammar.jump_and_retokenize(whole, [*whole, *letters], -1)  # the beginning stays
    assert grammar.state.num_tokens == len(whole) + len(letters)
    grammar.jump_and_retokenize([*whole, *letters], whole, -1)
    assert grammar.state.num_tokens == len(whole)
    with pytest.raises(ValueError, match="is not allowed"):
        grammar.jump_and_retokenize(whole, [2], -1)


def test_a_tree_of_drafts(backend: ConstrainBackend) -> None:
    """SGLang walks drafts in depth: accept, mask, rollback."""
    grammar = dispatch(backend, "regex", "[ab][cd][ef]")
    start = allowed(grammar)

    def walk(depth: int) -> int:
        if grammar.is_terminated():
            return 1
        visited = 0
        for token in sorted(allowed(grammar)):
            grammar.accept_token(token)
            visited += walk(depth + 1)
            grammar.rollback(1)
        return visited

    assert walk(0) >= 8
    assert allowed(grammar) == start


def test_masks_of_several_rows(backend: ConstrainBackend) -> None:
    bits = masks.allocate(40, 3)
    assert bits.shape == (3, 2)
    masks.set_tokens(bits, [1, 33], 1, allowed=True, reset=True)
    masks.set_tokens(bits, [0], 2, allowed=False, reset=False)
    logits = torch.zeros(3, 40)
    masks.apply(logits, bits)
    assert torch.nonzero(logits[1] == 0).flatten().tolist() == [1, 33]
    assert logits[0].eq(0).all() and torch.nonzero(logits[2]).flatten().tolist() == [0]
    ConstrainGrammar.reset_vocab_mask(bits)
    assert bits.eq(-1).all()


def test_white_space_can_be_switched_off(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = created(tokenizer, monkeypatch, constrained_json_disable_any_whitespace=True)
    grammar = dispatch(backend, "json", '{"type": "array", "items": {"const": 1}}').state.grammar
    assert grammar.accepts("[1,1]") and not grammar.accepts("[1, 1]")


def test_options_of_other_back_ends_are_refused(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="--constrained-json-whitespace-pattern"):
        created(tokenizer, monkeypatch, constrained_json_whitespace_pattern=" ?")


CALL = {"begin": "<call>", "end": "</call>"}


@pytest.mark.parametrize(
    "tag",
    [
        {"triggers": ["<call>"], "structures": [CALL | {"schema": None}]},
        {"format": {"type": "tag", **CALL, "content": {"type": "json_schema", "json_schema": None}}},
        {"format": {"type": "sequence", "elements": [{"type": "tag", **CALL, "content": {"type": "json_schema"}}]}},
    ],
)
def test_functions_without_parameters_have_no_schema(backend: ConstrainBackend, tag: dict[str, Any]) -> None:
    grammar = dispatch(backend, "structural_tag", json.dumps(tag)).state.grammar
    assert grammar.accepts("<call>{}</call>") and not grammar.accepts("<call>{</call>")


DEEP = '{"type": "optional", "content": ' * 400 + '{"type": "any_text"}' + "}" * 400


@pytest.mark.parametrize(
    "text",
    ["[", "[]", "1", '{"structures": 1}', '{"format": null}', f'{{"format": {DEEP}}}', '{"format": {"x": "\\ud800"}}'],
)
def test_what_is_no_structural_tag_is_refused(backend: ConstrainBackend, text: str) -> None:
    assert isinstance(backend.dispatch_structural_tag(text), interface.InvalidGrammarObject)


def test_a_tokenizer_without_an_end_of_thoughts(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang warns of it, and goes on without thoughts."""
    detector = SimpleNamespace(get_think_end_token_ids=lambda tokenizer: [])
    parser = SimpleNamespace(ReasoningParser=lambda **_: SimpleNamespace(detector=detector))
    monkeypatch.setitem(sys.modules, "sglang.srt.parser.reasoning_parser", parser)
    wrapper = SimpleNamespace(ReasonerGrammarBackend=None)
    monkeypatch.setitem(sys.modules, "sglang.srt.constrained.reasoner_grammar_backend", wrapper)
    assert type(created(tokenizer, monkeypatch, reasoning_parser="qwen3")) is ConstrainBackend


@needs_sglang
def test_constraints_apply_after_thoughts(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = created(tokenizer, monkeypatch, reasoning_parser="qwen3")
    grammar = backend._init_value_dispatch(("regex", "[0-9]{2}"), True)
    grammar.maybe_init_reasoning(True)
    think_end = tokenizer.encode("</think>", add_special_tokens=False)
    assert len(allowed(grammar)) == WIDTH
    for token in [*tokenizer.encode("well, 3 or 4", add_special_tokens=False), *think_end]:
        grammar.accept_token(token)
    start = allowed(grammar)
    assert {tokenizer.decode([token])[0] for token in start} <= set("0123456789")
    grammar.accept_token(min(start))
    grammar.rollback(2)
    assert len(allowed(grammar)) == WIDTH
    backend.set_cache(("regex", "[0-9]{2}"), grammar.copy())


@needs_sglang
def test_mistakes_are_cached_and_told(backend: ConstrainBackend) -> None:
    grammar = backend._init_value_dispatch(("regex", "(a"), False)
    assert isinstance(grammar, interface.InvalidGrammarObject) and "offset 0" in grammar.error_message


def parameters(owner: type, name: str) -> list[str]:
    return [each for each in inspect.signature(getattr(owner, name)).parameters if each != "self"]


@needs_sglang
def test_the_interface_is_that_of_sglang() -> None:
    for ours, theirs in [
        (ConstrainGrammar, interface.BaseGrammarObject),
        (ConstrainBackend, interface.BaseGrammarBackend),
    ]:
        names = [name for name in vars(ours) if not name.startswith("_") and callable(getattr(theirs, name, None))]
        assert len(names) > 4
        assert {name: parameters(ours, name) for name in names} == {name: parameters(theirs, name) for name in names}
