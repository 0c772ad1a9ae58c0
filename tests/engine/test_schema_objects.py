"""JSON Schema: objects, their keys, and the order of members."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Limits, Matcher, Vocabulary, compile_json_schema
from constrain.errors import GrammarError, ResourceLimit, UnsatisfiableSchema

Verify = Callable[..., None]
Judge = Callable[..., bool]
Allowed = Callable[[Matcher, int], list[int]]

A_STRING, B_INTEGER = {"a": {"type": "string"}}, {"b": {"type": "integer"}}

CASES: list[tuple[Any, list[Any], list[Any]]] = [
    ({"properties": A_STRING}, [{}, {"a": "x"}, {"b": 1}, {"b": [], "a": ""}, 5, []], [{"a": 1}, {"b": 1, "a": None}]),
    ({"properties": {"a": True, "b": False}}, [{"a": 1}, {"c": 1}], [{"b": 1}, {"a": 1, "b": 2}]),
    ({"properties": {"a": False}}, [{}, {"ab": 1}], [{"a": 1}]),
    ({"required": ["a"]}, [{"a": 1}, {"b": 2, "a": 1}, "x"], [{}, {"b": 1}, {"aa": 1}]),
    (
        {"required": ["a", "b"], "properties": B_INTEGER},
        [{"b": 1, "a": None}],
        [{"a": 1}, {"b": 1}, {"a": 1, "b": "x"}],
    ),
    ({"required": []}, [{}], []),
    ({"required": ['é"\n']}, [{'é"\n': 1}], [{}, {"é": 1}]),
    ({"properties": A_STRING, "additionalProperties": False}, [{}, {"a": "x"}], [{"b": 1}, {"aa": "x"}, {"": 1}]),
    (
        {"properties": A_STRING, "additionalProperties": {"type": "null"}},
        [{"a": "x", "b": None}],
        [{"b": 1}, {"a": None}],
    ),
    ({"additionalProperties": {"type": "integer"}}, [{}, {"x": 1, "y": 2}], [{"x": "1"}]),
    ({"additionalProperties": False}, [{}], [{"x": 1}]),
    ({"additionalProperties": False, "required": ["a"], "properties": {"a": True}}, [{"a": 1}], [{}]),
    ({"patternProperties": {"^n": {"type": "integer"}}}, [{"n": 1, "m": "x"}, {"no": 2}], [{"n": "x"}, {"no": None}]),
    ({"patternProperties": {"n": {"type": "integer"}}}, [{"an": 1, "a": "x"}], [{"bnb": "x"}]),
    (
        {"patternProperties": {"^a": {"minimum": 3}, "b$": {"maximum": 5}}},
        [{"a": 9, "b": 0, "ab": 4}],
        [{"ab": 2}, {"ab": 6}],
    ),
    (
        {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False},
        [{"a": 1, "ab": 2}],
        [{"b": 1}, {"a": "x"}],
    ),
    (
        {"properties": {"id": {"type": "string"}}, "patternProperties": {"^i": {"minLength": 2}}},
        [{"id": "ab", "ix": "cd"}, {"ix": 1}],
        [{"id": "a"}, {"id": 12}, {"ix": "c"}],
    ),
    ({"properties": A_STRING, "patternProperties": {"^a": False}}, [{}, {"b": 1}], [{"a": "x"}, {"ab": 1}]),
    (
        {"properties": A_STRING, "patternProperties": {"^b": True}, "additionalProperties": False},
        [{"a": "x", "b": 1, "bb": 2}],
        [{"c": 1}],
    ),
    ({"propertyNames": {"maxLength": 2}}, [{}, {"a": 1, "ab": 2, "é🙂": 3}], [{"abc": 1}]),
    ({"propertyNames": {"pattern": "^[a-c]+$"}}, [{"abc": 1}], [{"abd": 1}, {"": 1}]),
    ({"propertyNames": {"enum": ["a", "b"]}}, [{"a": 1, "b": 2}], [{"c": 1}]),
    ({"propertyNames": False}, [{}], [{"a": 1}]),
    ({"propertyNames": True}, [{"a": 1}], []),
    (
        {"propertyNames": {"minLength": 2}, "properties": {"a": True, "bb": {"const": 1}}},
        [{"bb": 1}, {"cc": 2}],
        [{"a": 1}, {"bb": 2}],
    ),
    ({"minProperties": 1}, [{"a": 1}], [{}]),
    ({"minProperties": 2, "properties": {"a": True}}, [{"a": 1, "b": 2}, {"b": 1, "c": 2}], [{"a": 1}, {"b": 1}, {}]),
    ({"maxProperties": 1}, [{}, {"a": 1}], [{"a": 1, "b": 2}]),
    ({"maxProperties": 0}, [{}], [{"a": 1}]),
    ({"maxProperties": 1, "required": ["a"]}, [{"a": 1}], [{"b": 1}, {"a": 1, "b": 2}, {}]),
    (
        {"maxProperties": 2, "required": ["a"], "properties": {"b": True}},
        [{"b": 1, "a": 2}, {"a": 1, "c": 1}],
        [{"b": 1, "c": 1}],
    ),
    (
        {"minProperties": 2, "properties": {"a": True, "b": True, "c": True}, "additionalProperties": False},
        [{"c": 1, "a": 1}],
        [{"a": 1}],
    ),
    (
        {"properties": {"a": {"properties": {"b": {"const": 1}}, "required": ["b"]}}},
        [{"a": {"b": 1}}, {"a": 3}],
        [{"a": {}}, {"a": {"b": 2}}],
    ),
    (
        {"allOf": [{"properties": {"a": {"minimum": 3}}}, {"properties": {"a": {"maximum": 5}}, "required": ["a"]}]},
        [{"a": 4}],
        [{"a": 2}, {"a": 6}, {}],
    ),
    (
        {
            "allOf": [
                {"properties": {"a": True}, "additionalProperties": {"type": "string"}},
                {"properties": {"b": {"minLength": 1}}},
            ]
        },
        [{"a": 1, "b": "x", "c": ""}],
        [{"b": ""}, {"b": 1}, {"c": 1}],
    ),
    (
        {"allOf": [{"properties": {"a": True}, "additionalProperties": False}, {"properties": {"b": True}}]},
        [{}, {"a": 1}],
        [{"b": 1}, {"a": 1, "b": 1}],
    ),
    (
        {"allOf": [{"patternProperties": {"^a": {"minimum": 1}}}, {"patternProperties": {"^a": {"maximum": 2}}}]},
        [{"a": 1, "b": 9}],
        [{"a": 0}, {"ax": 3}],
    ),
    ({"additionalProperties": {"type": "integer", "enum": [0.5]}}, [{}], [{"a": 0.5}, {"a": 1}]),
]


@pytest.mark.parametrize("schema, yes, no", CASES, ids=lambda value: str(value)[:50])
def test_objects(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": ["a"], "properties": {"a": False}},
        {"type": "object", "required": ["a"], "additionalProperties": False},
        {"type": "object", "required": ["a", "b"], "maxProperties": 1},
        {"type": "object", "minProperties": 2, "maxProperties": 1},
        {"type": "object", "minProperties": 2, "properties": {"a": True}, "additionalProperties": False},
        {"type": "object", "required": ["abc"], "propertyNames": {"maxLength": 2}},
        {"type": "object", "required": ["a"], "patternProperties": {"^a": False}},
        {"type": "object", "minProperties": 3, "propertyNames": {"enum": ["a", "b"]}},
    ],
    ids=str,
)
@pytest.mark.parametrize("property_order", ["any", "schema"])
def test_objects_without_instances(schema: Any, property_order: Any, byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsatisfiableSchema):
        compile_json_schema(schema, byte_vocab, property_order=property_order)


# ---- Keys.


def test_a_key_occurs_once(judge: Judge) -> None:
    """Names, other keys, and keys that match patterns; nested objects have keys of their own."""
    schema = {"properties": {"a": True}, "patternProperties": {"^p": True}}
    for text in (b'{"a":1,"a":1}', b'{"x":1,"x":2}', b'{"p1":1,"a":2,"p1":3}', b'{"":1,"":2}', b'{"x":1,"xy":2,"x":3}'):
        assert not judge(schema, text), text
    assert judge(schema, b'{"a":{"a":1},"x":{"x":{"x":1}},"p":1,"pp":2,"":3,"xx":4}')


def test_keys_are_compared_unescaped(judge: Judge) -> None:
    assert judge({}, rb'{"a\n":1,"a\\n":2,"a\u0001":3,"a":4}')
    assert not judge({}, b'{"\\u0001":1,"\\u0001":2}')
    assert not judge({"properties": {"a": {"type": "null"}}}, rb'{"\u0061":1}'), "no way around the schema of a"
    assert not judge({"properties": {"a": True}}, rb'{"a":1,"\u0061":1}')


def test_keys_with_characters_that_need_escapes(verify: Verify) -> None:
    names = ['"', "\\", "\n", "\x01", "a/b~c", "é", "🙂", "\x7f", "", "\u2028"]
    schema = {"properties": {name: {"const": i} for i, name in enumerate(names)}, "additionalProperties": False}
    verify(schema, [{name: i} for i, name in enumerate(names)], [{name: 99} for name in names] + [{"b": 0}])
    verify({**schema, "required": names}, [{name: i for i, name in enumerate(names)}], [{}])


@pytest.mark.parametrize("used", [[], ["a", "ab\n"], ["é", "a\\"]])
@pytest.mark.parametrize("patterns", [{}, {"^x": True}])
def test_masks_within_names_are_what_bytes_tell(allowed: Allowed, used: list[str], patterns: dict[str, Any]) -> None:
    """Names that begin others, have escapes, or share parts of characters: tokens are tried byte by byte."""
    names = ["", "a", "ab", "ab\n", "ab\n\r", 'a"', "a\\", "abc", "é", "éa", "è", "日", "日本", "\x01", "\x02x"]
    written = [json.dumps(name, ensure_ascii=escaped).encode() for name in names for escaped in (False, True)]
    parts = {key[i:end] for key in written for i in range(len(key)) for end in range(i + 1, len(key) + 1)}
    tokens = sorted({*parts, *(part + b":" for part in parts), b'":1,"a', b'":1}', *(bytes([i]) for i in range(256))})
    vocabulary = Vocabulary.from_tokens([b"", *tokens], [0])
    properties = dict.fromkeys(names, True)
    schema = {"properties": properties, "patternProperties": patterns, "additionalProperties": False, "type": "object"}
    matcher = compile_json_schema(schema, vocabulary).matcher()
    start = b"{" + b"".join(json.dumps(name, ensure_ascii=False).encode() + b":1," for name in used)
    for text in {key[:end] for key in written for end in range(1, len(key))}:
        matcher.reset()
        assert matcher.accept_bytes(start)
        if not matcher.accept_bytes(text):
            continue
        expected = [token for token in range(1, vocabulary.size) if matcher.clone().accept_bytes(tokens[token - 1])]
        assert allowed(matcher, vocabulary.size) == expected, text


def test_used_names_are_not_offered_again(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    schema = {"type": "object", "properties": {"ab": True, "ac": True, "b": True}, "additionalProperties": False}
    matcher = compile_json_schema(schema, byte_vocab, whitespace="compact").matcher()
    assert matcher.accept_bytes(b'{"ab":1,"')
    assert bytes(allowed(matcher, 257)) == b"ab"
    assert matcher.accept_bytes(b"a")
    assert bytes(allowed(matcher, 257)) == b"c"
    assert matcher.accept_bytes(b'c":1,"')
    assert bytes(allowed(matcher, 257)) == b"b"
    assert matcher.accept_bytes(b'b":1')
    assert bytes(allowed(matcher, 257)) == b".0123456789Ee}"
    assert matcher.accept_bytes(b"}")


def test_a_token_across_members_is_allowed_only_where_it_leads_on(allowed: Allowed) -> None:
    tokens = [b"", b'","', b'"}', b'"', b'", "', b'",', *(bytes([byte]) for byte in range(256))]
    vocabulary = Vocabulary.from_tokens(tokens, [0])
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": True}, "additionalProperties": False}
    grammar = compile_json_schema(schema, vocabulary)
    matcher = grammar.matcher()
    assert matcher.accept_bytes(b'{"a":"x')
    assert allowed(matcher, 262)[:5] == [1, 2, 3, 4, 5]
    matcher.reset()
    assert matcher.accept_bytes(b'{"b":1,"a":"x')
    assert allowed(matcher, 262)[:3] == [2, 3, 6 + 0x20]


def test_the_last_members_are_reserved_for_required_names(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    schema = {"type": "object", "properties": {"a": {}}, "maxProperties": 1, "required": ["a"]}
    matcher = compile_json_schema(schema, byte_vocab, whitespace="compact").matcher()
    assert matcher.accept_bytes(b"{")
    assert bytes(allowed(matcher, 257)) == b'"'
    assert matcher.accept_bytes(b'"')
    assert bytes(allowed(matcher, 257)) == b"a"


def test_a_small_set_of_free_keys_runs_out(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    schema = {"type": "object", "patternProperties": {"^[xy]z?$": {"type": "null"}}, "additionalProperties": False}
    grammar = compile_json_schema(schema, byte_vocab, whitespace="compact")
    for order in itertools.permutations(["x", "xz", "y", "yz"]):
        matcher = grammar.matcher()
        assert matcher.accept_bytes(json.dumps(dict.fromkeys(order), separators=(",", ":")).encode()[:-1])
        assert bytes(allowed(matcher, 257)) == b"}"
    matcher = grammar.matcher()
    assert matcher.accept_bytes(b'{"x":null,"xz":null,"')
    assert bytes(allowed(matcher, 257)) == b"y"
    matcher.reset()
    assert matcher.accept_bytes(b'{"x":null,"x')
    assert bytes(allowed(matcher, 257)) == b"z"


@pytest.mark.parametrize(
    "keys",
    [['"', "a"], ["\n", "\t", "a"], ["a\\b", "ab", "a"], ["\x01", "\x02", "\x11", "\\"], ["é", "é\n", "\x00", ""]],
)
def test_free_keys_with_escapes_come_in_any_order(byte_vocab: Vocabulary, keys: list[str]) -> None:
    """A used key and one that is being escaped may have the same beginning; every text has a completion."""
    schema = {"type": "object", "propertyNames": {"enum": keys}, "minProperties": len(keys)}
    grammar = compile_json_schema(schema, byte_vocab, whitespace="compact")
    for order in itertools.permutations(keys):
        matcher = grammar.matcher()
        text = json.dumps(dict.fromkeys(order, 1), separators=(",", ":"), ensure_ascii=False).encode()
        for end in range(len(text)):
            assert matcher.accept_bytes(text[end : end + 1]), text[: end + 1]
            assert matcher.clone().accept_bytes(matcher.completion())
        assert matcher.is_accepting()
    twice = json.dumps(keys[0], ensure_ascii=False).encode()
    assert not grammar.matcher().accept_bytes(b"{" + twice + b":1," + twice), "a key occurs once"


@pytest.mark.parametrize("names", [{"enum": ["a", "b"]}, {"maxLength": 1}, {"pattern": "^(a|b+)$"}])
def test_a_class_of_free_keys_runs_out_before_a_duty_is_met(
    byte_vocab: Vocabulary, allowed: Allowed, names: dict[str, Any]
) -> None:
    """Only the key `a` can violate the pattern's schema: its value must."""
    violated = {"patternProperties": {"^a": {"type": "string"}}}
    schema = {"type": "object", "propertyNames": names, "not": violated}
    matcher = compile_json_schema(schema, byte_vocab, whitespace="compact").matcher()
    assert matcher.accept_bytes(b'{"b":1,"a":')
    assert ord('"') not in allowed(matcher, 257)
    assert matcher.accept_bytes(b"1}")
    matcher.reset()
    assert matcher.accept_bytes(b'{"a":')
    assert ord('"') not in allowed(matcher, 257)
    assert matcher.accept_bytes(b"[]}")


def test_five_hundred_properties(judge: Judge, byte_vocab: Vocabulary) -> None:
    names = [f"property_{i:03}" for i in range(500)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in names},
        "required": names[::2],
        "additionalProperties": False,
    }
    grammar = compile_json_schema(schema, byte_vocab)
    whole = {name: i for i, name in enumerate(names)}
    assert judge(grammar, whole)
    assert judge(grammar, dict(reversed(whole.items())))
    assert judge(grammar, {name: i for name, i in whole.items() if i % 2 == 0})
    assert not judge(grammar, {name: i for name, i in whole.items() if i != 250})
    assert not judge(grammar, {**whole, "property_500": 1})


def test_a_thousand_free_keys(judge: Judge) -> None:
    keys = {f"key {i}": i for i in range(1000)}
    assert judge({"additionalProperties": {"type": "integer"}}, keys)
    repeated = json.dumps(keys)[:-1] + ', "key 500": 1}'
    assert not judge({"additionalProperties": {"type": "integer"}}, repeated.encode())


# ---- Order.


def test_any_order(judge: Judge) -> None:
    schema = {"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "required": ["a", "b", "c", "d"]}
    for names in itertools.permutations("abcd"):
        assert judge(schema, {name: "abcd".index(name) + 1 for name in names})


def test_schema_order(verify: Verify) -> None:
    schema = {"properties": {"b": True, "a": True, "c": True}, "required": ["a"]}
    yes = [
        b'{"b":1,"a":2,"c":3}',
        b'{"a":1}',
        b'{"a":1,"c":2}',
        b'{"b":1,"a":2,"x":3,"w":4}',
        b'{"a":1,"x":{"a":1,"b":2}}',
    ]
    no = [b'{"a":1,"b":2}', b'{"c":1,"a":2}', b'{"x":1,"a":2}', b'{"b":1,"c":1}', b'{"a":1,"x":2,"c":3}', b"{}"]
    verify(schema, yes, no, property_order="schema")
    verify(schema, [*yes, *no[:3], no[4]], [no[3], no[5]], property_order="any")


def test_schema_order_reserves_members_for_required_names(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"const": 1}, "c": {"const": 1}},
        "minProperties": 2,
        "additionalProperties": False,
    }
    matcher = compile_json_schema(schema, byte_vocab, property_order="schema", whitespace="compact").matcher()
    assert matcher.accept_bytes(b'{"')
    assert bytes(allowed(matcher, 257)) == b"ab", "after c alone nothing could follow"
    assert matcher.accept_bytes(b'b":1')
    assert b"}"[0] not in allowed(matcher, 257)
    assert matcher.accept_bytes(b',"c":1')
    assert bytes(allowed(matcher, 257)).endswith(b"}")


def test_schema_order_through_all_of_and_references(verify: Verify) -> None:
    schema = {
        "$defs": {"base": {"properties": {"id": True, "kind": True}, "required": ["id"]}},
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"size": True}, "required": ["size"]}],
    }
    verify(
        schema, [b'{"id":1,"size":2}', b'{"id":1,"kind":0,"size":2}'], [b'{"size":2,"id":1}'], property_order="schema"
    )


def test_there_are_two_orders(byte_vocab: Vocabulary) -> None:
    with pytest.raises(GrammarError, match="no property order 'alphabetic'"):
        compile_json_schema({}, byte_vocab, property_order="alphabetic")  # type: ignore[arg-type]


def test_patterns_of_keys_that_overlap_without_end_are_refused_by_the_work(byte_vocab: Vocabulary) -> None:
    """Each of the classes of keys alone is within the limit of a search."""
    patterns = {f"^(.{{{count}}})*$": {"maxLength": count} for count in range(1, 13)}
    with pytest.raises(ResourceLimit, match="search_states=200000 reached where the patterns of patternProperties"):
        compile_json_schema({"type": "object", "patternProperties": patterns}, byte_vocab)


def test_a_long_shortest_key_is_found_in_one_search(byte_vocab: Vocabulary) -> None:
    """Its length is the least common multiple of 2 to 8, and its states share their distances to the end."""
    keys = {"allOf": [{"pattern": f"^(.{{{count}}})+$"} for count in range(2, 9)]}
    schema = {"type": "object", "propertyNames": keys, "minProperties": 1, "additionalProperties": {"const": 0}}
    grammar = compile_json_schema(schema, byte_vocab, limits=Limits(max_seconds=60))
    assert len(grammar.matcher().completion()) == len('{"":0}') + 840
