"""Quotes and values with evidence: what the model is asked to write, and the record that is read from it."""

from __future__ import annotations

import enum
import json
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from constrain import Evidence, Quote
from constrain.engine import compile_json_schema
from constrain.errors import ExtractionError, SchemaError
from constrain.extract import Target
from constrain.extract.evidence import Quotation, quote_schema, with_quotes
from constrain.extract.prompts.compact import describe
from constrain.testing import small_vocabulary

DATE: dict[str, Any] = {"type": "string", "format": "date"}
PROOF = quote_schema(200, whole_words=True)


class Status(enum.Enum):
    OPEN = "open"
    PAID = "paid"


class Item(BaseModel):
    name: Quote
    price: Evidence[Decimal]


class Invoice(BaseModel):
    number: Annotated[str, Quote(whole_words=True)]
    issued: Evidence[date]
    due: Evidence[date] | None = None
    status: Evidence[Status]
    items: list[Item]
    remarks: list[Evidence[str]] = []


class Node(BaseModel):
    label: Evidence[str]
    next: Node | None = None


class Cash(BaseModel):
    kind: Literal["cash"]
    paid: Evidence[int]


class Card(BaseModel):
    kind: Literal["card"]
    paid: int


def pair(quote: str, value: Any) -> dict[str, Any]:
    return {"quote": quote, "value": value}


def pair_schema(value: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"quote": PROOF, "value": value},
        "required": ["quote", "value"],
        "additionalProperties": False,
        "x-evidence": True,
    }


# ---- Schemas.


def test_types_become_keywords() -> None:
    properties = Target.of(Invoice).schema["properties"]
    source = {"source": "text", "whole_words": True}
    assert properties["number"] == {
        "title": "Number",
        "type": "string",
        "minLength": 1,
        "maxLength": 500,
        "x-verbatim": source,
    }
    assert properties["issued"] == {"title": "Issued", **DATE, "x-evidence": True}
    assert properties["status"] == {"$ref": "#/$defs/Status", "x-evidence": True}
    assert Target.of(Invoice).schema["$defs"]["Status"] == {
        "enum": ["open", "paid"],
        "title": "Status",
        "type": "string",
    }
    assert Target.of(Quote).schema == quote_schema(500, whole_words=False)
    assert Target.of(Annotated[Quote, Field(max_length=9)]).schema["maxLength"] == 9
    assert Target.of(Annotated[Quote, Field(min_length=900)]).schema["maxLength"] == 900


def test_the_prompt_names_them() -> None:
    assert describe(Target.of(Invoice).schema) == (
        '{"number": quote, "issued": evidence date, "due": evidence date | null, "status": evidence ("open" | "paid"), '
        '"items": [{"name": quote, "price": evidence number}], "remarks"?: [evidence string]}'
    )


def test_a_schema_without_evidence_is_left_as_it_is() -> None:
    schema = {"properties": {"a": {"enum": [{"x-evidence": True}]}, "b": {"default": {"x-evidence": True}}}}
    assert with_quotes(schema) == schema
    assert Target.of(schema).output_schema == schema


def test_a_value_with_evidence_is_written_after_a_quote() -> None:
    schema = {
        "properties": {"a": {**DATE, "x-evidence": True}, "b": {"items": {"$ref": "#/$defs/n", "x-evidence": True}}},
        "$defs": {"n": {"anyOf": [{"type": "null"}, {"type": "integer", "x-evidence": True}]}},
    }
    assert with_quotes(schema) == {
        "properties": {"a": pair_schema(DATE), "b": {"items": pair_schema({"$ref": "#/$defs/n"})}},
        "$defs": {"n": {"anyOf": [{"type": "null"}, pair_schema({"type": "integer"})]}},
    }


def test_references_to_a_value_with_evidence_and_its_definitions_still_hold() -> None:
    schema = {"$defs": {"d": DATE}, "$id": "urn:x", "x-evidence": True, "items": {"$ref": "#/$defs/d"}}
    assert with_quotes(schema) == {
        "$defs": {"d": DATE},
        "$id": "urn:x",
        **pair_schema({"items": {"$ref": "#/$defs/d"}}),
    }


CLOSED = {
    "type": "object",
    "properties": {"status": {"enum": ["open", "paid"], "x-evidence": True}, "paid": {**DATE, "x-evidence": True}},
    "required": ["status"],
    "if": {"properties": {"status": {"const": "paid"}}},
    "then": {"required": ["paid"]},
    "additionalProperties": False,
}


def test_conditions_on_a_value_with_evidence_are_conditions_on_the_value() -> None:
    target = Target.of(CLOSED)
    assert target.output_schema["if"] == {"properties": {"status": {"properties": {"value": {"const": "paid"}}}}}
    grammar = compile_json_schema(target.output_schema, small_vocabulary(), sources={"text": "Paid 3 May"})
    paid = {"status": pair("Paid", "paid"), "paid": pair("3 May", "2026-05-03")}
    assert grammar.accepts(json.dumps(paid))
    assert not grammar.accepts(json.dumps({"status": paid["status"]}))
    assert grammar.accepts(json.dumps({"status": pair("Paid", "open")}))
    assert target.read(json.dumps(paid)).json == {"status": "paid", "paid": "2026-05-03"}


def test_unique_items_with_evidence_are_refused() -> None:
    schema = {"properties": {"a/b": {"type": "array", "items": {"x-evidence": True}, "uniqueItems": True}}}
    with pytest.raises(SchemaError, match="cannot be kept unique") as caught:
        Target.of(schema)
    assert (caught.value.pointer, caught.value.keyword) == ("/properties/a~1b", "uniqueItems")


def test_evidence_is_asked_for_by_true() -> None:
    assert Target.of({"type": "string", "x-evidence": False}).read('"a"').value == "a"
    with pytest.raises(SchemaError, match=r"^#/items \(x-evidence\): must be true or false, not 'yes'"):
        Target.of({"items": {"x-evidence": "yes"}})


STRING = {"type": "string"}


def named(value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": value}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("branches", "accepted", "refused"),
    [
        pytest.param(
            [{**STRING, "x-evidence": True}, {"const": "new"}],
            [pair("old", "old")],
            [pair("new", "new"), "new"],
            id="of a value",
        ),
        pytest.param(
            [{**STRING, "x-evidence": True, "not": {"const": "old"}}, {"const": 1}],
            [pair("new", "new"), 1],
            [pair("old", "old")],
            id="of a value that excludes another",
        ),
        pytest.param(
            [named({**STRING, "x-evidence": True}), named({"const": "new"})],
            [{"a": pair("old", "old")}],
            [{"a": pair("new", "new")}, {"a": "new"}],
            id="of a property",
        ),
    ],
)
def test_a_record_matches_one_of_branches_that_differ_by_evidence(
    branches: list[Any], accepted: list[Any], refused: list[Any]
) -> None:
    target = Target.of({"oneOf": branches})
    grammar = compile_json_schema(target.output_schema, small_vocabulary(), sources={"text": "old new"})
    for written in accepted:
        assert grammar.accepts(json.dumps(written))
        target.read(json.dumps(written))
    for written in refused:
        assert not grammar.accepts(json.dumps(written))


# ---- Records.


def test_a_record_is_read_without_its_quotes() -> None:
    written = {
        "number": "INV-7",
        "issued": pair("March 3rd, 2026", "2026-03-03"),
        "due": None,
        "status": pair("not paid", "open"),
        "items": [{"name": "pears", "price": pair("$4.50", 4.5)}, {"name": "figs", "price": pair("$1", 1)}],
        "remarks": [pair("now", "soon")],
    }
    reading = Target.of(Invoice).read(json.dumps(written))
    assert reading.value == Invoice(
        number="INV-7",
        issued=date(2026, 3, 3),
        status=Status.OPEN,
        items=[Item(name="pears", price=Decimal("4.5")), Item(name="figs", price=Decimal(1))],
        remarks=["soon"],
    )
    assert reading.json["items"][0] == {"name": "pears", "price": 4.5}
    assert reading.quotations == [
        Quotation(("number",), "INV-7", True),
        Quotation(("issued",), "March 3rd, 2026", True),
        Quotation(("status",), "not paid", True),
        Quotation(("items", 0, "name"), "pears", False),
        Quotation(("items", 0, "price"), "$4.50", True),
        Quotation(("items", 1, "name"), "figs", False),
        Quotation(("items", 1, "price"), "$1", True),
        Quotation(("remarks", 0), "now", True),
    ]


def test_evidence_in_recursive_types() -> None:
    written = {"label": pair("a", "A"), "next": {"label": pair("b", "B"), "next": None}}
    reading = Target.of(Node).read(json.dumps(written))
    assert reading.value == Node(label="A", next=Node(label="B"))
    assert [each.path for each in reading.quotations] == [("label",), ("next", "label")]


PAYMENT = Annotated[Cash | Card, Field(discriminator="kind")]


@pytest.mark.parametrize(
    ("what", "written", "json_", "paths"),
    [
        (Evidence[date], pair("x", "2026-03-03"), "2026-03-03", [()]),
        (Evidence[Invoice | int], pair("x", 3), 3, [()]),
        (
            Evidence[Cash],
            pair("x", {"kind": "cash", "paid": pair("y", 2)}),
            {"kind": "cash", "paid": 2},
            [(), ("paid",)],
        ),
        (list[PAYMENT], [{"kind": "cash", "paid": pair("y", 2)}], [{"kind": "cash", "paid": 2}], [(0, "paid")]),
        (list[PAYMENT], [{"kind": "card", "paid": 2}], [{"kind": "card", "paid": 2}], []),
        (Evidence[PAYMENT], pair("x", {"kind": "card", "paid": 2}), {"kind": "card", "paid": 2}, [()]),
        (dict[str, Evidence[int] | None], {"a": None, "b": pair("x", 1)}, {"a": None, "b": 1}, [("b",)]),
        (Evidence[int | None], pair("none", None), None, [()]),
        (tuple[Evidence[int], Quote], [pair("x", 1), "y"], [1, "y"], [(0,), (1,)]),
        (Evidence[Quote], pair("an x", "x"), "x", [(), ()]),
        ({"items": {"x-evidence": True}}, [pair("x", {"quote": 1, "value": 2})], [{"quote": 1, "value": 2}], [(0,)]),
        ({"x-evidence": True, "$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, pair("x", 1), 1, [()]),
    ],
)
def test_evidence_anywhere(what: Any, written: Any, json_: Any, paths: list[Any]) -> None:
    target = Target.of(what)
    grammar = compile_json_schema(target.output_schema, small_vocabulary(), sources={"text": "an x y none"})
    assert grammar.accepts(json.dumps(written))
    reading = target.read(json.dumps(written))
    assert reading.json == json_
    assert [each.path for each in reading.quotations] == paths


def test_only_the_alternative_that_holds_decides_what_is_evidence() -> None:
    plain = {"type": "object", "properties": {"quote": {"type": "string"}, "value": {"type": "boolean"}}}
    target = Target.of({"anyOf": [{"type": "integer", "x-evidence": True}, plain]})
    assert target.read('{"quote": "x", "value": 1}').json == 1
    assert target.read('{"quote": "x", "value": true}').json == {"quote": "x", "value": True}


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"]
)
def test_older_drafts(draft: str) -> None:
    target = Target.of(
        {
            "$schema": draft,
            "definitions": {"d": DATE},
            "properties": {"a": {"$ref": "#/definitions/d", "x-evidence": True}, "b": quote_schema(9, False)},
        }
    )
    reading = target.read('{"a": {"quote": "May", "value": "2026-05-01"}, "b": "x"}')
    assert reading.json == {"a": "2026-05-01", "b": "x"}
    assert [each.text for each in reading.quotations] == ["May", "x"]


def test_the_record_itself_is_validated_too() -> None:
    target = Target.of({"items": {"x-evidence": True}, "allOf": [{"uniqueItems": True}]})
    with pytest.raises(ExtractionError, match="does not match the schema at #:"):
        target.read(json.dumps([pair("x", 1), pair("y", 1)]))


# ---- Optional fields.


class Optional(BaseModel):
    due: date | None = None
    anything: Any = None
    count: int | None = Field(default=None, alias="n")
    kept: int | None = 3
    lost: int = None  # type: ignore[assignment]
    tags: list[str] = []


def test_fields_that_are_none_by_default_are_asked_for() -> None:
    target = Target.of(Optional)
    assert target.schema["required"] == ["due", "anything", "n"]
    assert target.read('{"due": null, "anything": null, "n": null}').value == Optional()
    assert target.read('{"due": "2026-05-01", "anything": 1, "n": 2}').value == Optional(
        due=date(2026, 5, 1), anything=1, n=2
    )


def test_dict_schemas_keep_their_optional_fields() -> None:
    schema = {"properties": {"due": {"anyOf": [DATE, {"type": "null"}], "default": None}}}
    assert Target.of(schema).output_schema == schema


def test_decimals_are_numbers() -> None:
    assert Target.of(Annotated[Decimal, Field(ge=0)]).schema == {"type": "number", "minimum": 0}
    assert Target.of(Decimal).read("2.50").value == Decimal("2.5")


def test_decimals_have_as_many_digits_as_their_type_allows() -> None:
    """Else records would be refused by their type, though they match the schema."""
    price = Target.of(Annotated[Decimal, Field(max_digits=5, decimal_places=2)])
    limits = {"exclusiveMinimum": -1000, "exclusiveMaximum": 1000, "multipleOf": 0.01}
    assert price.schema == {"type": "number", **limits}
    assert price.read("-999.99").value == Decimal("-999.99")
    for refused in ("1.005", "1000", "-1000.00"):
        with pytest.raises(ExtractionError, match="does not match the schema"):
            price.read(refused)
    rate = Target.of(Annotated[Decimal, Field(decimal_places=6, ge=0, le=1, multiple_of=Decimal("0.25"))])
    assert rate.schema == {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25}
