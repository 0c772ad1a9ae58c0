"""JSON Schema: references to other documents, dynamic references, and documents in several dialects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource
from referencing.jsonschema import DRAFT7, DRAFT202012

from constrain.engine import Vocabulary, compile_json_schema
from constrain.errors import SchemaError, UnsupportedSchema

Judge = Callable[..., bool]
Verify = Callable[..., None]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
INTEGER = {"type": "integer"}

LIST = {
    "$id": "https://example.org/list",
    "$defs": {"item": {"$dynamicAnchor": "item"}},
    "type": "array",
    "items": {"$dynamicRef": "#item"},
}
TREE = {
    "$id": "https://example.org/tree",
    "$dynamicAnchor": "node",
    "type": "object",
    "properties": {"value": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
}
OLD_TREE = {
    "$schema": DRAFT_2019,
    "$id": "https://example.org/old-tree",
    "$recursiveAnchor": True,
    "type": "object",
    "properties": {"children": {"type": "array", "items": {"$recursiveRef": "#"}}},
}
CLOSED = {"value": {"type": "integer"}, "children": True}


def registry(*schemas: dict[str, Any], **named: Any) -> Registry[Any]:
    """Documents under their `$id`, or under `https://example.org/name`."""
    resources = [
        (schema["$id"], Resource.from_contents(schema, default_specification=DRAFT202012)) for schema in schemas
    ]
    for name, schema in named.items():
        resources.append(
            (f"https://example.org/{name}", Resource.from_contents(schema, default_specification=DRAFT202012))
        )
    return Registry().with_resources(resources)


# ---- Dynamic references.

DYNAMIC: list[tuple[Any, list[Any], list[Any]]] = [
    ({**LIST}, [[], [1, "a"]], [3]),
    (
        {
            "$id": "https://example.org/strings",
            "$ref": "list",
            "$defs": {"i": {"$dynamicAnchor": "item", "type": "string"}, "l": LIST},
        },
        [[], ["a"]],
        [[1], ["a", 1], "a"],
    ),
    (  # The outermost anchor counts, and every list within is one of the same items.
        {
            "$id": "https://example.org/outer",
            "$defs": {
                "l": LIST,
                "strings": {
                    "$id": "strings",
                    "$ref": "list",
                    "$defs": {"i": {"$dynamicAnchor": "item", "type": "string"}},
                },
                "i": {"$dynamicAnchor": "item", "type": ["string", "null"]},
            },
            "$ref": "strings",
        },
        [["a", None]],
        [[1]],
    ),
    (  # The same list in two scopes.
        {
            "$id": "https://example.org/both",
            "$defs": {
                "l": LIST,
                "s": {"$id": "s", "$ref": "list", "$defs": {"i": {"$dynamicAnchor": "item", "type": "string"}}},
                "n": {"$id": "n", "$ref": "list", "$defs": {"i": {"$dynamicAnchor": "item", "type": "number"}}},
            },
            "prefixItems": [{"$ref": "s"}, {"$ref": "n"}, {"not": {"$ref": "n"}}],
        },
        [[["a"], [1]], [[], []], [[], [], ["a"]]],
        [[["a"], ["a"]], [[1]], [[], [], [1]]],
    ),
    (  # Without a `$dynamicAnchor` at its first target it is a plain reference.
        {
            "$id": "https://example.org/plain",
            "$defs": {
                "a": {"$anchor": "item", **INTEGER},
                "l": {"$id": "l", "$defs": {"i": {"$dynamicAnchor": "item"}}},
            },
            "items": {"$dynamicRef": "#item"},
        },
        [[1]],
        [["a"]],
    ),
    ({"items": {"$dynamicRef": "#/$defs/a"}, "$defs": {"a": {"$dynamicAnchor": "x", **INTEGER}}}, [[1]], [["a"]]),
    (  # An extension that closes every level.
        {
            "$id": "https://example.org/closed",
            "$dynamicAnchor": "node",
            "$defs": {"t": TREE},
            "$ref": "tree",
            "properties": CLOSED,
            "additionalProperties": False,
        },
        [{"value": 1, "children": [{"value": 2, "children": []}]}],
        [{"x": 1}, {"children": [{"x": 1}]}, {"children": [{"value": "a"}]}],
    ),
    (
        {"$defs": {"t": TREE}, "$ref": "https://example.org/tree"},
        [{"x": 1, "children": [{"x": 2}]}],
        [{"children": [1]}],
    ),
    (
        {
            "$schema": DRAFT_2019,
            "$id": "https://example.org/closed",
            "$recursiveAnchor": True,
            "$defs": {"t": OLD_TREE},
            "$ref": "old-tree",
            "properties": {"children": True},
            "additionalProperties": False,
        },
        [{"children": [{"children": []}]}],
        [{"x": 1}, {"children": [{"x": 1}]}],
    ),
    (
        {
            "$schema": DRAFT_2019,
            "$id": "https://example.org/open",
            "$defs": {"t": OLD_TREE},
            "$ref": "old-tree",
            "properties": {"children": True},
            "additionalProperties": False,
        },
        [{"children": [{"x": 1, "children": []}]}],
        [{"x": 1}, {"children": [1]}],
    ),
]


@pytest.mark.parametrize("schema, yes, no", DYNAMIC, ids=range(len(DYNAMIC)))
def test_dynamic_references(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


@pytest.mark.parametrize("keyword, value", [("$dynamicRef", "#x"), ("$dynamicRef", 5), ("$ref", ["#"])])
def test_dynamic_references_to_nothing(keyword: str, value: Any, byte_vocab: Vocabulary) -> None:
    with pytest.raises(SchemaError) as error:
        compile_json_schema({"items": {keyword: value}}, byte_vocab)
    assert (error.value.pointer, error.value.keyword) == ("/items", keyword)


# ---- Other documents.


def test_documents_of_a_registry(judge: Judge) -> None:
    person = {"$id": "https://example.org/person", "properties": {"born": {"$ref": "types#/$defs/year"}}}
    types = {"$id": "https://example.org/types", "$defs": {"year": {"type": "integer", "minimum": 1900}}}
    schema = {"$id": "https://example.org/list", "items": {"$ref": "person"}}
    known = registry(person, types)
    assert judge(schema, [{"born": 1950}], registry=known)
    assert not judge(schema, [{"born": 1850}], registry=known)


def test_documents_within_documents(judge: Judge) -> None:
    """An identifier below the root is found too, and counts as it stands there."""
    inner = {"$id": "nested/inner", "items": {"$ref": "other"}}
    outer = {"$id": "https://example.org/outer", "$defs": {"a": inner}}
    known = registry(outer, **{"nested/other": INTEGER})
    assert judge({"$ref": "https://example.org/nested/inner"}, [1], registry=known)
    assert not judge({"$ref": "https://example.org/nested/inner"}, ["a"], registry=known)


def test_a_document_with_two_names(judge: Judge) -> None:
    known = registry(alias={"$id": "https://example.net/x/name", "$ref": "next"}).with_contents(
        [("https://example.net/x/next", INTEGER)], default_specification=DRAFT202012
    )
    assert judge({"$ref": "https://example.org/alias"}, 1, registry=known)
    assert not judge({"$ref": "https://example.org/alias"}, "a", registry=known)


def test_recursion_through_another_document(judge: Judge) -> None:
    schema = {"$id": "https://example.org/a", "type": "array", "items": {"$ref": "b"}}
    known = registry(b={"type": "object", "additionalProperties": {"$ref": "a"}})
    assert judge(schema, [{"x": [{"y": []}]}], registry=known)
    assert not judge(schema, [{"x": [[]]}], registry=known)


def test_places_in_other_documents_name_them(byte_vocab: Vocabulary) -> None:
    known = registry(bad={"$defs": {"x": {"type": "text"}}})
    with pytest.raises(SchemaError) as error:
        compile_json_schema({"$ref": "https://example.org/bad#/$defs/x"}, byte_vocab, registry=known)
    assert (error.value.document, error.value.pointer) == ("https://example.org/bad", "/$defs/x")
    assert str(error.value).startswith("https://example.org/bad#/$defs/x (type): ")

    report = compile_json_schema(
        {"$ref": "https://example.org/good"}, byte_vocab, registry=registry(good={"items": INTEGER})
    ).report
    assert ("", "items", "", "https://example.org/good") in report.enforced


def test_values_in_other_documents_that_are_no_json(byte_vocab: Vocabulary) -> None:
    known = registry(bad={"properties": {"x": {"const": {1, 2}}}})
    with pytest.raises(SchemaError) as error:
        compile_json_schema({"$ref": "https://example.org/bad"}, byte_vocab, registry=known)
    assert (error.value.document, error.value.pointer) == ("https://example.org/bad", "/properties/x/const")


def test_documents_are_fetched_only_by_the_registry(byte_vocab: Vocabulary, judge: Judge) -> None:
    asked: list[str] = []

    def retrieve(uri: str) -> Resource[Any]:
        asked.append(uri)
        if uri.endswith("/integer"):
            return DRAFT202012.create_resource(INTEGER)
        raise NoSuchResource(uri)

    known: Registry[Any] = Registry(retrieve=retrieve)  # type: ignore[call-arg]
    assert judge({"items": {"$ref": "https://example.org/integer"}}, [1], registry=known)
    assert asked == ["https://example.org/integer"]
    for some in (known, None):
        with pytest.raises(UnsupportedSchema, match="neither part of this schema nor in the registry") as error:
            compile_json_schema({"items": {"$ref": "https://example.org/none"}}, byte_vocab, registry=some)
        assert (error.value.pointer, error.value.keyword) == ("/items", "$ref")


# ---- Dialects.

DIALECTS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"$schema": DRAFT_4, "const": 1, "contains": INTEGER, "propertyNames": False}, [2, [], {"a": 1}], []),
    ({"$schema": DRAFT_4, "items": {"not": {"const": 1}}}, [[]], [[1], [2]]),
    (
        {"$schema": DRAFT_7, "minContains": 2, "contains": INTEGER, "dependentRequired": {"a": ["b"]}},
        [[1], {"a": 1}],
        [[]],
    ),
    ({"$schema": DRAFT_7, "$ref": "#/definitions/a", "$id": "x", "definitions": {"a": INTEGER}}, [1], ["a"]),
    ({"$schema": DRAFT_2019, "prefixItems": [INTEGER]}, [["a"]], []),
    (
        {
            "$defs": {
                "a": {"$id": "a", "$schema": DRAFT_7, "$ref": "#/$defs/b", "maximum": 1, "$defs": {"b": INTEGER}}
            },
            "$ref": "a",
        },
        [2],
        ["a", 1.5],
    ),
    (
        {
            "$id": "https://example.org/",
            "items": {"$schema": DRAFT_7, "const": 1, "$ref": "#/$defs/a"},
            "$defs": {"a": INTEGER},
        },
        [[1]],
        [[2]],
    ),
]


@pytest.mark.parametrize("schema, yes, no", DIALECTS, ids=range(len(DIALECTS)))
def test_each_dialect_has_its_keywords(schema: Any, yes: list[Any], no: list[Any], judge: Judge) -> None:
    for expected, instances in ((True, yes), (False, no)):
        for instance in instances:
            assert judge(schema, instance) is expected, instance


def test_documents_of_a_registry_have_their_own_dialect(judge: Judge) -> None:
    old = {"$schema": DRAFT_7, "$ref": "#/definitions/a", "maximum": 1, "definitions": {"a": INTEGER}}
    known = Registry().with_contents([("https://example.org/old", old)], default_specification=DRAFT7)
    assert judge({"items": {"$ref": "https://example.org/old"}}, [5], registry=known)
    assert not judge({"items": {"$ref": "https://example.org/old"}}, ["a"], registry=known)


def test_a_metaschema_of_the_registry_is_a_dialect(judge: Judge) -> None:
    meta = {
        "$schema": DRAFT,
        "$id": "https://example.org/meta",
        "$vocabulary": {
            "https://json-schema.org/draft/2020-12/vocab/core": True,
            "https://json-schema.org/draft/2020-12/vocab/applicator": True,
        },
    }
    schema = {"$schema": "https://example.org/meta", "properties": {"a": {"type": "integer"}, "b": False}}
    assert judge(schema, {"a": "x"}, registry=registry(meta))
    assert not judge(schema, {"b": 1}, registry=registry(meta))


@pytest.mark.parametrize("uri", ["http://json-schema.org/draft-03/schema#", "https://example.org/meta", "draft7"])
def test_unknown_dialects_are_refused(uri: str, byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsupportedSchema, match="neither draft 4, 6, 7, 2019-09 or 2020-12 nor a metaschema") as error:
        compile_json_schema({"$schema": uri, "type": "integer"}, byte_vocab)
    assert (error.value.pointer, error.value.keyword) == ("", "$schema")


@pytest.mark.parametrize(
    "uri", ["http://json-schema.org/schema#", "https://json-schema.org/draft-07/schema", DRAFT + "#"]
)
def test_uris_of_dialects(uri: str, byte_vocab: Vocabulary) -> None:
    compile_json_schema({"$schema": uri, "type": "integer"}, byte_vocab)
