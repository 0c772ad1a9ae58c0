"""JSON Schema: `unevaluatedProperties` and `unevaluatedItems`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Limits, Vocabulary, compile_json_schema
from constrain.errors import ResourceLimit, SchemaError, UnsatisfiableSchema

Verify = Callable[..., None]

DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
INTEGER, STRING = {"type": "integer"}, {"type": "string"}
A, B = {"properties": {"a": INTEGER}}, {"properties": {"b": INTEGER}}
CIRCLE = {"properties": {"kind": {"const": "circle"}, "radius": True}, "required": ["kind"]}
SQUARE = {"properties": {"kind": {"const": "square"}, "side": True}, "required": ["kind"]}
CLOSED = {"unevaluatedProperties": False}
OPEN = {"unevaluatedProperties": True}

MEMBERS: list[tuple[Any, list[Any], list[Any]]] = [
    ({**A, **CLOSED}, [{}, {"a": 1}, 3], [{"b": 1}, {"a": "x"}]),
    ({**A, "unevaluatedProperties": STRING}, [{"a": 1, "b": "x"}], [{"b": 1}]),
    ({**A, **OPEN}, [{"b": None}], [{"a": "x"}]),
    ({"patternProperties": {"^x": INTEGER}, **CLOSED}, [{"x": 1, "xy": 2}], [{"y": 1}, {"x": "a"}]),
    ({"additionalProperties": INTEGER, **CLOSED}, [{"a": 1}], [{"a": "x"}]),
    ({"allOf": [A, B], **CLOSED}, [{"a": 1, "b": 2}], [{"c": 1}]),
    (
        {"anyOf": [{**A, "required": ["a"]}, {**B, "required": ["b"]}], **CLOSED},
        [{"a": 1}, {"a": 1, "b": 2}],
        [{}, {"c": 1}],
    ),
    ({"anyOf": [{**A, "required": ["a"]}, {**B, "required": ["b"]}], **CLOSED}, [{"b": 2}], [{"a": 1, "b": "x"}]),
    ({"anyOf": [A, {"required": ["b"]}], **CLOSED}, [{"a": 1}, {}], [{"b": 1}, {"a": 1, "b": 1}]),
    (
        {"oneOf": [CIRCLE, SQUARE], **CLOSED},
        [{"kind": "circle", "radius": 1}],
        [{"kind": "circle", "side": 1}, {"side": 1}],
    ),
    ({"oneOf": [CIRCLE, SQUARE], **CLOSED}, [{"side": 1, "kind": "square"}], [{"kind": "square", "radius": 1}]),
    ({"if": CIRCLE, "then": A, "else": B, **CLOSED}, [{"kind": "circle", "radius": 1, "a": 1}, {"b": 1}], [{"a": 1}]),
    ({"if": CIRCLE, "then": A, "else": B, **CLOSED}, [{}], [{"kind": "circle", "b": 1}, {"kind": "x"}, {"radius": 1}]),
    ({"if": CIRCLE, **CLOSED}, [{"kind": "circle"}, {}], [{"kind": "x"}, {"radius": 1}]),
    ({"dependentSchemas": {"a": B}, **A, **CLOSED}, [{"a": 1, "b": 1}, {"a": 1}], [{"b": 1}, {"a": 1, "b": "x"}]),
    ({"not": {"not": A}, **CLOSED}, [{}], [{"a": 1}]),
    ({"$ref": "#/$defs/a", "$defs": {"a": A}, **B, **CLOSED}, [{"a": 1, "b": 1}], [{"c": 1}]),
    ({"allOf": [{**A, **OPEN}], **CLOSED}, [{"a": 1, "c": 1}], [{"a": "x"}]),
    ({"allOf": [{**A, **CLOSED}, B]}, [{"a": 1}], [{"b": 1}]),
    ({"allOf": [{"anyOf": [A, {"oneOf": [B, False]}]}], **CLOSED}, [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}], [{"c": 1}]),
    ({"properties": {"x": {**A, **CLOSED}}, **CLOSED}, [{"x": {"a": 1}}], [{"x": {"b": 1}}, {"y": 1}]),
    ({"not": {**A, **CLOSED}}, [{"b": 1}, {"a": "x"}], [{}, {"a": 1}, 3]),
    ({"not": {"unevaluatedItems": False, "dependentSchemas": {"a": {"items": True}}}}, [[1]], [[], {}, {"a": 1}]),
    (
        {"not": {"anyOf": [{**A, "required": ["a"]}, {"required": ["b"]}], **CLOSED}},
        [{}, {"a": 1, "b": 1}, {"b": 1}],
        [{"a": 1}],
    ),
    ({"not": {"if": CIRCLE, "then": A, **CLOSED}}, [{"kind": "x"}, {"b": 1}], [{}, {"kind": "circle", "a": 1}]),
    ({"required": ["a"], "minProperties": 2, "anyOf": [A, B], **CLOSED}, [{"a": 1, "b": 1}], [{"a": 1}]),
    ({"propertyNames": {"maxLength": 1}, "anyOf": [A, True], **CLOSED}, [{"a": 1}], [{"a": 1, "b": 1}]),
    (
        {"anyOf": [{"properties": {"a": INTEGER, "b": STRING}}, {"required": ["c"]}], **CLOSED},
        [{}, {"a": 1}, {"a": 1, "b": "x"}],
        [{"a": "x"}, {"c": 1}, {"a": 1, "c": 1}],
    ),
    (
        {"properties": {"a": True}, "anyOf": [{**A, "required": ["a"]}, {**B, "required": ["b"]}], **CLOSED},
        [{"a": 1}, {"a": "x", "b": 1}, {"a": 1, "b": 1}],
        [{}, {"a": "x"}],
    ),
    (
        {"patternProperties": {"^a": True}, "anyOf": [A, {**B, "required": ["b"]}], **CLOSED},
        [{}, {"a": "x", "b": 1}],
        [{"a": "x"}, {"c": 1}],
    ),
    (
        {"anyOf": [A, {**B, "required": ["b"]}], "oneOf": [{"required": ["a"]}, {**B, "required": ["b"]}], **CLOSED},
        [{"a": 1}, {"b": 1}],
        [{"a": "x"}, {"c": 1}],
    ),
]

PAIR = {"prefixItems": [INTEGER, INTEGER]}
END = {"unevaluatedItems": False}

ITEMS: list[tuple[Any, list[Any], list[Any]]] = [
    ({**PAIR, **END}, [[], [1], [1, 2], {}], [[1, 2, 3], ["x"]]),
    ({**PAIR, "unevaluatedItems": STRING}, [[1, 2, "x"]], [[1, 2, 3]]),
    ({"items": INTEGER, **END}, [[1, 2]], [["x"]]),
    ({"allOf": [PAIR, {"prefixItems": [True, True, STRING]}], **END}, [[1, 2, "x"]], [[1, 2, "x", 1]]),
    (
        {"anyOf": [{"prefixItems": [STRING]}, {"prefixItems": [True, INTEGER]}], **END},
        [["x"], [None, 1]],
        [["x", "y"], [1, "x"]],
    ),
    (
        {"oneOf": [{"prefixItems": [STRING], "minItems": 1}, {**PAIR, "minItems": 2}], **END},
        [["x"], [1, 2]],
        [["x", 1], [1, 2, 3]],
    ),
    (
        {"if": {"prefixItems": [{"const": 1}]}, "then": PAIR, "else": {"items": STRING}, **END},
        [[1, 2], ["x", "y", "z"]],
        [[1, 2, 3], [1, "x"]],
    ),
    ({"contains": STRING, **END}, [["x"], ["x", "y"]], [[], [1], ["x", 1]]),
    ({"contains": STRING, **PAIR, **END}, [[1, 2, "x"], [1, 2, "x", "y"]], [[1, 2], [1, 2, "x", 3]]),
    ({"contains": STRING, "unevaluatedItems": INTEGER}, [["x", 1], [1, "x"]], [[1], ["x", None]]),
    ({"allOf": [{"contains": STRING}, {"contains": INTEGER}], **END}, [["x", 1], [1, "x", 2]], [["x"], ["x", 1, None]]),
    ({"anyOf": [{"contains": STRING}, {"contains": INTEGER}], **END}, [["x", 1], ["x"], [2]], [["x", None], []]),
    ({"contains": STRING, "minContains": 0, **END}, [[], ["x"]], [[1]]),
    ({"allOf": [{**PAIR, "unevaluatedItems": True}], **END}, [[1, 2, "x"]], [["x"]]),
    ({"not": {**PAIR, **END}}, [[1, 2, 3], ["x"]], [[], [1, 2], {}]),
    ({"not": {"contains": STRING, **END}}, [[], [1], ["x", 1]], [["x"], ["x", "y"]]),
    ({"$schema": DRAFT_2019, "items": [INTEGER], **END}, [[1], []], [[1, 2]]),
    ({"$schema": DRAFT_2019, "items": [INTEGER], "additionalItems": STRING, **END}, [[1, "x"]], [[1, 2]]),
]


@pytest.mark.parametrize("schema, yes, no", [*MEMBERS, *ITEMS], ids=range(len(MEMBERS) + len(ITEMS)))
def test_evaluated_members_and_items(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


def test_contains_evaluates_nothing_before_2020(verify: Verify) -> None:
    """The oracle counts it there too."""
    schema = {"$schema": DRAFT_2019, "items": [True], "contains": STRING, **END}
    verify(schema, [["x"]], [["x", "y"], [1]], oracle=False)


def test_an_extended_tree_is_closed_at_every_level(verify: Verify) -> None:
    tree = {
        "$id": "https://example.org/tree",
        "$dynamicAnchor": "node",
        "type": "object",
        "properties": {"children": {"items": {"$dynamicRef": "#node"}}},
    }
    schema = {
        "$id": "https://example.org/closed",
        "$dynamicAnchor": "node",
        "$ref": "tree",
        "properties": {"label": STRING},
        "unevaluatedProperties": False,
        "$defs": {"tree": tree},
    }
    verify(schema, [{"label": "x", "children": [{"label": "y"}]}], [{"x": 1}, {"children": [{"x": 1}]}])


BRANCHES = [{"properties": {f"k{i}": INTEGER}, "required": [f"k{i}"]} for i in range(40)]


def test_many_branches_need_no_alternative_for_each_set_of_them(verify: Verify) -> None:
    schema = {"type": "object", "anyOf": BRANCHES, **CLOSED}
    every = {f"k{i}": i for i in range(40)}
    verify(schema, [{"k1": 1}, {"k39": 1, "k1": 2}, every], [{}, {"x": 1}, {"k1": "x"}, {"k1": 1, "k2": "x"}])


def test_dependent_schemas_that_evaluate_members_are_told_apart_once(verify: Verify) -> None:
    dependent = {f"k{i}": {"properties": {f"m{i}": INTEGER}} for i in range(8)}
    schema = {"type": "object", "properties": dict.fromkeys(dependent, True), "dependentSchemas": dependent, **CLOSED}
    verify(
        schema, [{"k1": 0, "m1": 1}, {"k0": 0, "k7": 0, "m7": 1}], [{"m1": 1}, {"k1": 0, "m1": "x"}, {"k0": 0, "m1": 1}]
    )


@pytest.mark.parametrize("count", [16, 40])
def test_too_many_alternatives_are_refused_soon(count: int, byte_vocab: Vocabulary) -> None:
    schema = {"type": "object", "allOf": [{"anyOf": [branch, True]} for branch in BRANCHES[:count]], **CLOSED}
    with pytest.raises(ResourceLimit, match="max_cells"):
        compile_json_schema(schema, byte_vocab, limits=Limits(max_seconds=6))


def test_conflicts_are_found(byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsatisfiableSchema):
        compile_json_schema({"type": "object", "required": ["b"], "allOf": [A], **CLOSED}, byte_vocab)


def test_a_condition_that_leads_back_to_itself(byte_vocab: Vocabulary) -> None:
    with pytest.raises(SchemaError, match="leads back to itself"):
        compile_json_schema({"if": {"$ref": "#"}, **CLOSED}, byte_vocab)
