"""Default bounds of extraction: what a schema leaves open cannot run on, and what it says is kept."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

import constrain
from constrain.engine import compile_json_schema
from constrain.extract import Target
from constrain.extract.bounds import bounded, max_length
from constrain.testing import accepts, small_vocabulary

MOST = 10**15 - 1


def takes(schema: dict[str, Any], text: str, length: int = 300) -> bool:
    return accepts(compile_json_schema(bounded(schema, length), small_vocabulary()), text)


@pytest.mark.parametrize(
    ("schema", "short", "long"),
    [
        ({"type": "integer"}, "9" * 15, "9" * 16),
        ({"type": "integer"}, "-" + "9" * 15, "-" + "9" * 16),
        ({"type": "integer", "minimum": 5}, "9" * 15, "9" * 16),
        ({"type": "integer", "exclusiveMaximum": 5}, "-" + "9" * 15, "-" + "9" * 16),
        ({"type": "integer", "multipleOf": 10}, "10", "1" + "0" * 15),
        ({"type": "number"}, "9" * 15, "9" * 16),
        ({"type": "number"}, "1.5e-7", "1e15"),
        ({"type": ["integer", "null"]}, "null", "9" * 16),
        ({"type": "string"}, json.dumps("é" * 300), json.dumps("é" * 301)),
        ({"type": ["string", "integer"]}, json.dumps("a" * 300), json.dumps("a" * 301)),
        (
            {"type": "string", "format": "uri"},
            json.dumps("http://a.b/" + "a" * 289),
            json.dumps("http://a.b/" + "a" * 290),
        ),
        ({"type": "string", "format": "nonsense"}, json.dumps("a" * 300), json.dumps("a" * 301)),
        ({"type": "string", "format": "duration"}, '"P999999Y11M20DT7H1M999999S"', '"P1000000Y"'),
        ({"type": "string", "format": "duration", "pattern": "^P"}, '"P999999D"', '"P1000000D"'),
        ({"type": "string", "pattern": "^a*$"}, json.dumps("a" * 300), json.dumps("a" * 301)),
        ({"type": "string", "pattern": "[A-Z]"}, json.dumps("A" * 300), json.dumps("A" * 301)),
        ({"type": "string", "pattern": "(?!a)b(?=c)"}, json.dumps("bc" * 150), json.dumps("bc" * 151)),
        ({"type": "string", "minLength": 310}, json.dumps("a" * 310), json.dumps("a" * 311)),
    ],
    ids=str,
)
def test_what_is_open_is_bounded(schema: dict[str, Any], short: str, long: str) -> None:
    assert takes(schema, short) and not takes(schema, long)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "maximum": 10**20}, "1" + "0" * 20),
        ({"type": "integer", "minimum": 10**20}, "1" + "0" * 21),
        ({"type": "number", "exclusiveMaximum": -(10**20)}, "-1" + "0" * 21),
        ({"enum": [10**20, "a" * 400]}, json.dumps("a" * 400)),
        ({"type": "integer", "const": 10**20}, "1" + "0" * 20),
        ({"type": "string", "maxLength": 400}, json.dumps("a" * 400)),
        ({"type": "string", "pattern": "^a{0,400}$"}, json.dumps("a" * 400)),
        ({"type": "string", "format": "uri", "maxLength": 500}, json.dumps("http://a.b/" + "a" * 400)),
        ({}, json.dumps("a" * 400)),
    ],
    ids=str,
)
def test_what_a_schema_says_is_kept(schema: dict[str, Any], text: str) -> None:
    assert takes(schema, text)


@pytest.mark.parametrize(
    ("schema", "around"),
    [
        ({"type": "array", "items": {"type": "integer"}}, "[{}]"),
        ({"type": "array", "prefixItems": [{"type": "integer"}]}, "[{}]"),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{{"a": {}}}'),
        ({"type": "object", "patternProperties": {"^a": {"type": "integer"}}}, '{{"ab": {}}}'),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, '{{"b": {}}}'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "{}"),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, "{}"),
        ({"allOf": [{"type": "integer"}]}, "{}"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, "{}"),
        ({"$ref": "#/definitions/n", "definitions": {"n": {"type": "integer"}}}, "{}"),
    ],
    ids=str,
)
def test_bounds_reach_every_place(schema: dict[str, Any], around: str) -> None:
    assert takes(schema, around.format(36)) and not takes(schema, around.format("36" + "0" * 14))


def test_what_is_denied_is_denied_as_it_stands() -> None:
    schema = {"type": "string", "not": {"type": "string", "minLength": 2}, "if": {"type": "string"}}
    assert bounded(schema, 300) == {**schema, "maxLength": 300}


def test_the_schema_itself_is_not_changed() -> None:
    schema = {"properties": {"a": {"type": "integer"}}, "items": [{"type": "string"}]}
    copy = json.loads(json.dumps(schema))
    assert bounded(schema, 9) != schema and schema == copy
    assert bounded(True, 9) is True


@pytest.mark.parametrize(("text", "length"), [("", 256), ("a" * 127, 256), ("a" * 128, 512), ("a" * 1000, 2048)])
def test_strings_may_be_twice_as_long_as_the_text(text: str, length: int) -> None:
    assert max_length(text) == length


@pytest.fixture(scope="module")
def llm() -> constrain.LLM:
    return constrain.load()


def test_a_digit_cannot_run_on(llm: constrain.LLM) -> None:
    """The built-in model repeats zeros after a number that stands alone."""
    found = llm.extract(int, "Ada Lovelace is 36 years old.")
    assert str(found.value).startswith("36") and len(found.text) <= 15


def test_a_schema_with_nothing_within_the_bounds_goes_without(llm: constrain.LLM) -> None:
    schema = {"type": "integer", "allOf": [{"minimum": 10**17}, {"maximum": 10**17 + 5}]}
    assert 0 <= llm.extract(schema, "a large number").value - 10**17 <= 5
    assert Target.of(schema).schema == schema


def test_durations_within_the_bounds_are_durations_of_python() -> None:
    longest = '"P999999Y999999M999999DT999999H999999M999999S"'
    assert takes({"type": "string", "format": "duration"}, longest)
    assert Target.of(timedelta).read(longest).value == timedelta(396041976, 55539)
