"""JSON Schema: arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Matcher, Vocabulary, compile_json_schema
from constrain.errors import UnsatisfiableSchema

Verify = Callable[..., None]
Allowed = Callable[[Matcher, int], list[int]]

CASES: list[tuple[Any, list[Any], list[Any]]] = [
    ({"items": {"type": "integer"}}, [[], [1], [1, -2, 3], "x", {}], [["x"], [1, None], [1.5]]),
    ({"items": True}, [[], [1, "x"]], []),
    ({"items": False}, [[], 5], [[1], [None]]),
    ({"items": {"items": {"type": "boolean"}}}, [[[True]], [[], [False, True]], [5]], [[[1]], [[True], ["x"]]]),
    ({"prefixItems": [{"type": "integer"}, {"type": "string"}]}, [[], [1], [1, "a"], [1, "a", None]], [["a"], [1, 2]]),
    ({"prefixItems": [{"const": 1}], "items": {"const": 2}}, [[], [1], [1, 2, 2]], [[2], [1, 1], [1, 2, 3]]),
    ({"prefixItems": [{"const": 1}, {"const": 2}], "items": False}, [[], [1], [1, 2]], [[1, 2, 3], [2]]),
    ({"prefixItems": [True, False]}, [[], [1]], [[1, 2], [1, 2, 3]]),
    ({"prefixItems": [False]}, [[]], [[1]]),
    ({"minItems": 1}, [[1], [1, 2], "x"], [[]]),
    ({"maxItems": 0}, [[]], [[1]]),
    ({"maxItems": 2}, [[], [1], [1, 2]], [[1, 2, 3]]),
    ({"minItems": 2, "maxItems": 2}, [[1, 2]], [[], [1], [1, 2, 3]]),
    ({"minItems": 3, "items": {"type": "null"}}, [[None] * 3, [None] * 7], [[None] * 2, [None, None, 1]]),
    ({"minItems": 2.0, "maxItems": 3.0}, [[1, 2]], [[1]]),
    (
        {"prefixItems": [{"const": "a"}], "minItems": 3, "maxItems": 4},
        [["a", 1, 2], ["a", 1, 2, 3]],
        [["a", 1], ["b", 1, 2]],
    ),
    ({"prefixItems": [{"const": 1}, {"const": 2}, {"const": 3}], "maxItems": 2}, [[], [1], [1, 2]], [[1, 2, 3]]),
    ({"type": "array", "minItems": 100, "maxItems": 101}, [[0] * 100, [0] * 101], [[0] * 99, [0] * 102]),
    (
        {"allOf": [{"minItems": 1, "items": {"minimum": 3}}, {"maxItems": 2, "items": {"maximum": 5}}]},
        [[3], [5, 4]],
        [[], [6], [2], [3, 3, 3]],
    ),
    ({"allOf": [{"prefixItems": [{"minimum": 3}]}, {"items": {"maximum": 5}}]}, [[3], [5, 1], []], [[2], [6], [3, 6]]),
    (
        {"allOf": [{"prefixItems": [True, {"type": "string"}]}, {"prefixItems": [{"type": "null"}]}]},
        [[None, "a"]],
        [[1], [None, 1]],
    ),
    ({"items": {"anyOf": [{"type": "array", "maxItems": 0}, {"type": "integer"}]}}, [[1, [], 2]], [[[1]]]),
]


@pytest.mark.parametrize("schema, yes, no", CASES, ids=lambda value: str(value)[:50])
def test_arrays(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"type": "array", "items": False, "minItems": 1},
        {"type": "array", "prefixItems": [True, False], "minItems": 2},
        {"type": "array", "prefixItems": [True], "items": {"type": "integer", "enum": [0.5]}, "minItems": 2},
    ],
    ids=str,
)
def test_arrays_without_instances(schema: Any, byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsatisfiableSchema):
        compile_json_schema(schema, byte_vocab)


def test_a_full_array_only_closes(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}
    matcher = compile_json_schema(schema, byte_vocab, whitespace="compact").matcher()
    assert matcher.accept_bytes(b"[")
    assert bytes(allowed(matcher, 257)) == b"ft"
    assert matcher.accept_bytes(b"true")
    assert bytes(allowed(matcher, 257)) == b","
    assert matcher.accept_bytes(b",false")
    assert bytes(allowed(matcher, 257)) == b"]"


def test_ten_thousand_items(verify: Verify) -> None:
    verify({"items": {"type": "integer"}}, [list(range(10_000))], [[*range(10_000), "x"]])
    verify({"minItems": 9_999, "maxItems": 10_000}, [[0] * 10_000], [[0] * 10_001, [0] * 9_998])


def test_many_bounds_do_not_cost_states(byte_vocab: Vocabulary) -> None:
    small = compile_json_schema({"type": "array", "items": {"type": "null"}, "maxItems": 3}, byte_vocab)
    large = compile_json_schema({"type": "array", "items": {"type": "null"}, "maxItems": 10**6}, byte_vocab)
    for grammar in (small, large):
        assert grammar.matcher().accept_bytes(b"[null, null, null]")
    assert large.core.states == small.core.states
