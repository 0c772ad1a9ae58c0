"""Relaxed schemas: what a part of a document may lack is null or empty, and nothing else changes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from constrain.errors import ExtractionError
from constrain.extract import Evidence, Quote, Target
from constrain.extract.relaxed import relaxed


class Item(BaseModel):
    sku: str
    amount: int


class Address(BaseModel):
    city: str
    zip: str | None = None


class Invoice(BaseModel):
    kind: Literal["invoice"]
    number: str = Field(description="as printed")
    total: Evidence[Decimal]
    buyer: Quote
    address: Address
    second: Address | None = None
    place: tuple[float, float]
    note: str = ""
    items: list[Item] = Field(min_length=1)


def accepts(schema: dict[str, Any], record: Any) -> bool:
    try:
        Target(schema).read(Target(schema).write(record))
    except ExtractionError:
        return False
    return True


def test_what_a_part_lacks_is_null_or_empty() -> None:
    schema = relaxed(Target.of(Invoice).schema)
    nothing = {
        "kind": "invoice",
        "number": None,
        "total": None,
        "buyer": None,
        "address": {"city": None, "zip": None},
        "second": {"city": None, "zip": None},
        "place": None,
        "items": [],
    }
    assert accepts(schema, nothing) and accepts(schema, {**nothing, "second": None})
    item = {"sku": "a", "amount": 1}
    assert accepts(schema, {**nothing, "items": [item]})
    assert not accepts(schema, {**nothing, "items": [{**item, "amount": None}]})
    assert not accepts(schema, {**nothing, "kind": None})
    assert not accepts(schema, {**nothing, "note": None})
    assert not accepts(schema, {**nothing, "place": [1.0]})
    assert schema["properties"]["number"] == {
        "title": "Number",
        "description": "as printed",
        "anyOf": [{"type": "string"}, {"type": "null"}],
    }


@pytest.mark.parametrize(
    ("schema", "record"),
    [
        ({"type": "integer"}, None),
        ({"enum": ["a", "b"]}, None),
        ({"type": "array", "minItems": 2, "contains": {"const": 1}}, []),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, None),
        ({"allOf": [{"required": ["a"]}], "type": "object"}, None),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, None),
    ],
)
def test_roots_of_every_kind_are_relaxed(schema: dict[str, Any], record: Any) -> None:
    assert not accepts(schema, record)
    assert accepts(relaxed(schema), record)


def test_alternatives_of_several_objects_stay_as_they_are() -> None:
    options = [{"type": "object", "properties": {name: {"type": "string"}}, "required": [name]} for name in "ab"]
    assert relaxed({"anyOf": options})["anyOf"] == [{"anyOf": options}, {"type": "null"}]


def test_recursive_schemas_are_relaxed_once() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}
    schema = relaxed({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert accepts(schema, {"next": None})


def test_what_already_allows_null_stays_as_it_is() -> None:
    for schema in ({}, {"type": ["string", "null"]}, {"enum": [1, None]}, {"const": 1}):
        assert relaxed(schema) == schema
