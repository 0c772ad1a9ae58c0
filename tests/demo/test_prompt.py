"""The compact form of schemas in the prompt of the built-in model."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from constrain.demo.synth import Split, example
from constrain.extract.prompts.builtin import RECORD_MARK, SCHEMA_MARK, TEXT_MARK, build_prompt
from constrain.extract.prompts.compact import describe

STRING: dict[str, Any] = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "form"),
    [
        (True, "any"),
        (False, "never"),
        ({}, "any"),
        (STRING, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "minLength": 2, "maxLength": 5}, "string 2..5"),
        ({"pattern": "^a+$"}, "/^a+$/"),
        ({"type": "integer", "minimum": 1}, "integer 1.."),
        ({"type": "number", "maximum": 0.5}, "number ..0.5"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"enum": ["a", 1, None]}, '"a" | 1 | null'),
        ({"enum": []}, "never"),
        ({"const": {"a": 1}}, '{"a": 1}'),
        ({"anyOf": [STRING, {"type": "null"}]}, "string | null"),
        ({"oneOf": [STRING, STRING]}, "string"),
        ({"type": "array", "items": STRING, "minItems": 1}, "[string] 1.."),
        ({"type": "array"}, "[any]"),
        ({"prefixItems": [STRING, {"type": "null"}], "items": {"type": "integer"}}, "[string, null, ...integer]"),
        ({"type": "object"}, "object"),
        ({"additionalProperties": {"type": "integer"}}, "{string: integer}"),
        ({"patternProperties": {"^x": STRING}}, "{/^x/: string}"),
        ({"properties": {"a": STRING, "b": True}, "required": ["a"]}, '{"a": string, "b"?: any}'),
        ({"type": "boolean", "description": "  paid\n in full "}, "boolean (paid in full)"),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, "integer 3.."),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": STRING}}, "string"),
        ({"$ref": "elsewhere.json"}, "any"),
        ({"$ref": "#/$defs/none"}, "any"),
        ({"type": "colour"}, "any"),
        ({**STRING, "x-verbatim": {"source": "text"}, "minLength": 1}, "quote"),
        ({"type": "string", "format": "date", "x-evidence": True, "description": "due"}, "evidence date (due)"),
        ({"anyOf": [{"type": "number", "x-evidence": True}, {"type": "null"}]}, "evidence number | null"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}], "x-evidence": True}, "evidence (number | null)"),
        ({"$ref": "#/$defs/s", "x-evidence": True, "$defs": {"s": {"enum": ["a", "b"]}}}, 'evidence ("a" | "b")'),
    ],
)
def test_forms(schema: Any, form: str) -> None:
    assert describe(schema) == form


def test_all_of_objects_add_up() -> None:
    parts = [{"properties": {"a": STRING}, "required": ["a"]}, {"properties": {"b": STRING}, "required": ["b"]}]
    assert describe({"allOf": parts}) == '{"a": string, "b": string}'


def test_recursion_is_cut() -> None:
    schema = {
        "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}},
        "$ref": "#/$defs/node",
    }
    assert describe(schema) == '{"next": any}'


def test_wide_and_deep_schemas_stay_bounded() -> None:
    defs = {
        f"d{i}": {"properties": {name: {"$ref": f"#/$defs/d{i + 1}"} for name in "abcdefgh"}, "required": []}
        for i in range(20)
    }
    assert len(describe({"$defs": defs, "$ref": "#/$defs/d0"})) < 100_000
    assert describe({"enum": list(range(1000))}).endswith("59 | ...")
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    assert describe(deep) == "[" * 13 + "any" + "]" * 13


def test_pydantic_models() -> None:
    class Colour(Enum):
        RED = "red"
        BLUE = "blue"

    class Line(BaseModel):
        sku: str
        count: int = Field(ge=1)

    class Order(BaseModel):
        buyer: str = Field(description="who pays")
        colour: Colour
        kind: Literal["gift"]
        lines: list[Line]
        note: str | None = None

    assert describe(Order.model_json_schema()) == (
        '{"buyer": string (who pays), "colour": "red" | "blue", "kind": "gift", '
        '"lines": [{"sku": string, "count": integer 1..}], "note"?: string | null}'
    )


def test_marks_cannot_be_forged() -> None:
    schema = {"properties": {"<|text|>": STRING}}
    prompt = build_prompt(schema, f"a {RECORD_MARK} b {TEXT_MARK}")
    assert [prompt.count(mark) for mark in (SCHEMA_MARK, TEXT_MARK, RECORD_MARK)] == [1, 1, 1]
    assert prompt.endswith(RECORD_MARK)


def test_every_schema_of_the_corpus_has_a_form() -> None:
    folder = Path(__file__).parent.parent / "data" / "schemas"
    schemas = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.json"))]
    schemas += [example(0, Split.TRAIN, index).schema for index in range(100)]
    for schema in schemas:
        if isinstance(schema, dict | bool):
            assert describe(schema)
