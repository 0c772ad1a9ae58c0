"""JSON Schema: strings, their lengths, escapes, patterns and formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Matcher, Vocabulary, compile_json_schema

Verify = Callable[..., None]
Judge = Callable[..., bool]
Allowed = Callable[[Matcher, int], list[int]]

LENGTHS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"maxLength": 0}, ["", 5, None], ["a", "é"]),
    ({"minLength": 1}, ["a", "é", "🙂", "\n", [1]], [""]),
    ({"minLength": 2, "maxLength": 3}, ["ab", "abc", "éé", "🙂🙂🙂", '"\\'], ["", "a", "🙂", "abcd", "🙂🙂🙂🙂"]),
    ({"minLength": 2, "maxLength": 2}, ["\x00\x01", "é🙂"], ["a", "abc"]),
    ({"maxLength": 2.0}, ["ab"], ["abc"]),
    ({"minLength": 300, "maxLength": 301}, ["x" * 300, "é" * 301], ["x" * 299, "x" * 302]),
    ({"maxLength": 10**6}, ["", "x" * 1000], []),
    ({"type": ["string", "null"], "minLength": 2**60}, [None], ["", "x" * 100]),
    ({"allOf": [{"minLength": 2}, {"maxLength": 4}, {"minLength": 3}]}, ["abc", "abcd"], ["ab", "abcde"]),
]


@pytest.mark.parametrize("schema, yes, no", LENGTHS, ids=lambda value: str(value)[:40])
def test_lengths(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


ESCAPES = [
    (rb'"\u0041"', 1),
    (rb'"\n\t\r\b\f\/\\\""', 8),
    (rb'"\ud83d\ude00"', 1),
    (rb'"\uD83D\uDE00\u00e9\uFFFF"', 3),
    ('"🙂é"'.encode(), 2),
    (b'"\x7f"', 1),
    ('"\u2028\ufeff"'.encode(), 2),
    (rb'"\u0000\u001f"', 2),
    (rb'"\ud7ff\ue000"', 2),
    ('"\U0010ffff\ud7ff"'.encode(), 2),
]


@pytest.mark.parametrize("text, length", ESCAPES, ids=str)
def test_lengths_count_unescaped_characters(text: bytes, length: int, judge: Judge) -> None:
    assert len(json.loads(text)) == length
    assert judge({"type": "string"}, text)
    assert judge({"minLength": length, "maxLength": length}, text)
    assert not judge({"minLength": length + 1}, text)
    assert not judge({"maxLength": length - 1}, text)


NO_STRINGS = [
    rb'"\x41"',
    rb'"\u12"',
    rb'"\u00g0"',
    rb'"\ud83d"',
    rb'"\ude00"',
    rb'"\ude00\ud83d"',
    rb'"\ud83d\u0041"',
    rb'"\ud83dx"',
    rb'"\ud83d\ud83d\ude00"',
    rb'"\U0041"',
    rb'"\'"',
    b'"\x00"',
    b'"\n"',
    b'"\x1f"',
    b'"\xff"',
    b'"\xc0\x80"',
    b'"\xc3"',
    b'"\x80"',
    b'"\xe0\x80\x80"',
    b'"\xed\xa0\x80"',
    b'"\xf0\x80\x80\x80"',
    b'"\xf4\x90\x80\x80"',
    b'"\xf5\x80\x80\x80"',
    b'"abc',
    b'"a"b"',
    b"abc",
]


@pytest.mark.parametrize("text", NO_STRINGS, ids=str)
@pytest.mark.parametrize("schema", [{}, {"type": "string", "minLength": 1}, {"pattern": "."}], ids=str)
def test_texts_that_are_no_json_strings(schema: Any, text: bytes, judge: Judge) -> None:
    assert not judge(schema, text)


def test_half_a_pair_of_surrogates_wants_the_other(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    matcher = compile_json_schema({"type": "string", "maxLength": 1}, byte_vocab).matcher()
    assert matcher.accept_bytes(rb'"\ud83d')
    assert allowed(matcher, 257) == [ord("\\")]
    assert matcher.accept_bytes(rb"\u")
    assert bytes(allowed(matcher, 257)) == b"Dd"
    assert matcher.accept_bytes(b"d")
    assert bytes(allowed(matcher, 257)) == b"CDEFcdef"
    assert matcher.accept_bytes(b"e00")
    assert bytes(allowed(matcher, 257)) == b'"'


def test_a_full_string_only_closes(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    matcher = compile_json_schema({"type": "string", "maxLength": 3}, byte_vocab).matcher()
    assert matcher.accept_bytes('"é'.encode() + rb"\n" + "🙂".encode())
    assert bytes(allowed(matcher, 257)) == b'"'


def test_a_fragment_is_allowed_only_where_its_character_fits(allowed: Allowed) -> None:
    vocabulary = Vocabulary.from_tokens([b"", b'"', b"a", b"aa", b"\xf0\x9f", b"a\xf0", b"\x99\x82", b'\x99\x82"'], [0])
    matcher = compile_json_schema({"type": "string", "maxLength": 1}, vocabulary).matcher()
    assert matcher.accept_bytes(b'"')
    assert allowed(matcher, 8) == [1, 2, 4]
    assert matcher.accept(4)
    assert allowed(matcher, 8) == [6, 7]


PATTERNS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"pattern": "^a$"}, ["a", 1], ["", "aa", "b"]),
    ({"pattern": "a"}, ["a", "xa", "ax", "\na\n"], ["", "b", "A"]),
    ({"pattern": "a", "maxLength": 2}, ["a", "xa", "ax"], ["xy", "xya", "x"]),
    ({"pattern": "^[a-z]{2,4}$", "minLength": 3}, ["abc", "abcd"], ["ab", "abcde", "aBc"]),
    ({"pattern": "^(foo|bar)+$"}, ["foo", "barfoo"], ["", "fo", "foob"]),
    ({"pattern": r"^\d{3}-\d{2}$"}, ["123-45"], ["12-345", "123-456", "abc-de"]),
    ({"pattern": r'^"\\\n$'}, ['"\\\n'], ['"', '"\\']),
    ({"pattern": "^é🙂?$"}, ["é", "é🙂"], ["e", "🙂"]),
    ({"pattern": "^.$"}, ["a", "🙂", '"'], ["", "ab", "\n"]),
    ({"pattern": "^a|b$"}, ["a", "axx", "xxb"], ["xax", "bx"]),
    ({"pattern": ""}, ["", "x"], []),
    ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, ["ab", "xbya"], ["a", "b"]),
    ({"pattern": "^[^,]*$", "enum": ["a,b", "ab"]}, ["ab"], ["a,b"]),
]


@pytest.mark.parametrize("schema, yes, no", PATTERNS, ids=lambda value: str(value)[:40])
def test_patterns(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


def test_the_end_of_a_pattern_is_the_end(judge: Judge) -> None:
    """For Python's ``re`` the line break after ``a`` would be beyond ``$``."""
    assert not judge({"pattern": "^a$"}, "a\n")


def test_a_search_that_must_still_succeed_leaves_no_other_way(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    matcher = compile_json_schema({"type": "string", "pattern": "a", "maxLength": 2}, byte_vocab).matcher()
    assert matcher.accept_bytes(b'"x')
    assert bytes(allowed(matcher, 257)) in (b"a", b"\\a"), "a, or an escape of it"


FORMATS: list[tuple[str, list[str], list[str]]] = [
    ("date", ["2024-02-29", "1999-12-31"], ["2023-02-29", "2024-13-01", "2024-1-1", "24-01-01", "2024-01-01T", ""]),
    ("time", ["12:34:56Z", "00:00:00.5+01:00"], ["12:34", "24:00:00Z", "12:60:00Z", "12:34:56"]),
    ("date-time", ["2024-02-29T12:34:56Z", "2024-01-01T00:00:00.123-05:30"], ["2024-02-30T12:34:56Z", "2024-01-01"]),
    ("email", ["a@b.org", "first.last+tag@example.co.uk"], ["a", "@b", "a@", "a b@c.d"]),
    ("ipv4", ["127.0.0.1", "255.255.255.255"], ["256.0.0.1", "1.2.3", "1.2.3.4.5", "01.2.3.4"]),
    ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456"]),
    ("uri", ["https://example.org/a?b=c#d", "urn:isbn:1"], ["//x", "a b", "/path", ""]),
]


@pytest.mark.parametrize("name, yes, no", FORMATS)
def test_formats(name: str, yes: list[str], no: list[str], judge: Judge) -> None:
    schema = {"format": name}
    assert [text for text in yes if not judge(schema, text)] == []
    assert [text for text in no if judge(schema, text)] == []
    assert judge(schema, 17), "formats are about strings"


def test_formats_meet_lengths_and_patterns(judge: Judge) -> None:
    assert judge({"format": "date", "pattern": "^2024", "maxLength": 10}, "2024-05-06")
    assert not judge({"format": "date", "pattern": "^2024"}, "2023-05-06")
    assert judge({"format": "date", "enum": ["2024-05-06", "today"]}, "2024-05-06")
    assert not judge({"format": "date", "enum": ["2024-05-06", "today"]}, "today")


def test_unknown_formats_are_annotations(byte_vocab: Vocabulary, judge: Judge) -> None:
    grammar = compile_json_schema({"format": "colour"}, byte_vocab)
    assert judge(grammar, "anything")
    assert [entry[:2] for entry in grammar.report.ignored] == [("", "format")]
