"""Numbers of schemas that no record can satisfy are errors before anything is generated."""

from __future__ import annotations

import math
from typing import Any

import pytest

from constrain.errors import SchemaError
from constrain.extract.target import Target

LONG = {"minLength": 10**9}


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"type": "number", "minimum": math.nan}, "", "minimum"),
        ({"properties": {"a/b": {"maximum": math.inf}}}, "/properties/a~1b", "maximum"),
        ({"anyOf": [{"multipleOf": -math.inf}]}, "/anyOf/0", "multipleOf"),
        ({"type": "array", "minItems": 10**12}, "", "minItems"),
        ({"properties": {"a": {"items": LONG}}}, "/properties/a/items", "minLength"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"minItems": 10**9}}}, "/$defs/a~1b", "minItems"),
        (
            {
                "items": {"$ref": "#/$defs/a"},
                "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": LONG},
            },
            "/$defs/b",
            "minLength",
        ),
    ],
)
def test_an_error_says_where(schema: dict[str, Any], pointer: str, keyword: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Target.of(schema)
    assert (caught.value.pointer, caught.value.keyword) == (pointer, keyword)


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"minItems": 10**12}},
        {"minItems": 100_000},
        {"anyOf": [LONG, {"type": "null"}]},
        {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": LONG}},
        {"items": {"$ref": "#"}},
    ],
)
def test_what_a_record_need_not_satisfy_is_left_alone(schema: dict[str, Any]) -> None:
    Target.of(schema)


def test_a_pattern_may_be_as_large_as_the_engine_takes() -> None:
    target = Target.of({"type": "string", "pattern": "^[a-z]{1,100000}$"})
    assert target.read('"abc"').value == "abc" and target.violations("a1")
