"""Matchers: histories, forced tokens, completions, and what must not break them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Matcher, Vocabulary, allocate_bitmask, compile_choices, compile_json_schema
from constrain.errors import ConstrainError, GrammarError

Allowed = Callable[[Matcher, int], list[int]]
Judge = Callable[..., bool]


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary.from_tokens([b"a", b"b", b"ab", b"c", b"", b"bc"], [4])


# ---- Histories.


def test_memory_is_counted_as_it_grows(bpe_vocab: Vocabulary) -> None:
    small = compile_json_schema({"enum": ["a", "b"]}, bpe_vocab)
    large = compile_json_schema({"enum": [f"{i * i * 7919:x}" for i in range(3000)]}, bpe_vocab)
    assert 500 < small.nbytes < 100_000
    assert large.nbytes > 10 * small.nbytes
    before = small.nbytes
    small.matcher().fill_bitmask(allocate_bitmask(1, bpe_vocab.size))
    assert small.nbytes > before + 1000


def test_a_text_token_by_token(vocabulary: Vocabulary, allowed: Allowed) -> None:
    matcher = compile_choices(["abc", "ab"], vocabulary).matcher()
    assert (matcher.is_accepting(), matcher.is_finished()) == (False, False)
    assert allowed(matcher, 6) == [0, 2]
    assert matcher.accept(2)
    assert (matcher.is_accepting(), matcher.is_finished()) == (True, False)
    assert allowed(matcher, 6) == [3, 4]
    assert not matcher.accept(0)
    assert matcher.accept(3)
    assert (matcher.is_accepting(), matcher.is_finished()) == (True, True)
    assert allowed(matcher, 6) == [4]
    assert matcher.accept(4)
    assert matcher.accepted_tokens == 3
    assert not matcher.accept_bytes(b"")
    assert not matcher.accept_bytes(b"c")


@pytest.mark.parametrize("token", [-1, 4, 6, 2**31 - 1, -(2**31)])
def test_tokens_that_do_not_exist_or_may_not_come(token: int, vocabulary: Vocabulary) -> None:
    matcher = compile_choices(["a"], vocabulary).matcher()
    assert not matcher.accept(token)
    assert matcher.accepted_tokens == 0


def test_no_more_can_be_undone_than_was_done(vocabulary: Vocabulary, allowed: Allowed) -> None:
    matcher = compile_choices(["abc"], vocabulary).matcher()
    assert matcher.accept(0)
    assert matcher.accept_bytes(b"bc")
    with pytest.raises(IndexError, match="cannot roll back 3 tokens: only 2 were accepted"):
        matcher.rollback(3)
    with pytest.raises((TypeError, IndexError, OverflowError)):
        matcher.rollback(-1)
    assert matcher.is_finished()
    matcher.rollback(1)
    assert allowed(matcher, 6) == [1, 5]
    matcher.rollback(0)
    matcher.rollback(1)
    assert allowed(matcher, 6) == [0, 2]


def test_bytes_count_as_one_token(vocabulary: Vocabulary) -> None:
    matcher = compile_choices(["abc"], vocabulary).matcher()
    assert matcher.accept_bytes(b"ab")
    assert not matcher.accept_bytes(b"x")
    assert matcher.accept_bytes(b"")
    assert matcher.accepted_tokens == 2
    matcher.rollback(2)
    assert matcher.accept_bytes(b"abc")


def test_clones_part_ways(vocabulary: Vocabulary, allowed: Allowed) -> None:
    first = compile_choices(["abc", "acb"], vocabulary).matcher()
    assert first.accept(0)
    second = first.clone()
    assert first.accept(1)
    assert second.accept(3)
    assert (allowed(first, 6), allowed(second, 6)) == ([3], [1])
    second.reset()
    assert (allowed(first, 6), allowed(second, 6)) == ([3], [0, 2])
    first.rollback(2)
    assert first.accept(2)


def test_a_matcher_outlives_everything_it_was_made_of(allowed: Allowed) -> None:
    def made() -> Matcher:
        vocabulary = Vocabulary.from_tokens([b"a", b""], [1])
        return compile_choices(["a"], vocabulary).matcher().clone()

    assert allowed(made(), 2) == [0]


def test_long_histories(byte_vocab: Vocabulary) -> None:
    matcher = compile_json_schema({"type": "array", "items": {"type": "integer"}}, byte_vocab).matcher()
    for byte in b"[" + b"1," * 50_000:
        assert matcher.accept(byte)
    matcher.rollback(99_999)
    assert matcher.accept(ord("]"))
    assert matcher.is_finished()


# ---- Forced tokens.


def test_forced_tokens_are_the_only_ones(vocabulary: Vocabulary) -> None:
    matcher = compile_choices(["acb", "acbb"], vocabulary).matcher()
    assert matcher.forced_tokens() == [0, 3, 1]
    assert matcher.forced_tokens(limit=2) == [0, 3]
    assert matcher.forced_tokens(limit=0) == []
    assert matcher.accepted_tokens == 0
    assert matcher.accept_bytes(b"acbb")
    assert matcher.forced_tokens() == [4]
    assert matcher.accept(4)
    assert matcher.forced_tokens() == []


def test_no_token_is_forced_if_two_have_the_same_bytes(vocabulary: Vocabulary) -> None:
    assert compile_choices(["abc"], vocabulary).matcher().forced_tokens() == []


# ---- Completions.


def test_completions_end_where_the_text_is_complete(vocabulary: Vocabulary) -> None:
    matcher = compile_choices(["abc", "ab"], vocabulary).matcher()
    assert matcher.completion() == b"ab"
    assert matcher.accept(2)
    assert matcher.completion() == b""
    assert matcher.accept(4)
    assert matcher.completion() == b""


CLOSED = {"additionalProperties": False}
SCHEMAS: list[Any] = [
    {},
    {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string", "minLength": 3}}},
    {"type": "array", "minItems": 3, "items": {"type": "integer", "minimum": 1000}},
    {"type": "object", "minProperties": 3, "propertyNames": {"pattern": "^[ab]{1,2}$"}},
    {"type": "string", "pattern": "^(ab|c)+d$", "minLength": 6},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 0.001},
    {"enum": ["long alternative", "lo", {"k": [None, 12]}]},
    {"anyOf": [{"const": 7}, {"type": "array", "minItems": 2, "items": {"type": "array", "items": {"$ref": "#"}}}]},
    {"type": "string", "format": "date-time"},
    {"type": "object", "patternProperties": {"^k\\d{3}$": {"const": 1}}, "minProperties": 2, **CLOSED},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(schema)[:40])
@pytest.mark.parametrize("options", [{}, {"property_order": "schema"}, {"whitespace": 2}], ids=str)
def test_every_state_along_a_text_can_be_completed(
    schema: Any, options: Any, byte_vocab: Vocabulary, judge: Judge
) -> None:
    grammar = compile_json_schema(schema, byte_vocab, **options)
    whole = grammar.matcher().completion()
    assert judge(grammar, whole)
    matcher = grammar.matcher()
    for i, byte in enumerate(whole):
        for other in range(256):
            if other != byte and other != ord("\\") and matcher.accept_bytes(bytes([other])):
                text = whole[:i] + bytes([other])
                assert judge(grammar, text + matcher.completion()), text
                matcher.rollback(1)
        rest = matcher.completion()
        assert judge(grammar, whole[:i] + rest)
        assert len(rest) <= len(whole) - i
        assert matcher.accept(byte)


def test_a_completion_inside_an_escape(byte_vocab: Vocabulary, judge: Judge) -> None:
    schema = {"type": "object", "properties": {"a\x01b": {"type": "string", "minLength": 2}}, "required": ["a\x01b"]}
    grammar = compile_json_schema({**schema, "additionalProperties": False}, byte_vocab)
    text = rb'{"a\u0001b": "\ud83d\ude00\n"}'
    for end in range(len(text)):
        matcher = grammar.matcher()
        assert matcher.accept_bytes(text[:end])
        assert judge(grammar, text[:end] + matcher.completion()), text[:end]


# ---- Hostile input.


def test_choices_need_one() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b""], [1])
    with pytest.raises(GrammarError, match="at least one choice"):
        compile_choices([], vocabulary)


HOSTILE: list[Any] = [
    {"type": "string", "minLength": 10**6, "maxLength": 10**6},
    {"type": "string", "maxLength": 10**30},
    {"type": "string", "minLength": 10**30},
    {"type": "array", "minItems": 10**9},
    {"type": "array", "maxItems": 10**30, "items": {"type": "array", "minItems": 10**12}},
    {"type": "object", "minProperties": 10**7},
    {"type": "object", "maxProperties": 10**40},
    {"type": "integer", "minimum": 10**400},
    {"type": "integer", "minimum": -(10**400), "maximum": 10**400},
    {"type": "number", "minimum": 1e308, "exclusiveMinimum": -1e-308},
    {"type": "number", "multipleOf": 1e-300},
    {"type": "integer", "multipleOf": 10**50 + 1},
    {"multipleOf": 999_983, "allOf": [{"multipleOf": 999_979}, {"multipleOf": 999_961}]},
    {"pattern": "(((((((((((a*)*)*)*)*)*)*)*)*)*)*)*$"},
    {"pattern": "^(a|b|ab){50}c$"},
    {"pattern": "^[a-z]{1,100000}$"},
    {"pattern": "(?=.*a)(?=.*b)(?=.*c)(?=.*d)^.{1,50}$"},
    {"pattern": "a.{60}b", "maxLength": 200},
    {"patternProperties": {f"{chr(97 + i)}": {"minimum": i} for i in range(10)}},
    {"patternProperties": {f"a{{{i}}}": {"minimum": i} for i in range(1, 10)}},
    {"allOf": [{"pattern": f"[{chr(97 + i)}]"} for i in range(8)]},
    {"enum": [[["x" * 1000] * 20] * 5]},
    {"enum": [f"{i:x}" * 20 for i in range(20_000)]},
    {"enum": list(range(20_000))},
    {"enum": [{"k": i} for i in range(2_000)]},
    {"anyOf": [{"const": i} for i in range(2_000)]},
    {"anyOf": [{"properties": {f"p{i}": {"const": 1}}, "required": [f"p{i}"], "type": "object"} for i in range(99)]},
    {"oneOf": [{"properties": {f"p{i}": True}, "required": [f"p{i}"]} for i in range(40)]},
    {"not": {"not": {"not": {"anyOf": [{"not": {"type": "string"}}, {"minLength": 3}]}}}},
    {"allOf": [{"anyOf": [{"type": "string"}, {"minimum": i}]} for i in range(30)]},
    {"properties": {f"p{i}": {"$ref": "#"} for i in range(200)}, "required": []},
    {"properties": {"\x00": {}, "a" * 100_000: {"type": "null"}}, "required": ["a" * 100_000], "type": "object"},
    {"required": [f"r{i}" for i in range(3_000)], "type": "object"},
    {"items": [{"type": "null"}] * 5_000, "type": "array", "minItems": 5_000},
    {"$ref": "#/properties/a", "properties": {"a": {"$ref": "#/properties/b"}, "b": {"items": {"$ref": "#"}}}},
    {"title": "\x00\x1f\x7f\u2028", "x": [[[]]] * 100, "default": {"$ref": 5, "type": 17}},
]  # fmt: skip


@pytest.mark.parametrize("schema", HOSTILE, ids=[f"{i}-{str(schema)[:30]}" for i, schema in enumerate(HOSTILE)])
def test_hostile_schemas_work_or_are_refused(schema: Any, byte_vocab: Vocabulary, allowed: Allowed) -> None:
    """Nothing crashes, and what compiles has no dead end."""
    try:
        grammar = compile_json_schema(schema, byte_vocab)
        matcher = grammar.matcher()
        for step in itertools.islice(itertools.cycle(range(7)), 60):
            tokens = allowed(matcher, 257)
            assert tokens
            if not matcher.accept(tokens[step % len(tokens)]):
                pytest.fail("an allowed token was refused")
    except ConstrainError:
        return


def test_deep_texts(byte_vocab: Vocabulary) -> None:
    matcher = compile_json_schema({}, byte_vocab).matcher()
    with pytest.raises(ConstrainError, match="max_stack_depth"):
        matcher.accept_bytes(b"[" * 1_000_000)
    assert matcher.accept_bytes(b'{"a":' * 5_000)
    assert matcher.completion() == b"0" + b"}" * 5_000
    assert matcher.accept_bytes(b"null" + b"}" * 5_000)
    assert matcher.is_finished()


def test_large_documents(byte_vocab: Vocabulary, judge: Judge) -> None:
    rows = [{"id": i, "name": f"name {i}", "tags": ["a", "b"], "ok": i % 2 == 0, "x": i / 7} for i in range(2_000)]
    schema = {
        "type": "array",
        "items": {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0}, "tags": {"maxItems": 2}}},
    }
    grammar = compile_json_schema(schema, byte_vocab)
    assert judge(grammar, rows)
    assert judge(grammar, json.dumps(rows, indent=2).encode())
    assert not judge(grammar, [*rows, {"id": -1}])
