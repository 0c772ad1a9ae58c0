"""One object for a model: what it writes keeps to the constraints, and its limits are said clearly.

The model has random weights, so whatever keeps the form is the constraint's doing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import torch
from pydantic import Field

import constrain
from constrain import LLM
from constrain.engine import GrammarCache
from constrain.errors import (
    ArgumentError,
    DeadEnd,
    ExtractionError,
    GenerationError,
    GrammarError,
    ModelError,
    SchemaError,
)
from constrain.extract import Target
from constrain.filters import ExLlamaV2RegexFilter
from constrain.generator import ExLlamaV2Sampler

GREEDY = ExLlamaV2Sampler.Settings.greedy()


@dataclass
class Person:
    name: Annotated[str, Field(max_length=8)]
    kind: Literal["a", "b"]
    age: Annotated[int, Field(ge=0, le=120)]


def short_prompt(schema: object, text: str) -> str:
    return text + "\n"


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir, prompt=short_prompt)


@pytest.mark.parametrize("seed", range(4))
def test_a_record_is_a_value_of_its_type(llm: LLM, seed: int) -> None:
    result = llm.extract(Person, "hello", settings=ExLlamaV2Sampler.Settings(), seed=seed)
    assert isinstance(result.value, Person)
    assert result.json == {"name": result.value.name, "kind": result.value.kind, "age": result.value.age}
    assert re.fullmatch(r'\{"name": ?".*", ?"kind": ?"[ab]", ?"age": ?\d+\}', result.text)
    assert result.finish_reason == "stop"
    assert llm.tokenizer.decode(torch.tensor(result.tokens)) == result.text


@pytest.mark.parametrize("seed", range(3))
def test_fields_may_be_taken_from_the_document(llm: LLM, seed: int) -> None:
    quote = {"type": "string", "minLength": 3, "maxLength": 12, "x-verbatim": {"source": "text"}}
    text = 'He said "hello there",\nand left.'
    found = llm.extract(quote, text, settings=ExLlamaV2Sampler.Settings(), seed=seed).value
    assert found in text and 3 <= len(found) <= 12


def test_a_dict_gives_json(llm: LLM) -> None:
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}
    result = llm.extract(schema, "hello")
    assert result.value == result.json
    assert len(result.value) == 2


def test_a_target_is_taken(llm: LLM) -> None:
    assert llm.extract(Target.of(Literal["x", "y"]), "hello").value in ("x", "y")


def test_constraints_hold(llm: LLM) -> None:
    assert re.fullmatch(r"[0-9]{2}:[0-9]{2}", llm.generate("hello", regex=r"[0-9]{2}:[0-9]{2}").text)
    assert llm.generate("hello", choices=["yes", "no"]).text in ("yes", "no")
    assert llm.generate("hello", grammar='start: "a" "b"~2').text == "abb"
    assert llm.generate("hello", grammar='start: "a" @b', grammars={"b": 'start: "b"~2'}).text == "abb"
    assert llm.generate("hello", prefix="The ", max_new_tokens=10).text.startswith("The ")
    assert llm.generate("hello", json_schema=bool).text in ("true", "false")
    assert json.loads(llm.generate("hello", json_schema={"const": [1]}).text) == [1]


def test_constraints_hold_together(llm: LLM) -> None:
    digits = ExLlamaV2RegexFilter(llm.model, llm.tokenizer, "[0-4]+")
    text = llm.generate("hello", regex="[3-9]{3}", prefix="34", filters=[digits]).text
    assert re.fullmatch("34[34]", text)


def test_constraints_that_exclude_each_other(llm: LLM) -> None:
    with pytest.raises(DeadEnd):
        llm.generate("hello", regex="a+", prefix="b")


def test_a_seed_makes_the_draw_reproducible(llm: LLM) -> None:
    texts = {llm.generate("hello", max_new_tokens=12, seed=7).text for _ in range(3)}
    others = {llm.generate("hello", max_new_tokens=12, seed=seed).text for seed in range(5)}
    assert len(texts) == 1
    assert len(others) > 1


def test_where_the_tokens_run_out(llm: LLM) -> None:
    cut = llm.generate("hello", regex="a{50}", max_new_tokens=5)
    assert (cut.finish_reason, len(cut.tokens)) == ("length", 5)
    assert llm.generate("hello", regex="ab", max_new_tokens=50).finish_reason == "stop"


def test_an_incomplete_record_is_an_error_that_keeps_the_text(llm: LLM) -> None:
    with pytest.raises(ExtractionError, match="not complete after 6 tokens; raise max_new_tokens") as caught:
        llm.extract(Person, "hello", max_new_tokens=6)
    assert caught.value.text.startswith('{"name"')
    assert caught.value.finish_reason == "length"


def test_a_record_for_which_the_context_is_too_small(tiny_dir: Path) -> None:
    llm = constrain.load(tiny_dir, max_seq_len=16, prompt=short_prompt)
    with pytest.raises(ExtractionError, match="the context of the model is full"):
        llm.extract(Person, "hello")


def test_a_record_that_is_complete_with_the_last_token_is_no_error(llm: LLM) -> None:
    needed = len(llm.extract(Person, "hello").tokens)
    result = llm.extract(Person, "hello", max_new_tokens=needed)
    assert (result.finish_reason, len(result.tokens)) == ("length", needed)


def test_a_text_that_is_too_long_is_named(llm: LLM) -> None:
    with pytest.raises(GenerationError, match=r"the prompt has \d+ tokens and the context 256"):
        llm.generate("hello " * 300)
    with pytest.raises(ExtractionError, match="leaves no room for an answer") as caught:
        llm.extract(Person, "hello " * 300)
    assert caught.value.finish_reason is None


def test_the_answer_gets_what_the_context_has_left(tiny_dir: Path) -> None:
    llm = constrain.load(tiny_dir, max_seq_len=32)
    answer = llm.generate("hello", regex="a{100}", max_new_tokens=100)
    assert answer.finish_reason == "length"
    assert 20 < len(answer.tokens) < 32


def test_no_tokens_at_all_is_refused(llm: LLM) -> None:
    with pytest.raises(ArgumentError, match="max_new_tokens must be a whole number of at least 1, not 0"):
        llm.generate("hello", max_new_tokens=0)


def test_choose_returns_an_option(llm: LLM) -> None:
    options = ["one", "one hundred", "zwölf"]
    assert llm.choose("hello", options) in options
    assert llm.choose("hello", ["only"]) == "only"


@pytest.mark.parametrize("options", [[], "yes"])
def test_options_are_a_list_that_is_not_empty(options: Sequence[str], llm: LLM) -> None:
    with pytest.raises(GrammarError, match=r"choice|options must be a list"):
        llm.choose("hello", options)


def test_grammars_without_the_one_that_refers_to_them_are_refused(llm: LLM) -> None:
    with pytest.raises(GrammarError, match="grammar, which is missing"):
        llm.generate("hello", grammars={"b": 'start: "b"'})


def test_a_schema_that_cannot_be_used_is_named(llm: LLM) -> None:
    with pytest.raises(SchemaError) as caught:
        llm.extract({"properties": {"a": {"type": "strin"}}}, "hello")
    assert caught.value.pointer == "/properties/a/type"


def test_schemas_compile_once(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = GrammarCache()
    monkeypatch.setattr("constrain.extract.extractor.grammar_cache", cache)
    for n in (0, 1, 0, 1):
        assert llm.extract({"const": n}, "hello").value == n
    assert len(cache) == 2


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=str(tmp_path)):
        constrain.load(tmp_path)
