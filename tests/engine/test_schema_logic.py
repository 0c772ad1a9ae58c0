"""JSON Schema: negation, exclusive alternatives, conditions, dependencies, and conditions on some item or member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Matcher, Vocabulary, compile_json_schema
from constrain.errors import UnsatisfiableSchema

Verify = Callable[..., None]
Judge = Callable[..., bool]
Allowed = Callable[[Matcher, int], list[int]]

CLOSED = {"type": "object", "additionalProperties": False}
AB = {"properties": {"a": {}, "b": {}}, **CLOSED}
EVERY = [None, True, 0, 1, 2.5, "", "a", [], [1], {}, {"a": 1}]

NOT: list[tuple[Any, list[Any], list[Any]]] = [
    ({"not": False}, EVERY, []),
    ({"not": {"type": "string"}}, [None, 1, [], {}], ["", "a"]),
    ({"not": {"type": ["number", "null"]}}, [True, "a", {}], [None, 1, 2.5]),
    ({"not": {"type": "integer"}}, [1.5, "1"], [1, 0, -7]),
    ({"not": {"const": 1}}, [0, 2, 1.5, True, "1", [1]], [1]),
    ({"not": {"const": [1, "a"]}}, [[], [1], [1, "b"], [1, "a", 1], {}], [[1, "a"]]),
    ({"not": {"const": {"a": 1}}}, [{}, {"a": 2}, {"a": 1, "b": 1}, {"b": 1}, []], [{"a": 1}]),
    ({"not": {"enum": ["a", 2, None]}}, ["b", "", "aa", 3, False], ["a", 2, None]),
    ({"not": {"minimum": 5}}, [4, 4.5, -5], [5, 6, "x", None]),
    ({"not": {"exclusiveMaximum": 5}}, [5, 6], [4, 4.999]),
    ({"type": "number", "not": {"multipleOf": 2}}, [1, 3, 0.5], [0, 2, -4]),
    ({"type": "integer", "not": {"multipleOf": 2.5}}, [1, 2, 4], [0, 5, -10]),
    ({"multipleOf": 2.5, "not": {"type": "integer"}}, [2.5, -7.5], [5, 10, 1.25]),
    ({"type": "string", "not": {"minLength": 3}}, ["", "ab", "é🙂"], ["abc"]),
    ({"type": "string", "not": {"maxLength": 2}}, ["abc"], ["ab"]),
    ({"type": "string", "not": {"pattern": "^a"}}, ["", "ba"], ["a", "ab"]),
    ({"type": "string", "not": {"format": "date"}}, ["today", "2024-13-01"], ["2024-12-01"]),
    ({"type": "array", "not": {"minItems": 2}}, [[], [1]], [[1, 2]]),
    ({"type": "array", "not": {"maxItems": 1}}, [[1, 2]], [[], [1]]),
    ({"type": "array", "not": {"items": {"type": "integer"}}}, [["a"], [1, None, 2]], [[], [1, 2]]),
    ({"type": "array", "not": {"prefixItems": [{"const": 1}]}}, [[2], [2, 1]], [[], [1], [1, 2]]),
    ({"type": "object", "not": {"required": ["a"]}}, [{}, {"b": 1}], [{"a": 1}, {"b": 1, "a": 1}]),
    ({"type": "object", "not": {"properties": {"a": {"type": "string"}}}}, [{"a": 1}], [{}, {"a": "x"}, {"b": 1}]),
    ({"type": "object", "not": {"maxProperties": 1}}, [{"a": 1, "b": 2}], [{}, {"a": 1}]),
    (
        {"type": "object", "not": {"additionalProperties": {"type": "null"}}},
        [{"a": 1}, {"a": None, "b": 1}],
        [{}, {"a": None}],
    ),
    ({"type": "object", "not": {"propertyNames": {"maxLength": 1}}}, [{"ab": 1}, {"a": 1, "bc": 1}], [{}, {"a": 1}]),
    ({"not": {"not": {"minimum": 5}}}, [5, "x"], [4]),
    ({"not": {"anyOf": [{"type": "string"}, {"minimum": 3}]}}, [1, 2.5], [3, "x", None]),
    ({"not": {"allOf": [{"type": "integer"}, {"minimum": 3}]}}, [1, 3.5, "x"], [3]),
    ({"$defs": {"s": {"type": "string"}}, "not": {"$ref": "#/$defs/s"}}, [1], ["x"]),
    ({"properties": {"a": {"not": {}}}}, [{}, {"b": 1}], [{"a": 1}]),
    (
        {"not": {"items": {"not": {"items": {"type": "null"}}}}},
        [[[]], [[None]], [[1], [None]], [1]],
        [[], [[1]], [[1], [None, 1]], 5],
    ),
]

ONE_OF: list[tuple[Any, list[Any], list[Any]]] = [
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, [1, 2.5, "x"], [3, 1.5]),
    ({"oneOf": [True]}, EVERY, []),
    ({"oneOf": [True, False, False]}, EVERY, []),
    ({"oneOf": [{"maxLength": 3}, {"minLength": 2}]}, ["", "a", "abcd"], ["ab", "abc", 5]),
    ({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}], "type": "integer"}, [2, 3, 4, 9], [0, 6, 12, 1, 5]),
    ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], **AB}, [{"a": 1}, {"b": 1}], [{}, {"a": 1, "b": 1}]),
    ({"oneOf": [{"const": 1}, {"enum": [1, 2]}, {"type": "string"}]}, [2, "x"], [1, None]),
    (
        {"oneOf": [{"items": {"type": "integer"}}, {"items": {"type": "number"}}], "type": "array"},
        [[1.5], [1, 1.5]],
        [[], [1], ["a"]],
    ),
    (
        {"oneOf": [{"properties": {"a": {"type": "integer"}}}, {"required": ["b"]}], "type": "object"},
        [{}, {"a": 1}, {"a": "x", "b": 1}],
        [{"b": 1}, {"a": "x"}],
    ),
]

CONDITIONS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"if": {"type": "integer"}, "then": {"minimum": 3}}, [3, 2.5, "x"], [2]),
    ({"if": {"type": "integer"}, "else": {"type": "string"}}, [1, "x"], [1.5, None]),
    ({"if": {"type": "integer"}, "then": {"minimum": 3}, "else": {"maxLength": 1}}, [3, "x", None], [2, "xy"]),
    ({"if": {"type": "integer"}}, EVERY, []),
    ({"then": False, "else": False}, EVERY, []),
    ({"if": True, "then": {"const": 1}, "else": {"const": 2}}, [1], [2]),
    (
        {
            "if": {"properties": {"k": {"const": 1}}, "required": ["k"]},
            "then": {"required": ["a"]},
            "else": {"required": ["b"]},
            "type": "object",
        },
        [{"k": 1, "a": 1}, {"b": 1}, {"k": 2, "b": 1}],
        [{"k": 1}, {"k": 1, "b": 1}, {"k": 2, "a": 1}, {}],
    ),
    (
        {
            "properties": {"a": {}},
            "additionalProperties": False,
            "if": {"required": ["a"]},
            "then": {"required": ["b"]},
        },
        [{}, 5],
        [{"a": 1}],
    ),
    (
        {
            "allOf": [
                {"if": {"properties": {"k": {"const": n}}, "required": ["k"]}, "then": {"required": [f"r{n}"]}}
                for n in range(5)
            ],
            "type": "object",
        },
        [{}, {"k": 3, "r3": 1}, {"k": 7}],
        [{"k": 3}, {"k": 3, "r2": 1}],
    ),
]

DEPENDENCIES: list[tuple[Any, list[Any], list[Any]]] = [
    (
        {"dependentRequired": {"a": ["b", "c"]}},
        [{}, {"b": 1}, {"c": 1, "a": 1, "b": 1}, 5],
        [{"a": 1}, {"a": 1, "b": 1}],
    ),
    (
        {"dependentRequired": {"a": ["b"], "b": ["c"]}},
        [{"a": 1, "b": 1, "c": 1}, {"b": 1, "c": 1}],
        [{"a": 1, "b": 1}, {"b": 1}],
    ),
    ({"dependentRequired": {"a": []}}, [{"a": 1}], []),
    ({"dependentRequired": {"a": ["x"]}, **AB}, [{}, {"b": 1}], [{"a": 1}, {"a": 1, "b": 1}]),
    (
        {"dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}}}},
        [{"b": "x"}, {"a": 1, "b": 1}],
        [{"a": 1, "b": "x"}],
    ),
    ({"dependentSchemas": {"a": False}}, [{}, {"b": 1}], [{"a": 1}]),
    ({"dependentSchemas": {"a": {"maxProperties": 1}}}, [{"a": 1}, {"b": 1, "c": 1}], [{"a": 1, "b": 1}]),
    (
        {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"], "c": {"minProperties": 2}}},
        [{"a": 1, "b": 1}, {"c": 1, "d": 1}],
        [{"a": 1}, {"c": 1}],
    ),
]

CONTAINS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"contains": {"type": "integer"}}, [[1], ["a", 1], [1, 2], "x"], [[], ["a"], [1.5, None]]),
    ({"contains": {"const": 1}, "minContains": 2}, [[1, 1], [1, 2, 1]], [[1], [1, 2], []]),
    ({"contains": {"const": 1}, "maxContains": 1}, [[1], [2, 1, 3]], [[1, 1], [], [2]]),
    ({"contains": {"const": 1}, "minContains": 0, "maxContains": 1}, [[], [2], [1]], [[1, 1]]),
    ({"contains": {"const": 1}, "minContains": 0}, [[], [2]], []),
    ({"contains": {"const": 1}, "maxContains": 0, "minContains": 0}, [[], [2]], [[1], [2, 1]]),
    ({"minContains": 5, "maxContains": 0}, [[], [1]], []),
    ({"contains": {"type": "integer"}, "maxItems": 2}, [[1], ["a", 1]], [["a", "b"], ["a", "b", 1]]),
    ({"contains": {"type": "integer"}, "items": {"minimum": 5}}, [[5], ["a", 7]], [[3], ["a"]]),
    ({"contains": {"minimum": 5}, "prefixItems": [{"maximum": 4}], "maxItems": 2}, [[1, 6]], [[1], [6, 6], [1, 2]]),
    ({"allOf": [{"contains": {"const": 1}}, {"contains": {"const": 2}}]}, [[1, 2], [2, 3, 1]], [[1], [2, 2], []]),
    ({"allOf": [{"contains": {"minimum": 1}}, {"contains": {"maximum": 2}}]}, [[1], [0, 3], [2, 2]], [[0], [3], []]),
    ({"not": {"contains": {"const": 1}}, "type": "array"}, [[], [2]], [[1], [2, 1]]),
    ({"not": {"contains": {"const": 1}, "minContains": 2}, "type": "array"}, [[], [1], [1, 2]], [[1, 1]]),
]


@pytest.mark.parametrize("schema, yes, no", NOT + ONE_OF + CONDITIONS, ids=lambda value: str(value)[:60])
def test_combinations(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


@pytest.mark.parametrize("schema, yes, no", DEPENDENCIES + CONTAINS, ids=lambda value: str(value)[:60])
def test_dependencies_and_contents(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)
    verify(schema, [], no, property_order="schema")


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {}},
        {"not": True},
        {"oneOf": [True, True]},
        {"type": "string", "not": {"type": ["string", "null"]}},
        {"enum": [1, 2], "not": {"minimum": 0}},
        {"type": "integer", "not": {"anyOf": [{"minimum": 3}, {"maximum": 3}]}},
        {"if": True, "then": False},
        {"type": "array", "contains": False},
        {"type": "array", "contains": {"const": 1}, "items": {"const": 2}},
        {"type": "array", "contains": {"const": 1}, "minContains": 3, "maxItems": 2},
        {"required": ["a"], "dependentRequired": {"a": ["c"]}, **AB},
    ],
    ids=str,
)
def test_schemas_without_instances(schema: Any, byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsatisfiableSchema):
        compile_json_schema(schema, byte_vocab)


def test_a_name_rules_out_another(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    schema = {
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        **AB,
        "properties": {"a": {"const": 1}, "b": {"const": 1}},
    }
    matcher = compile_json_schema(schema, byte_vocab, whitespace="compact").matcher()
    assert matcher.accept_bytes(b"{")
    assert bytes(allowed(matcher, 257)) == b'"', "not yet the end"
    assert matcher.accept_bytes(b'"a":1')
    assert bytes(allowed(matcher, 257)) in (b"}", b".}"), "no other member"


def test_an_array_that_owes_an_item_does_not_close(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    schema = {"type": "array", "items": {"enum": ["a", "b"]}, "contains": {"const": "b"}, "maxItems": 2}
    matcher = compile_json_schema(schema, byte_vocab, whitespace="compact").matcher()
    assert matcher.accept_bytes(b"[")
    assert bytes(allowed(matcher, 257)) == b'"'
    assert matcher.accept_bytes(b'"a"')
    assert bytes(allowed(matcher, 257)) == b","
    assert matcher.accept_bytes(b',"')
    assert bytes(allowed(matcher, 257)) == b"b"
    assert matcher.completion() == b'b"]'
