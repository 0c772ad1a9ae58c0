"""Structural tags in both notations."""

from __future__ import annotations

from typing import Any

import pytest

from constrain.engine import CompiledGrammar, compile_structural_tag
from constrain.errors import StructuralTagError
from constrain.testing import small_vocabulary

CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
SCHEMA = {"type": "json_schema", "json_schema": CITY}
WORD = {"type": "regex", "pattern": "[a-z]+"}


def compiled(format: Any) -> CompiledGrammar:
    return compile_structural_tag({"type": "structural_tag", "format": format}, small_vocabulary())


def check(format: Any, accepted: list[str], refused: list[str]) -> None:
    grammar = compiled(format)
    assert [text for text in accepted if not grammar.accepts(text, special_tokens=True)] == []
    assert [text for text in refused if grammar.accepts(text, special_tokens=True)] == []


def test_triggers_begin_tags_only() -> None:
    tag = {"structures": [{"begin": "<f=w>", "schema": CITY, "end": "</f>"}], "triggers": ["<f="]}
    grammar = compile_structural_tag(tag, small_vocabulary())
    for text in ("", "Hi <b>!", '<f=w>{"city": "Oslo"}</f>', 'a <f=w>{"city":"Rome"}</f> b <f=w>{"city":"Oslo"}</f>'):
        assert grammar.accepts(text), text
    for text in ("a <f=", "<f=v>", '<f=w>{"city": "Bern"}</f>', '<f=w>{"city": "Oslo"}'):
        assert not grammar.accepts(text), text


def test_formats_of_fixed_parts() -> None:
    check({"type": "const_string", "value": 'a"b'}, ['a"b'], ["", "a"])
    check(SCHEMA, ['{"city": "Oslo"}'], ["{}"])
    check(WORD, ["abc"], ["", "a1"])
    check({"type": "grammar", "grammar": 'start: "x" /[0-9]/'}, ["x1"], ["x"])
    check({"type": "grammar", "grammar": 'root ::= "x" [0-9]+'}, ["x12"], ["x"])
    check({"type": "sequence", "elements": [WORD, {"type": "const_string", "value": "!"}]}, ["a!"], ["a", "!"])
    check({"type": "or", "elements": [WORD, {"type": "const_string", "value": "!"}]}, ["a", "!"], ["a!"])


def test_repetition() -> None:
    one = {"type": "const_string", "value": "ab"}
    check({"type": "optional", "content": one}, ["", "ab"], ["abab"])
    check({"type": "star", "content": one}, ["", "ab", "ababab"], ["a"])
    check({"type": "plus", "content": one}, ["ab", "abab"], [""])
    check({"type": "repeat", "min": 1, "max": 2, "content": one}, ["ab", "abab"], ["", "ababab"])
    check({"type": "repeat", "min": 2, "max": -1, "content": one}, ["abab", "ab" * 5], ["ab"])


def test_tags() -> None:
    tag = {"begin": "<t>", "content": {"type": "any_text"}, "end": ["</t>", "<end>"]}
    check({"type": "tag", **tag}, ["<t></t>", "<t>a b<end>"], ["<t>a", "<t></t></t>"])
    words = {"type": "tags_with_separator", "tags": [{"begin": "(", "content": WORD, "end": ")"}], "separator": ", "}
    check(words, ["", "(a)", "(a), (b)"], ["(a)(b)", "(a), "])
    check({**words, "at_least_one": True, "stop_after_first": True}, ["(a)"], ["", "(a), (b)"])


def test_tags_after_text() -> None:
    tags = {"type": "triggered_tags", "triggers": ["<f>"], "tags": [{"begin": "<f>", "content": WORD, "end": "</f>"}]}
    check(tags, ["", "hm", "<f>a</f>", "a <f>b</f> c"], ["<f>", "<f>1</f>"])
    check({**tags, "at_least_one": True}, ["<f>a</f>", "a<f>b</f>c<f>d</f>"], ["", "a"])
    check({**tags, "stop_after_first": True}, ["", "a<f>b</f>"], ["<f>b</f>c"])
    check({**tags, "excludes": ["bad"]}, ["good <f>bad</f>"], ["bad"])


def test_special_tokens_are_tokens() -> None:
    tag = {"type": "tag", "begin": "<|record|>a", "content": WORD, "end": {"type": "token", "token": "<|text|>"}}
    check(tag, ["<|record|>abc<|text|>"], ["<|record|>abc"])
    assert not compiled(tag).accepts("<|record|>abc<|text|>")


def test_thinking_before_an_answer() -> None:
    think = {"type": "tag", "begin": "<think>", "content": {"type": "any_text"}, "end": "</think>"}
    check(
        {"type": "sequence", "elements": [think, SCHEMA]}, ['<think>well</think>{"city": "Oslo"}'], ['{"city": "Oslo"}']
    )


def test_defaults_that_are_written_out_ask_for_nothing() -> None:
    check({"type": "any_text", "excludes": [], "max_tokens": None}, ["abc"], [])
    check({**SCHEMA, "style": "json", "any_order": False, "excludes": []}, ['{"city": "Rome"}'], [])


@pytest.mark.parametrize(
    ("format", "pointer", "reason"),
    [
        ({"type": "mystery"}, "/format/type", "'mystery' is not one of the known formats"),
        ({"type": "any_text", "max_tokens": 3}, "/format/max_tokens", "not known"),
        ({"type": "regex"}, "/format", "'pattern' is missing"),
        ({"type": "regex", "pattern": 1}, "/format/pattern", "must be a text"),
        ({"type": "regex", "pattern": "(a"}, "/format/pattern", "not a regular expression"),
        (
            {"type": "sequence", "elements": [WORD, {"type": "regex", "pattern": r"(a)\1"}]},
            "/format/elements/1/pattern",
            "backref",
        ),
        ({"type": "json_schema", "json_schema": {"type": "strin"}}, "/format/json_schema", "there is no type 'strin'"),
        ({"type": "json_schema", "json_schema": True, "style": "qwen_xml"}, "/format/style", "'qwen_xml' is not known"),
        ({"type": "grammar", "grammar": "start: missing"}, "/format/grammar", "missing"),
        ({"type": "grammar", "grammar": "root ::= ["}, "/format/grammar", "GBNF"),
        ({"type": "token", "token": "<nope>"}, "/format/token", "not one of the special tokens"),
        ({"type": "or", "elements": []}, "/format/elements", "at least one"),
        ({"begin": "a", "content": WORD, "end": 3}, "/format/end", "a text or a token"),
        (
            {"type": "triggered_tags", "triggers": ["<f>"], "tags": [{"begin": "g", "content": WORD, "end": ""}]},
            "/format/triggers",
            "none of the triggers",
        ),
        ("text", "/format", "must be an object|is an object"),
    ],
)
def test_mistakes_have_a_pointer(format: Any, pointer: str, reason: str) -> None:
    with pytest.raises(StructuralTagError, match=reason) as caught:
        compiled(format)
    assert caught.value.pointer == pointer


def test_neither_notation() -> None:
    for tag in ({}, {"structures": []}, {"structures": [], "triggers": ["a"]}, []):
        with pytest.raises(StructuralTagError):
            compile_structural_tag(tag, small_vocabulary())  # type: ignore[arg-type]
