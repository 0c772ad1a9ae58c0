"""JSON Schema: several schemas for one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Matcher, Vocabulary, compile_json_schema
from constrain.errors import UnsatisfiableSchema

Verify = Callable[..., None]
Judge = Callable[..., bool]
Allowed = Callable[[Matcher, int], list[int]]

SHAPES = [
    {"properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]},
    {"properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]},
]

CASES: list[tuple[Any, list[Any], list[Any]]] = [
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], [None, 1.5, []]),
    ({"anyOf": [{"minimum": 5}, {"maximum": 3}]}, [5, 3, -1, "x"], [4, 3.5]),
    ({"anyOf": [{"type": "integer"}, {"minimum": 2}]}, [1, 2.5, 3, "x"], [1.5]),
    ({"anyOf": [True, False]}, [1, None], []),
    ({"anyOf": [False, {"const": 1}]}, [1], [2]),
    ({"anyOf": [{"maxLength": 1}, {"pattern": "^x"}]}, ["", "a", "xyz"], ["ab"]),
    ({"anyOf": [{"minLength": 2, "maxLength": 3}, {"minLength": 5}]}, ["ab", "abc", "abcde", "abcdef"], ["a", "abcd"]),
    (
        {"anyOf": SHAPES},
        [{"kind": "circle", "radius": 1}, {"side": 2, "kind": "square"}],
        [{"kind": "circle", "side": 2}, {"kind": "circle"}],
    ),
    (
        {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}],
        [{}, {"c": 1}],
    ),
    (
        {"properties": {"a": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"maxProperties": 1}]},
        [{"a": 1, "b": 2}, {"b": 1}],
        [{"a": "x"}, {"b": 1, "c": 1}],
    ),
    (
        {"anyOf": [{"items": {"type": "integer"}}, {"items": {"type": "string"}}]},
        [[], [1, 2], ["a"]],
        [[1, "a"], [None]],
    ),
    ({"anyOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"const": "a"}]}, [1, 2, "a"], [3, "b"]),
    ({"anyOf": [{"const": "a"}, {"const": "ab"}, {"enum": ["abc", "b"]}]}, ["a", "ab", "abc", "b"], ["", "abcd"]),
    ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, [3, 10], [2, 3.5, "x"]),
    ({"allOf": [True, {}]}, [1, {}], []),
    ({"allOf": [{"type": ["integer", "string"]}, {"type": ["string", "null"]}]}, ["a"], [1, None]),
    (
        {"allOf": [{"enum": [1, 2, "a", [1], {"a": 1}]}, {"enum": [2, "a", [1], {"a": 1}, 5]}]},
        [2, "a", [1], {"a": 1}],
        [1, 5],
    ),
    ({"allOf": [{"const": {"a": [1, 2]}}, {"properties": {"a": {"maxItems": 2}}}]}, [{"a": [1, 2]}], [{"a": [1]}]),
    ({"allOf": [{"type": "integer"}], "minimum": 3, "maximum": 4}, [3, 4], [5, 3.5]),
    ({"allOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"anyOf": [{"const": 2}, {"const": 3}]}]}, [2], [1, 3]),
    (
        {"allOf": [{"anyOf": [{"minimum": 5}, {"maximum": 0}]}, {"anyOf": [{"multipleOf": 2}, {"type": "string"}]}]},
        [6, 0, -4, "x"],
        [5, 2, -1],
    ),
    (
        {"allOf": [SHAPES[0], {"required": ["name"]}]},
        [{"kind": "circle", "radius": 1, "name": ""}],
        [{"kind": "circle", "radius": 1}],
    ),
]


@pytest.mark.parametrize("schema, yes, no", CASES, ids=lambda value: str(value)[:60])
def test_combinations(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"anyOf": [False]},
        {"allOf": [{"type": "string"}, {"type": "null"}]},
        {"enum": [1, 2], "const": 3},
        {"type": "string", "enum": [1, None]},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "string", "pattern": "^a$", "minLength": 2},
        {"type": "integer", "minimum": 2, "exclusiveMaximum": 2},
        {"type": "integer", "minimum": 1, "maximum": 4, "multipleOf": 5},
        {"type": "number", "allOf": [{"minimum": 2}, {"maximum": 1}]},
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "const": {"a": 2}},
        {"enum": []},
        {"type": "array", "items": {"enum": []}, "minItems": 1},
    ],
    ids=str,
)
def test_schemas_without_instances(schema: Any, byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsatisfiableSchema):
        compile_json_schema(schema, byte_vocab)


def test_parts_without_instances_just_cannot_occur(verify: Verify) -> None:
    nothing = {"allOf": [{"type": "string"}, {"type": "null"}]}
    verify({"anyOf": [nothing, {"type": "integer"}]}, [1], ["a", None])
    verify({"properties": {"a": nothing}}, [{}, {"b": 1}], [{"a": "x"}, {"a": None}])
    verify({"items": nothing}, [[]], [[1], ["x"]])


def test_branches_stay_open_until_the_text_decides(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    """Forty objects that differ in one value: after it, only the members of one are allowed."""
    branches = [
        {
            "properties": {"kind": {"const": f"k{i:02}"}, f"only{i:02}": {"type": "null"}},
            "required": ["kind", f"only{i:02}"],
            "additionalProperties": False,
            "type": "object",
        }
        for i in range(40)
    ]
    matcher = compile_json_schema({"anyOf": branches}, byte_vocab, whitespace="compact").matcher()
    assert matcher.accept_bytes(b'{"kind":"k')
    assert bytes(allowed(matcher, 257)) == b"0123"
    assert matcher.accept_bytes(b'17","only')
    assert bytes(allowed(matcher, 257)) == b"1"
    assert matcher.completion() == b'17":null}'


def test_ambiguity_in_depth(judge: Judge, byte_vocab: Vocabulary) -> None:
    """Every bracket has two parse threads: without shared stacks there would be 2^200 of them at two hundred levels."""
    tree = {"$ref": "#"}
    schema = {
        "anyOf": [{"type": "array", "items": tree}, {"type": "array", "items": tree, "maxItems": 3}, {"const": 1}]
    }
    grammar = compile_json_schema(schema, byte_vocab)
    assert judge(grammar, b"[" * 200 + b"1" + b"]" * 200)
    matcher = grammar.matcher()
    assert matcher.accept_bytes(b"[1,[" * 100)
    assert matcher.completion() == b"]" * 200
