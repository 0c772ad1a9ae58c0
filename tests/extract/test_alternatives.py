"""The alternatives of a value are found in the grammar, whatever the schema says it by."""

from __future__ import annotations

from typing import Any

import pytest

from constrain.engine import compile_json_schema
from constrain.extract.alternatives import MAX_ALTERNATIVES, Alternatives, find_alternatives
from constrain.extract.extraction import PRESENT
from constrain.testing import small_vocabulary

VOCABULARY = small_vocabulary()


def found(schema: Any, before: bytes = b'{"a"', gap: bytes = b": ", **others: Any) -> Alternatives | None:
    properties = {"a": schema, **others}
    whole = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    grammar = compile_json_schema(whole, VOCABULARY, whitespace="single", property_order="schema")
    matcher = grammar.matcher()
    assert matcher.accept_bytes(before)
    alternatives = find_alternatives(matcher, VOCABULARY, gap)
    assert matcher.accept_bytes(gap), "the matcher has not moved"
    return alternatives


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({"type": "boolean"}, {"true", "false"}),
        ({"enum": ["open", "opened", "é\n", None]}, {'"open"', '"opened"', '"é\\n"', "null"}),
        ({"const": "x"}, {'"x"'}),
        ({"type": "integer", "minimum": -1, "maximum": 11}, {str(number) for number in range(-1, 12)}),
        ({"anyOf": [{"const": 1}, {"const": "one"}, {"type": "boolean"}]}, {"1", '"one"', "true", "false"}),
        ({"type": "string", "pattern": "^[ab]{2}$"}, {'"aa"', '"ab"', '"ba"', '"bb"'}),
        ({"$ref": "#/properties/b"}, {'"y"', '"z"'}),
    ],
)
def test_few_values(schema: Any, texts: set[str]) -> None:
    alternatives = found(schema, b={"enum": ["y", "z"]})
    assert alternatives is not None and set(alternatives.names) == texts and not alternatives.has_others


@pytest.mark.parametrize("other", [{"type": "string"}, {"type": "number"}, {"type": "object"}, {"type": "array"}])
def test_null_or_many(other: Any) -> None:
    alternatives = found({"anyOf": [other, {"type": "null"}]})
    assert alternatives is not None and alternatives.names == ["null", PRESENT]
    assert found(other) is None


def test_too_many_values() -> None:
    most = [f"value {number}" for number in range(MAX_ALTERNATIVES)]
    alternatives = found({"enum": most})
    assert alternatives is not None and len(alternatives.texts) == MAX_ALTERNATIVES
    assert found({"enum": [*most, "another"]}) is None


def test_the_end_of_a_list_is_no_value() -> None:
    alternatives = found({"type": "array", "items": {"enum": ["x", "y"]}}, gap=b": [")
    assert alternatives is not None and set(alternatives.names) == {'"x"', '"y"'}


def test_what_is_left_after_a_beginning() -> None:
    numbers = Alternatives(b": ", (b"1", b"10", b'"1"'))
    assert numbers.remaining(b":") == numbers.remaining(b": ") == (0, 1, 2)
    assert numbers.remaining(b": 1") == (0, 1)
    assert numbers.remaining(b": 1,") == (0,)
    assert numbers.remaining(b": 10") == numbers.remaining(b": 10}") == (1,)
    assert numbers.remaining(b': "1"') == numbers.remaining(b': "1", ') == (2,)
    assert numbers.remaining(b":1") == numbers.remaining(b": 2") == ()
    optional = Alternatives(b": ", (b"null",), has_others=True)
    assert optional.remaining(b": ") == (0, 1)
    assert optional.remaining(b": nu") == optional.remaining(b": null}") == (0,)
    assert optional.remaining(b': "') == optional.remaining(b': "null') == (1,)
