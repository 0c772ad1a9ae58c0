"""Explanations: the place where a text leaves its language, and what was expected there."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from constrain.engine import (
    CompiledGrammar,
    Vocabulary,
    compile_choices,
    compile_json_schema,
    compile_lark,
    compile_regex,
)
from constrain.engine.explain.place import json_place

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "age": {"type": "integer"},
        "kind": {"enum": ["circle", "circus", "square"]},
        "tags": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammar(byte_vocab: Vocabulary) -> CompiledGrammar:
    return compile_json_schema(SCHEMA, byte_vocab)


# ---- Texts.


def test_an_accepted_text_needs_no_explanation(grammar: CompiledGrammar) -> None:
    text = '{"name": "é", "age": 1}'
    explanation = grammar.explain(text)
    assert explanation.accepted
    assert (explanation.byte_offset, explanation.offset, explanation.expected) == (24, 23, ())
    assert str(explanation) == "accepted"


@pytest.mark.parametrize(
    "text, at, pointer, found, expected",
    [
        ("", (1, 1), "", "the end of the text", {"`{`"}),
        ("x", (1, 1), "", "`x`", {"`{`"}),
        ('{"nme": 1}', (1, 4), "", "`m`", {'`ame":`'}),
        ('{"name": "Ada"}', (1, 15), "/name", "`}`", {"`,`"}),
        ('{"age": "1"}', (1, 9), "/age", '`"`', {"`-`", "[0-9]", "white space"}),
        ('{"kind": "cir', (1, 14), "/kind", "the end of the text", {'`cle",`', '`cus",`'}),
        ('{"name": "a\tb"}', (1, 12), "/name", "`\\t`", {"any character but control characters"}),
        ('{"age":\n1, "name": "", "b": 2', (2, 17), "", "`b`", {'`kind":`', '`tags":`'}),
        ('{"age": 1, "name": ""}!', (1, 23), "", "`!`", {"the end of the text"}),
        ('{"tags": [{}, {"a/b~": [0, {"c": tru}]}]}', (1, 37), "/tags/1/a~1b~0/1/c", "`}`", {"`e`"}),
        ('{"name": "Zoé🙂?"}', (1, 15), "/name", "`?`", {'`",`'}),
    ],
)
def test_position_and_expectation(
    grammar: CompiledGrammar, text: str, at: tuple[int, int], pointer: str, found: str, expected: set[str]
) -> None:
    explanation = grammar.explain(text)
    assert not explanation.accepted
    assert (explanation.line, explanation.column) == at
    assert explanation.pointer == pointer
    assert explanation.found == found
    assert set(explanation.expected) == expected
    assert explanation.offset == len(text.encode()[: explanation.byte_offset].decode())


def test_the_caret_stands_below_the_place(grammar: CompiledGrammar) -> None:
    shown = str(grammar.explain('{\n  "age": 12,\n  "nome": ""\n}')).split("\n")
    assert shown == [
        'line 3, column 5 (byte 19): found `o`, expected `ame":`, at the root',
        '  "nome": ""',
        "    ^",
    ]


def test_long_lines_are_cut_around_the_place(byte_vocab: Vocabulary) -> None:
    text = '"' + "a" * 500 + "\t" + "b" * 500 + '"'
    _, line, caret = str(compile_json_schema({}, byte_vocab).explain(text)).split("\n")
    assert len(line) < 130
    assert line[caret.index("^") - 1 :].startswith("a b")


def test_surrogates_are_no_text_and_can_be_printed(grammar: CompiledGrammar) -> None:
    explanation = grammar.explain('{"name": "\ud83d"')
    assert not explanation.accepted
    assert str(explanation).encode()


def test_words_are_listed(byte_vocab: Vocabulary) -> None:
    assert set(compile_choices(["yes", "no", "né"], byte_vocab).explain("x").expected) == {"`yes`", "`no`", "`né`"}
    assert compile_choices(["né", "nö"], byte_vocab).explain("nè").expected == ("`é`", "`ö`")
    assert compile_regex("[0-9]{4}-[a-z]+", byte_vocab).explain("1234-5").expected == ("[a-z]",)
    assert compile_regex("(ab)*", byte_vocab).explain("ab.").expected == ("`ab`", "the end of the text")
    assert compile_regex(r"[^\n]", byte_vocab).explain("").expected == ("any character",)
    assert compile_regex("[^x]+y", byte_vocab).explain("x").expected == ("any character but `x`",)
    assert compile_lark('start: ("a" | "b") " " /[α-ω]/', byte_vocab).explain("a x").expected == (
        "a character beyond ASCII",
    )


def test_other_languages_have_no_pointers(byte_vocab: Vocabulary) -> None:
    assert compile_regex(r"\{.*", byte_vocab).explain('["a"]').pointer is None


def test_the_place_is_the_longest_viable_beginning(grammar: CompiledGrammar) -> None:
    rng = random.Random(0)
    text = json.dumps({"name": "éé", "tags": [{"a": [1, 2]}, {}], "kind": "circus", "age": 5}, ensure_ascii=False)
    for _ in range(300):
        at = rng.randrange(len(text))
        changed = text[:at] + rng.choice(['"', "}", "0", "é", "", "]", ","]) + text[at + 1 :]
        explanation = grammar.explain(changed)
        content, matcher = changed.encode(), grammar.matcher()
        viable = next((i for i, char in enumerate(changed) if not matcher.accept_bytes(char.encode())), len(changed))
        taken = len(changed[:viable].encode())
        assert explanation.byte_offset == taken
        assert explanation.accepted == grammar.accepts(changed)
        for literal in explanation.expected:
            if literal[0] == "`":
                again = grammar.matcher()
                assert again.accept_bytes(content[:taken] + literal[1:-1].encode())


@pytest.mark.parametrize(
    "text, pointer",
    [
        ("", ""),
        ("[1, 2", "/1"),
        ('{"a": {"b\\n": [[], [{}, "x', "/a/b\n/1/1"),
        ('{"a": 1', "/a"),
        ('{"a": 1,', ""),
        ('{"a": 1, "b', ""),
        ('{"a": "\\"}]', "/a"),
        ('{"a": {}, "": [', "//0"),
    ],
)
def test_pointers_into_beginnings_of_documents(text: str, pointer: str) -> None:
    assert json_place(text) == pointer


# ---- Tokens.


@pytest.fixture(scope="module")
def words() -> Vocabulary:
    """Tokens of several bytes, a special one (5), one without text (6), and the end (7)."""
    return Vocabulary.from_tokens([b"yes", b"ye", b"yard", b"no", b"!", b"<tool>", b"", b"</s>"], [7], [5])


@pytest.mark.parametrize(
    "token, allowed, fits, reason",
    [
        (0, True, 3, "token 0 `yes` is allowed"),
        (1, False, 2, "token 1 `ye` is refused: no tokens of the vocabulary complete the text after it"),
        (2, False, 1, "token 2 `yard` is refused: after its `y` expected `es`"),
        (4, False, 0, "token 4 `!` is refused: expected `no` or `yes`"),
        (5, False, 0, "token 5 <tool> is refused: expected `no` or `yes`"),
        (6, False, 0, "token 6 is no text, so no constraint allows it"),
        (7, False, 0, "token 7 </s> ends the text, which is not complete: expected `no` or `yes`"),
        (8, False, 0, "there is no token 8: the vocabulary has 8"),
        (-1, False, 0, "there is no token -1: the vocabulary has 8"),
    ],
)
def test_tokens(words: Vocabulary, token: int, allowed: bool, fits: int, reason: str) -> None:
    explanation = compile_choices(["yes", "no"], words).matcher().explain(token)
    assert (explanation.token, explanation.allowed, explanation.fits) == (token, allowed, fits)
    assert str(explanation) == reason


def test_tokens_after_the_end(words: Vocabulary) -> None:
    matcher = compile_choices(["yes", "no"], words).matcher()
    assert matcher.accept(3)
    assert matcher.accept(7)
    assert str(matcher.explain(0)) == "token 0 `yes` is refused: expected the end of the text"
    assert matcher.explain(7).allowed


def test_explaining_changes_nothing(words: Vocabulary) -> None:
    matcher = compile_choices(["yes", "no"], words).matcher()
    assert matcher.accept_bytes(b"ye")
    for token in range(8):
        matcher.explain(token)
    assert matcher.accepted_tokens == 1
    assert matcher.completion() == b"s"
