"""``oneOf``: branches that exclude each other by their values are not subtracted from each other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from constrain.engine import Vocabulary, compile_json_schema

COUNT = 1000


def branch(kind: Any, **properties: Any) -> dict[str, Any]:
    """An object whose ``kind`` is a constant."""
    return {"properties": {"kind": {"const": kind}, **properties}, "required": ["kind"], "type": "object"}


@pytest.mark.parametrize(
    "one, valid, invalid",
    [
        (lambda i: {"const": f"text {i}", "title": "T"}, "text 999", "text 1000"),
        (lambda i: {"const": i}, 999, 1000),
        (lambda i: branch(i, value={"type": "integer"}), {"kind": 999, "value": 1}, {"kind": 999, "value": "x"}),
        (lambda i: branch(f"k{i}", value={"const": i}), {"kind": "k7", "value": 7}, {"kind": "k7", "value": 8}),
    ],
)
def test_a_thousand_branches_compile(one: Any, valid: Any, invalid: Any, byte_vocab: Vocabulary) -> None:
    grammar = compile_json_schema({"oneOf": [one(i) for i in range(COUNT)]}, byte_vocab)
    assert grammar.accepts(json.dumps(valid)) and not grammar.accepts(json.dumps(invalid))


VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    2,
    1.5,
    "",
    "a",
    "b",
    "c",
    [],
    *({"kind": kind} for kind in ("a", "b", "c", 1, 2, None)),
    *({"kind": kind, "role": role} for kind in ("a", "b", 1) for role in ("a", "x", 5)),
]

LISTS: list[list[Any]] = [
    [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}, {"const": "c"}],
    [{"enum": ["a", 1]}, {"enum": [1.0, "b"]}, {"type": "integer"}],
    [{"enum": ["a", None]}, {"enum": ["b", True]}, {"const": "a"}],
    [{"const": "a"}, {"const": "b"}, {"minLength": 1}],
    [{"const": "a"}, {"const": "a"}, {"const": "b"}],
    [branch("a"), branch("b"), branch(1)],
    [branch("a"), branch("a", role={"const": "x"}), branch("b")],
    [{**branch("a"), "required": ["role", "kind"]}, branch("b"), {"required": ["role"]}],
    [branch("a", role={"enum": ["a", "x"]}), branch("b"), {"type": "object", "properties": {"kind": {"const": 1}}}],
    [branch("a"), {"const": "a"}, {"type": ["object", "string"], "required": ["role"]}],
    [{"anyOf": [branch("a"), branch("b")]}, {"anyOf": [branch("b"), branch(1)]}, branch(2)],
    [{"$ref": "#/$defs/a"}, branch("b", role={"$ref": "#"})],
]


@pytest.mark.parametrize("branches", LISTS, ids=str)
def test_branches_that_overlap(branches: list[Any], byte_vocab: Vocabulary) -> None:
    schema = {"oneOf": branches, "$defs": {"a": branch("a")}}
    grammar, validator = compile_json_schema(schema, byte_vocab), Draft202012Validator(schema)
    accepted = [value for value in VALUES if grammar.accepts(json.dumps(value))]
    assert accepted == [value for value in VALUES if validator.is_valid(value)]
