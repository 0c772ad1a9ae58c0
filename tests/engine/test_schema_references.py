"""JSON Schema: references, recursion, and the dialects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Vocabulary, compile_json_schema
from constrain.errors import SchemaError, UnsatisfiableSchema, UnsupportedSchema
from constrain.testing import byte_vocabulary

Verify = Callable[..., None]
Judge = Callable[..., bool]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_6 = "http://json-schema.org/draft-06/schema#"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"

TREE = {
    "$defs": {"tree": {"properties": {"value": {"type": "integer"}, "children": {"items": {"$ref": "#/$defs/tree"}}}}},
    "$ref": "#/$defs/tree",
}
MUTUAL = {
    "$defs": {
        "even": {"type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/odd"}},
        "odd": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"$ref": "#/$defs/even"}},
    },
    "$ref": "#/$defs/even",
}
INTEGER = {"type": "integer"}

CASES: list[tuple[Any, list[Any], list[Any]]] = [
    ({"$defs": {"a": INTEGER}, "$ref": "#/$defs/a"}, [1], ["x"]),
    ({"definitions": {"a": INTEGER}, "items": {"$ref": "#/definitions/a"}}, [[1]], [["x"]]),
    ({"properties": {"a": INTEGER, "b": {"$ref": "#/properties/a"}}}, [{"b": 1}], [{"b": "x"}]),
    (
        {
            "properties": {
                "a": {"type": "string", "default": INTEGER},
                "b": {"type": "string", "default": {"type": "null"}},
                "c": {"$ref": "#/properties/b/default"},
            }
        },
        [{"c": None}],
        [{"c": 1}],
    ),
    ({"$defs": {"a/b~c d%": INTEGER}, "$ref": "#/$defs/a~1b~0c%20d%25"}, [1], ["x"]),
    ({"$defs": {"a": {"prefixItems": [True, INTEGER]}}, "$ref": "#/$defs/a/prefixItems/1"}, [1], ["x"]),
    ({"$defs": {"": {"": INTEGER}}, "$ref": "#/$defs//"}, [1], ["x"]),
    ({"$defs": {"a": {"$anchor": "here", **INTEGER}}, "$ref": "#here"}, [1], ["x"]),
    ({"$defs": {"a": {"$id": "item.json", **INTEGER}}, "$ref": "item.json"}, [1], ["x"]),
    (
        {
            "$id": "https://example.org/root.json",
            "$defs": {"a": {"$id": "a.json", **INTEGER}},
            "items": {"$ref": "https://example.org/a.json"},
        },
        [[1]],
        [["x"]],
    ),
    (
        {
            "$id": "https://example.org/x/root.json",
            "$defs": {"a": {"$id": "/y/", "$defs": {"b": {"$id": "b.json", **INTEGER}}}},
            "$ref": "/y/b.json",
        },
        [1],
        ["x"],
    ),
    ({"$defs": {"a": {"$id": "a.json", "$defs": {"b": INTEGER}, "$ref": "#/$defs/b"}}, "$ref": "a.json"}, [1], ["x"]),
    ({"$defs": {"a": {"$id": "a.json", "$defs": {"b": {"$anchor": "b", **INTEGER}}}}, "$ref": "a.json#b"}, [1], ["x"]),
    ({"$defs": {"a": {"$id": "urn:example:a", **INTEGER}}, "$ref": "urn:example:a"}, [1], ["x"]),
    (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": INTEGER}, "$ref": "#/$defs/a"},
        [1],
        ["x"],
    ),
    ({"$defs": {"a": {"minimum": 3}}, "$ref": "#/$defs/a", "maximum": 5}, [3, 5], [2, 6]),
    ({"$defs": {"a": False}, "properties": {"x": {"$ref": "#/$defs/a"}}}, [{}], [{"x": 1}]),
    ({"properties": {"$ref": INTEGER}}, [{"$ref": 1}], [{"$ref": "x"}]),
    ({"properties": {"$ref": {"$ref": "#/$defs/a"}}, "$defs": {"a": INTEGER}}, [{"$ref": 1}], [{"$ref": "x"}]),
    ({"const": {"$ref": "#/nowhere"}}, [{"$ref": "#/nowhere"}], [{}]),
    ({"enum": [{"$id": "a.json"}], "$defs": {"b": {"$id": "a.json", **INTEGER}}}, [{"$id": "a.json"}], [1]),
    (
        TREE,
        [{}, {"value": 1, "children": [{"value": 2}, {"children": [{}]}]}],
        [{"children": [{"value": "x"}]}, {"value": None}],
    ),
    (MUTUAL, [[], [[[]]], [[[[[]]]]]], [[[]], [[[[]]]], [[], []]]),
    ({"items": {"$ref": "#"}}, [[], [[], [[1]]], 3], []),
    ({"type": "array", "items": {"$ref": "#"}}, [[], [[], [[]]]], [[1], [[None]]]),
    (
        {"properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
        [{"next": {"next": {}}}],
        [{"next": {"x": 1}}],
    ),
    (
        {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}]},
        [None, {"a": {"a": None}}],
        [{}, {"a": {}}],
    ),
    (
        {
            "$defs": {
                "a": {"properties": {"x": {"type": "integer"}, "next": {"$ref": "#/$defs/a"}}},
                "b": {"properties": {"x": {"minimum": 3}, "next": {"$ref": "#/$defs/b"}}},
            },
            "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        },
        [{"x": 3, "next": {"x": 4, "next": {}}}],
        [{"x": 2}, {"next": {"x": 3.5}}, {"next": {"next": {"x": 1}}}],
    ),
]


@pytest.mark.parametrize("schema, yes, no", CASES, ids=lambda value: str(value)[:60])
def test_references(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


def test_recursion_has_no_depth_of_its_own(judge: Judge) -> None:
    assert judge(TREE, b'{"children":[' * 1000 + b"{}" + b"]}" * 1000)
    assert not judge(TREE, b'{"children":[' * 1000 + b"1.5}" + b"]}" * 1000)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {
            "$defs": {
                "a": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/b"}},
                "b": {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/$defs/a"}}},
            },
            "$ref": "#/$defs/a",
        },
    ],
    ids=["object", "array", "mutual"],
)
def test_recursion_without_an_end_has_no_instances(schema: Any, byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsatisfiableSchema):
        compile_json_schema(schema, byte_vocab)


@pytest.mark.parametrize(
    "schema, pointer",
    [
        ({"$ref": "#"}, ""),
        ({"allOf": [{"$ref": "#"}]}, ""),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, ""),
        (
            {
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
                "items": {"$ref": "#/$defs/a"},
            },
            "/items",
        ),
    ],
    ids=["self", "allOf", "anyOf", "through-two"],
)
def test_references_that_only_lead_to_themselves(schema: Any, pointer: str, byte_vocab: Vocabulary) -> None:
    with pytest.raises(SchemaError, match="leads back to itself") as error:
        compile_json_schema(schema, byte_vocab)
    assert (error.value.pointer, error.value.keyword) == (pointer, "$ref")


@pytest.mark.parametrize(
    "reference, type_, reason",
    [
        ("#/$defs/b", SchemaError, "leads nowhere: there is no 'b'"),
        ("#/$defs/a/type/1", SchemaError, "leads nowhere"),
        ("#/$defs/list/2", SchemaError, "leads nowhere"),
        ("#/$defs/list/x", SchemaError, "leads nowhere"),
        ("#/$defs/list/-1", SchemaError, "leads nowhere"),
        ("#nowhere", SchemaError, "there is no anchor 'nowhere'"),
        ("other.json", UnsupportedSchema, "the document 'other.json' is neither part of this schema"),
        ("https://example.org/a.json#/x", UnsupportedSchema, "https://example.org/a.json"),
        ("#/$defs/number", SchemaError, "a schema is an object or a boolean"),
        (5, SchemaError, "a reference is a string"),
        (None, SchemaError, "a reference is a string"),
    ],
)
def test_references_to_nothing(reference: Any, type_: type[SchemaError], reason: str, byte_vocab: Vocabulary) -> None:
    schema = {
        "properties": {"x": {"$ref": reference}},
        "$defs": {"a": {"type": ["null"]}, "list": [True, {}], "number": 5},
    }
    with pytest.raises(type_, match=None) as error:
        compile_json_schema(schema, byte_vocab)
    assert reason in error.value.reason
    assert error.value.pointer == ("/$defs/number" if reference == "#/$defs/number" else "/properties/x")


# ---- Dialects.

DIALECTS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"$schema": DRAFT_4, "minimum": 5, "exclusiveMinimum": True}, [6, 5.5], [5, 4]),
    ({"$schema": DRAFT_4, "minimum": 5, "exclusiveMinimum": False}, [5], [4]),
    ({"$schema": DRAFT_4, "maximum": 5, "exclusiveMaximum": True}, [4], [5]),
    (
        {
            "$schema": DRAFT_4,
            "id": "http://example.org/r",
            "definitions": {"a": {"id": "a", **INTEGER}},
            "items": {"$ref": "a"},
        },
        [[1]],
        [["x"]],
    ),
    (
        {
            "$schema": DRAFT_7,
            "definitions": {"s": {"type": "string"}},
            "items": {"$ref": "#/definitions/s", "maxLength": 1},
        },
        [["abc"]],
        [[1]],
    ),
    (
        {
            "$schema": DRAFT_6,
            "definitions": {"s": {"type": "string"}},
            "items": {"$ref": "#/definitions/s", "type": "null"},
        },
        [["abc"]],
        [[None]],
    ),
    (
        {
            "$schema": DRAFT_4,
            "definitions": {"s": {"type": "string"}},
            "items": {"$ref": "#/definitions/s", "enum": [1]},
        },
        [["abc"]],
        [[1]],
    ),
    (
        {"$schema": DRAFT_2019, "$defs": {"s": {"type": "string"}}, "items": {"$ref": "#/$defs/s", "maxLength": 1}},
        [["a"]],
        [["abc"]],
    ),
    ({"$defs": {"s": {"type": "string"}}, "items": {"$ref": "#/$defs/s", "maxLength": 1}}, [["a"]], [["abc"]]),
    (
        {"$schema": DRAFT_7, "definitions": {"a": {"$id": "#here", **INTEGER}}, "items": {"$ref": "#here"}},
        [[1]],
        [["x"]],
    ),
    (
        {"$schema": DRAFT_7, "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": {"type": "null"}},
        [[], [1], [1, "a", None]],
        [["a"], [1, "a", 1]],
    ),
    ({"$schema": DRAFT_7, "items": [INTEGER], "additionalItems": False}, [[], [1]], [[1, 2], ["x"]]),
    ({"$schema": DRAFT_7, "items": INTEGER, "additionalItems": False}, [[1, 2]], [["x"]]),
    ({"$schema": DRAFT_2019, "items": [INTEGER], "additionalItems": False}, [[1]], [[1, 2]]),
    ({"$schema": DRAFT, "prefixItems": [INTEGER], "items": False}, [[1]], [[1, 2]]),
    ({"$schema": DRAFT_6, "exclusiveMinimum": 5, "const": 6}, [6], [5]),
]


@pytest.mark.parametrize("schema, yes, no", DIALECTS, ids=lambda value: str(value)[:80])
def test_dialects(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


def test_the_older_form_of_tuples_is_supported_everywhere(verify: Verify) -> None:
    """The oracle reads an array there as nothing at all."""
    schema = {"items": [INTEGER, {"type": "string"}], "additionalItems": False}
    verify(schema, [[], [1], [1, "a"]], [["a"], [1, 2], [1, "a", None]], oracle=False)


@pytest.mark.parametrize("reference", ["#/%ff", "#%ff", "#/$defs/%c3%28"])
def test_references_that_are_no_utf8_are_mistakes(reference: str) -> None:
    """Errors quote what percent-encoded bytes stand for."""
    with pytest.raises(SchemaError, match="\ufffd"):
        compile_json_schema({"$ref": reference}, byte_vocabulary())
