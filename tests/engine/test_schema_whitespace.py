"""JSON Schema: where documents may have white space, in every policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Matcher, Vocabulary, compile_json_schema
from constrain.errors import GrammarError

Judge = Callable[..., bool]
Allowed = Callable[[Matcher, int], list[int]]

VALUE = {"a": [1, {"b": None}, [], {}], "c": "x"}
COMPACT = b'{"a":[1,{"b":null},[],{}],"c":"x"}'

#: Each text, and the policies that take it.
TEXTS = [
    (COMPACT, "compact single bounded any"),
    (b'{"a": [1, {"b": null}, [], {}], "c": "x"}', "single bounded any"),
    (b'{"a":[1, {"b": null},[], {}],"c": "x"}', "single bounded any"),
    (b'{"a":[1,  {"b":null},[],{}],"c":"x"}', "bounded any"),
    (b'{"a":[1,   {"b":null},[],{}],"c":"x"}', "any"),
    (b'{ "a":[1,{"b":null},[],{}],"c":"x"}', "bounded any"),
    (b'{  "a":[  1,{"b":null  },[  ],{  }],"c":"x"  }', "bounded any"),
    (b'{   "a":[1,{"b":null},[],{}],"c":"x"}', "any"),
    (b'{"a":[1,{"b":null},[],{}],"c":"x" }', "bounded any"),
    (b'{"a":[1,{"b":null},[],{}],"c":"x"   }', "any"),
    (b'{"a":[1,{"b":null},[ ],{ }],"c":"x"}', "bounded any"),
    (b'{"a" :[1,{"b":null},[],{}],"c":"x"}', "any"),
    (b'{"a":[1 ,{"b":null},[],{}],"c":"x"}', "any"),
    (b'{"a":[1,{"b":null},[],{}] ,"c":"x"}', "any"),
    (b'{\n"a":[1,{"b":null},[],{}],\n"c":"x"\n}', "bounded any"),
    (b'{\r\n\t"a":[1,{"b":null},[],{}],\r\n  \t"c":"x"\r\n}', "bounded any"),
    (b"{\n" + b" " * 40 + b'"a":[1,{"b":null},[],{}],"c":"x"}', "bounded any"),
    (b"{\n" + b"\t" * 41 + b'"a":[1,{"b":null},[],{}],"c":"x"}', "any"),
    (b'{\n\n"a":[1,{"b":null},[],{}],"c":"x"}', "any"),
    (b'{\r"a":[1,{"b":null},[],{}],"c":"x"}', "any"),
    (b'{\t"a":[1,{"b":null},[],{}],"c":"x"}', "any"),
    (b'{ \n"a":[1,{"b":null},[],{}],"c":"x"}', "any"),
    (b'{"a":\n[1,{"b":null},[],{}],"c":"x"}', "bounded any"),
    (b" " + COMPACT, ""),
    (COMPACT + b"\n", ""),
    (b'{"a":[1,{"b":null},[],{}],"c":"x"}'.replace(b",", b", ").replace(b":", b": "), "single bounded any"),
    (b'{"a":[1,{"b":nu ll},[],{}],"c":"x"}', ""),
    (b'{"a":[1,{"b":null},[],{}],"c":"x"\xc2\xa0}', ""),
    (b'{"a":[1,{"b":null},[],{}],"c":"x"\x0b}', ""),
    (json.dumps(VALUE, indent=2).encode(), "bounded any"),
    (json.dumps(VALUE, indent="\t").encode(), "bounded any"),
    (json.dumps(VALUE, indent=20).encode(), "any"),
]


@pytest.mark.parametrize("policy", ["compact", "single", "bounded", "any"])
@pytest.mark.parametrize("text, policies", TEXTS, ids=[str(i) for i in range(len(TEXTS))])
@pytest.mark.parametrize(
    "schema", [{}, {"properties": {"a": {"maxItems": 4}}, "maxProperties": 2}], ids=["free", "bound"]
)
def test_policies(schema: Any, text: bytes, policies: str, policy: str, judge: Judge) -> None:
    assert judge(schema, text, whitespace=policy) == (policy in policies.split())


VALUES = [VALUE, [], {}, 1, "x", [[]], [{}], {"a": {}}, {"a": {"b": {"c": []}}}, [[[1, 2], [3]], {"k": [None, True]}]]


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize("width", [0, 1, 2, 4, 16])
def test_indentation_is_exactly_that_of_a_pretty_printer(value: Any, width: int, judge: Judge) -> None:
    text = json.dumps(value, indent=width).encode()
    assert judge({}, text, whitespace=width)
    for other in (json.dumps(value).encode(), json.dumps(value, indent=width + 1).encode()):
        assert judge({}, other, whitespace=width) == (other == text)
    lines = text.split(b"\n")
    for i in range(1, len(lines)):
        for line in (b" " + lines[i], lines[i][1:], b"\n" + lines[i]):
            assert not judge({}, b"\n".join([*lines[:i], line, *lines[i + 1 :]]), whitespace=width)


def test_indentation_leaves_nothing_open(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    """Walking along a pretty-printed text, white space is always the only way on, or none."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2}},
        "required": ["a"],
        "maxProperties": 1,
    }
    matcher = compile_json_schema(schema, byte_vocab, whitespace=3).matcher()
    for byte in json.dumps({"a": [None, None]}, indent=3).encode():
        options = bytes(allowed(matcher, 257))
        assert byte in options
        assert options == bytes([byte]) or byte not in b" \n"
        assert matcher.accept_bytes(bytes([byte]))


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{\n  "a"', b'{\n  "a": [\n    ', b'{\n  "a": [\n    1', b'{\n  "a": {},']
)
def test_indented_texts_can_always_be_completed(text: bytes, byte_vocab: Vocabulary) -> None:
    matcher = compile_json_schema({"type": "object"}, byte_vocab, whitespace=2).matcher()
    assert matcher.accept_bytes(text)
    whole = text + matcher.completion()
    assert json.dumps(json.loads(whole), indent=2).encode() == whole


@pytest.mark.parametrize("policy", ["", "lots", -1, 17, 10**30, None, 2.5])
def test_there_are_no_other_policies(policy: Any, byte_vocab: Vocabulary) -> None:
    with pytest.raises(GrammarError, match=r"whitespace|indent"):
        compile_json_schema({}, byte_vocab, whitespace=policy)


def test_whitespace_always_ends(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    """By default no run of white space is longer than a line break and forty spaces."""
    matcher = compile_json_schema({"type": "array"}, byte_vocab).matcher()
    assert matcher.accept_bytes(b"[\r")
    assert bytes(allowed(matcher, 257)) == b"\n"
    assert matcher.accept_bytes(b"\n" + b" " * 39)
    assert b" "[0] in allowed(matcher, 257)
    assert matcher.accept_bytes(b" ")
    assert not set(b" \t\r\n") & set(allowed(matcher, 257))


def test_long_runs_of_spaces_are_refused_as_tokens(allowed: Allowed) -> None:
    vocabulary = Vocabulary.from_tokens(
        [b"", b"[", b" ", b"  ", b" " * 3, b" " * 64, b"\n" + b" " * 40, b"\n" + b" " * 41, b"]"], [0]
    )
    matcher = compile_json_schema({"type": "array"}, vocabulary).matcher()
    assert matcher.accept(1)
    assert allowed(matcher, 9) == [1, 2, 3, 6, 8]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "object"}, "contains": {"const": {"a": True}}},
        {"type": "array", "items": {"type": "array"}, "contains": {"const": [1]}},
        {
            "type": "object",
            "additionalProperties": {"type": "object"},
            "not": {"additionalProperties": {"maxProperties": 0}},
        },
    ],
    ids=str,
)
def test_an_indented_document_is_completed_line_by_line(schema: Any, byte_vocab: Vocabulary) -> None:
    grammar = compile_json_schema(schema, byte_vocab, whitespace=2)
    whole = grammar.matcher().completion()
    for end in range(len(whole) + 1):
        matcher = grammar.matcher()
        assert matcher.accept_bytes(whole[:end])
        assert matcher.accept_bytes(matcher.completion()) and matcher.is_accepting(), whole[:end]
