"""``constrain.testing``, over compiled grammars and over filters of several kinds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import jsonschema
import pytest
import torch

from constrain import testing
from constrain.engine import CompiledGrammar, Vocabulary, compile_choices, compile_json_schema, compile_regex
from constrain.errors import DeadEnd, FilterError, VocabularyError
from constrain.filters import ExLlamaV2Filter, ExLlamaV2PrefixFilter, ExLlamaV2RegexFilter, ExLlamaV2SelectFilter
from constrain.filters.base import FilterResult

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(params=[testing.byte_vocabulary, testing.small_vocabulary], ids=["bytes", "small"])
def grammar(request: pytest.FixtureRequest) -> CompiledGrammar:
    return compile_json_schema(SCHEMA, request.param())


# ---- Compiled grammars.


def test_a_grammar_accepts_whole_texts(grammar: CompiledGrammar) -> None:
    assert testing.accepts(grammar, '{"name": "Ada", "age": 36}')
    assert grammar.accepts(b'{"age":0,"name":"\xf0\x9f\x99\x82"}')
    for text in ("", "{", '{"name": "Ada"}', '{"name": "Ada", "age": 151}', '{"name": "Ada", "age": 36} ', "x"):
        assert not grammar.accepts(text), text


def test_what_is_no_text_is_in_no_language() -> None:
    grammar = compile_json_schema({"type": "string"}, testing.byte_vocabulary())
    assert not grammar.accepts('"\ud83d"')
    assert not grammar.accepts(b'"\xff"')
    assert compile_regex("", testing.byte_vocabulary()).accepts("")


def test_samples_are_valid_and_differ(grammar: CompiledGrammar) -> None:
    texts = [testing.sample(grammar, seed) for seed in range(40)]
    assert len(set(texts)) == 40
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
        assert grammar.accepts(text)
    assert any('"tags"' in text for text in texts)
    assert testing.sample(grammar, 7) == texts[7]


def test_samples_end_whatever_the_language() -> None:
    endless = compile_json_schema({"type": "array", "minItems": 3000, "items": {}}, testing.byte_vocabulary())
    value = json.loads(testing.sample(endless, max_tokens=50))
    assert len(value) == 3000
    assert re.fullmatch("(ab)*", testing.sample(compile_regex("(ab)*", testing.byte_vocabulary()), 3))


def test_a_vocabulary_that_cannot_spell_the_language() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b""], [1])
    with pytest.raises(VocabularyError, match="lacks bytes"):
        testing.sample(compile_choices(["ab"], vocabulary))


@pytest.mark.parametrize(
    "wanted, expected",
    [
        ('Sure! Here it is: {"name": "Ada", "age": "36"}', {"name": "Ada", "age": 36}),
        ('{"age": 361, "name": 5}', {"age": 36, "name": ""}),
        ("I am sorry.", {"name": "", "age": 0}),
    ],
)
def test_a_model_that_insists_is_kept_inside(grammar: CompiledGrammar, wanted: str, expected: Any) -> None:
    assert json.loads(testing.MockModel(wanted).write(grammar)) == expected


def test_a_model_that_is_right_is_left_alone(grammar: CompiledGrammar) -> None:
    wanted = '{\n  "tags": ["b"],\n  "name": "Zoé 🙂",\n  "age": 36\n}'
    assert testing.MockModel(wanted).write(grammar) == wanted


def test_grammars_need_no_torch() -> None:
    program = (
        "import sys; from constrain import testing; from constrain.engine import compile_regex\n"
        "print(testing.sample(compile_regex('a+', testing.small_vocabulary())), 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"a+ False\n", run.stdout)


# ---- Filters.


class Evens(ExLlamaV2Filter):
    """Even token ids, in the plainest form, to be ended by token 10 alone."""

    def begin(self, prefix_str: str | None = "") -> None:
        pass

    def feed(self, token: torch.Tensor) -> None:
        pass

    def next(self) -> FilterResult:
        return [*range(10, 6144, 2)], {10}


def make(kind: type[ExLlamaV2Filter], *args: Any) -> ExLlamaV2Filter:
    return kind(testing.MockModel(), testing.small_tokenizer(), *args)  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize(
    "constraint, yes, no",
    [
        (make(ExLlamaV2RegexFilter, "[0-9]{3}[a-z]+"), ["123abc"], ["123", "abc", "123abc!"]),
        (make(ExLlamaV2SelectFilter, ["yes", "no way"]), ["yes", "no way"], ["no", "no way!", ""]),
        (make(ExLlamaV2PrefixFilter, "yes"), ["yes", "yes, it is"], ["no", "ye"]),
    ],
    ids=["regex", "select", "prefix"],
)
def test_filters(constraint: ExLlamaV2Filter, yes: list[str], no: list[str]) -> None:
    assert all(testing.accepts(constraint, text) for text in yes)
    assert not any(testing.accepts(constraint, text) for text in no)
    assert testing.accepts(constraint, testing.sample(constraint, 1))
    assert testing.MockModel(yes[-1]).write(constraint) == yes[-1]


def test_a_filter_that_ends_by_a_token_of_text() -> None:
    text = testing.sample(make(Evens), 0)
    tokens = testing.small_tokenizer()
    assert text.endswith(tokens.decode(torch.tensor([10])))


def test_a_filter_that_never_ends_is_reported() -> None:
    class Endless(Evens):
        def next(self) -> FilterResult:
            return [20, 21], set()

    with pytest.raises(FilterError, match="Endless: the text did not end within 2000 tokens"):
        testing.sample(make(Endless), max_tokens=3)


def test_a_filter_that_allows_nothing_is_a_dead_end() -> None:
    class Nothing(Evens):
        def next(self) -> FilterResult:
            return [], set()

    with pytest.raises(DeadEnd, match="Nothing"):
        testing.sample(make(Nothing))
