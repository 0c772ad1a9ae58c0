"""JSON Schema: `uniqueItems`. Items are compared as values, not as texts."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from walks import walk

from constrain.engine import Matcher, Vocabulary, compile_json_schema
from constrain.errors import ResourceLimit, UnsatisfiableSchema, UnsupportedSchema

Verify = Callable[..., None]
Judge = Callable[..., bool]
Allowed = Callable[[Matcher, int], list[int]]


def distinct(items: Any = True, **keywords: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True, **keywords}


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def one_of(*values: Any) -> dict[str, Any]:
    return {"enum": list(values)}


BOOLEAN, STRING, INTEGER = {"type": "boolean"}, {"type": "string"}, {"type": "integer"}

CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (distinct(), [[], [1], [1, 2, "1", None, True, False, [], {}]], [[1, 1], [None, 1, None], ["a", "b", "a"]]),
    (distinct(), [[True, 1], [False, 0], [[True], [1]], [{"a": 0}, {"a": False}]], [[[1, []], [1, []]]]),
    (distinct(), [[[1, 2], [2, 1]], [{}, [], ""]], [[{}, {}], [[], []], [{"a": [1]}, {"a": [1]}]]),
    (distinct(), [[{"a": 1, "b": 2}, {"a": 2, "b": 1}]], [[{"a": 1, "b": 2}, {"b": 2, "a": 1}]]),
    (
        distinct({"type": "number"}),
        [b"[1,10,1e2,0.1,-1]", b"[1, 1.5]"],
        [b"[1,1.0]", b"[100,1e2]", b"[0,-0.0]", b"[0.5,5e-1]"],
    ),
    (
        distinct(STRING),
        [["a", "A", ""], [b"a".decode(), "aa"]],
        [b'["a","\\u0061"]', b'["/","\\/"]', b'["\\n","\\u000A"]', '["🙂","\\ud83d\\ude42"]'.encode()],
    ),
    (distinct({"type": "object"}), [[{"a": {}}, {"a": []}]], [b'[{"\\u001f":1},{"\\u001F":1}]']),
    (distinct(INTEGER, minItems=2, maxItems=3), [[1, 12], [1, 11, 111]], [[1], [1, 2, 1], [1, 2, 3, 4]]),
    (distinct(one_of("a", "b", "ab")), [["ab", "a", "b"]], [["a", "b", "ab", "a"], ["ab", "ab"]]),
    (distinct(distinct(BOOLEAN)), [[[], [True, False], [False, True]]], [[[True, True]], [[True], [True]]]),
    (distinct(closed(["a"], a=STRING)), [[{"a": ""}, {"a": "x"}]], [[{"a": "x"}, {"a": "x"}]]),
    ({"allOf": [{"uniqueItems": True}, {"items": BOOLEAN}]}, [[True, False], 5, "x", {}], [[True, True]]),
    ({"anyOf": [distinct(), {"items": INTEGER}]}, [[1, 1], ["a", 1]], [["a", "a"]]),
    ({"oneOf": [distinct(STRING), INTEGER]}, [["a", "b"], 7], [["a", "a"], [1]]),
    ({"uniqueItems": True, "maxItems": 1}, [[], [1]], [[1, 2]]),
    ({"uniqueItems": True, "const": [1, 2]}, [[1, 2]], [[1], [2, 1]]),
    ({"uniqueItems": True, "enum": [[1, 1], [1, 2], "x"]}, [[1, 2], "x"], [[1, 1]]),
    (distinct(contains={"const": "a"}), [["a"], ["b", "a", 1]], [[], ["b"], ["a", "a"]]),
    (distinct(contains=BOOLEAN, minContains=2), [[True, False], [False, 1, True]], [[True], [True, 1]]),
    (distinct(contains=STRING, maxContains=1), [["a", 1, 2]], [["a", "b"], [1, 1, "a"]]),
    (distinct(prefixItems=[BOOLEAN, BOOLEAN]), [[True, False, 1], [False]], [[True, True], [False, True, 0, 0]]),
    (
        distinct(False, prefixItems=[STRING, one_of("a"), one_of("a", "b")], minItems=3),
        [["", "a", "b"], ["ab", "a", "b"]],
        [["a", "a", "b"], ["b", "a", "b"], ["x", "a"]],
    ),
    (
        {"$defs": {"t": distinct({"$ref": "#/$defs/t"})}, "$ref": "#/$defs/t"},
        [[], [[]], [[], [[]]], [[[], [[]]], [[]], []]],
        [[[], []], [[[]], [[]]], [[[], []]]],
    ),
    (
        {"properties": {"next": {"$ref": "#"}, "set": distinct({"$ref": "#"})}, "additionalProperties": False},
        [{"set": [{}, {"set": []}, {"set": [{}]}, 1]}],
        [{"set": [{}, {}]}, {"next": {"set": [{"set": [1, 1]}]}}],
    ),
]


@pytest.mark.parametrize("schema, yes, no", CASES, ids=lambda value: str(value)[:50])
def test_instances(schema: Any, yes: list[Any], no: list[Any], verify: Verify, judge: Judge) -> None:
    verify(schema, yes, no)
    for instance in yes:
        if not isinstance(instance, bytes):
            for text in (json.dumps(instance, indent=1), json.dumps(instance, separators=(",", ":"))):
                assert judge(compile_json_schema(schema, Vocabulary.from_tokens([b"x", b""], [1])), text.encode())


@pytest.mark.parametrize(
    "schema",
    [
        distinct(BOOLEAN, minItems=3),
        distinct(one_of(1, 2), minItems=3),
        distinct(one_of(0.5, 1.5), minItems=3),
        distinct({"type": "null"}, minItems=2),
        distinct({"type": "string", "maxLength": 0}, minItems=2),
        distinct({"type": "string", "pattern": "^[ab]{0,2}$"}, minItems=8),
        distinct({"type": "integer", "minimum": 0, "maximum": 9}, minItems=11),
        distinct({"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 1}, minItems=4),
        distinct(closed(["a", "b"], a=BOOLEAN, b=BOOLEAN), minItems=5),
        distinct(distinct(BOOLEAN), minItems=6),
        distinct(distinct(BOOLEAN, minItems=3), minItems=1),
        distinct({"anyOf": [one_of("a"), {"type": "string", "pattern": "^[ab]$"}]}, minItems=3),
        distinct(contains={"const": 1}, minContains=2),
        distinct(BOOLEAN, contains=one_of(1, True), minContains=2),
        distinct(prefixItems=[one_of(1), one_of(1)], minItems=2),
        distinct(prefixItems=[one_of(1, 2), one_of(1, 2), one_of(2, 1)], minItems=3),
        {"uniqueItems": True, "const": [1, 1]},
        closed(["x"], x=distinct(BOOLEAN, minItems=3)),
        {"type": "array", "items": distinct(BOOLEAN, minItems=3), "contains": True},
        {"type": "array", "prefixItems": [distinct(BOOLEAN, minItems=3)], "contains": {"type": "null"}},
    ],
    ids=lambda schema: str(schema)[:70],
)
def test_too_few_values(schema: Any, byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsatisfiableSchema):
        compile_json_schema(schema, byte_vocab)


def test_optional_items_with_too_few_values_are_excluded(verify: Verify) -> None:
    full = distinct(BOOLEAN, minItems=3)
    verify(closed([], x=full, y=INTEGER), [{}, {"y": 1}], [{"x": [True, False, True]}, {"x": [True, False]}, {"x": []}])
    verify({"anyOf": [full, INTEGER]}, [1], [[], [True, False]])


STEPS: list[tuple[Any, list[tuple[bytes, bytes]]]] = [
    (
        distinct(BOOLEAN, minItems=2),
        [(b"[", b"ft"), (b"[true", b","), (b"[true,", b"f"), (b"[true,false", b"]"), (b"[true,false]", b"")],
    ),
    (
        distinct(one_of("a", "ab", "b")),
        [(b'["a"', b",]"), (b'["a",', b'"'), (b'["a","', b"ab"), (b'["a","a', b"b"), (b'["a","b","', b"a")],
    ),
    (
        distinct(INTEGER),
        [
            *((b"[1,1", b"0123456789"), (b"[1.0,1", b"0123456789")),
            *((b"[1,12", b",.0123456789]"), (b"[-1,-", b"123456789")),
        ],
    ),
    (
        distinct({"type": "integer", "minimum": 0, "maximum": 2}),
        [(b"[0,1", b",.]"), (b"[0,1.0,", b"2"), (b"[0,1,2", b".]"), (b"[0,1,2.", b"0"), (b"[0,1,2.0", b"]")],
    ),
    (
        distinct(closed(["a"], a=BOOLEAN)),
        [(b'[{"a":true},{"a":', b"f"), (b'[{"a":true},{"a":false}', b"]"), (b'[{"a":true},{"', b"a")],
    ),
    (
        distinct(closed(["a", "b"], a=one_of(1, 2), b=one_of(1, 2))),
        [
            (b'[{"a":1,"b":1},{"b":1,"a":', b"2"),
            (b'[{"a":1,"b":1},{"b":2,"a":', b"12"),
            (b'[{"a":1,"b":1},{"a":2,"b":1},{"b":', b"2"),
            (b'[{"a":1,"b":1},{"a":2,"b":1},{"a":1,"b":2},{"', b"ab"),
            (b'[{"a":1,"b":1},{"a":2,"b":1},{"a":1,"b":2},{"b":', b"2"),
        ],
    ),
    (
        distinct({"type": "array", "items": BOOLEAN, "maxItems": 1}),
        [(b"[[true],[", b"]f"), (b"[[true],[],[", b"f"), (b"[[true],[],[false]", b"]")],
    ),
    (
        distinct(False, prefixItems=[one_of("a", "b"), one_of("a")], minItems=2),
        [(b'["', b"b"), (b'["b",', b'"'), (b'["b","a"', b"]")],
    ),
    (
        distinct(one_of("a", "b"), contains={"const": "a"}),
        [(b"[", b'"'), (b'["b"', b","), (b'["b","', b"a"), (b'["a"', b",]")],
    ),
]


@pytest.mark.parametrize("schema, steps", STEPS, ids=lambda value: str(value)[:50])
def test_the_next_byte(schema: Any, steps: list[tuple[bytes, bytes]], byte_vocab: Vocabulary, allowed: Allowed) -> None:
    grammar = compile_json_schema(schema, byte_vocab, whitespace="compact")
    for text, following in steps:
        matcher = grammar.matcher()
        assert matcher.accept_bytes(text), text
        assert bytes(token for token in allowed(matcher, 257) if token < 256) == following, text


def test_a_string_ends_where_its_object_is_new(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    """The quotation mark is refused already, as nothing but the end of the object could follow it."""
    one, two = closed(["name"], name=STRING), closed(["name"], name=STRING, age=INTEGER)
    text = b'[{"name":"Jo"},{"name":"Jo'
    for schema, may_end in ((one, False), (two, True)):
        matcher = compile_json_schema(distinct(schema), byte_vocab, whitespace="compact").matcher()
        assert matcher.accept_bytes(text)
        assert (ord('"') in allowed(matcher, 257)) is may_end
        assert ord("e") in allowed(matcher, 257) and ord("\\") in allowed(matcher, 257)


@pytest.mark.seeds(12)
def test_all_arrays_in_all_serialisations(seed: int, byte_vocab: Vocabulary, judge: Judge) -> None:
    rng = random.Random(seed)
    values = [1, 10, 1.5, "1", True, None, [1], [1, 1], {}, {"a": 1}, {"b": 1, "a": 2}, {"a": {"b": 1, "a": []}}]
    some = rng.sample(values, 4)
    schema = distinct({"anyOf": [one_of(*some[:3]), one_of(*some[1:])]})
    grammar = compile_json_schema(schema, byte_vocab)
    validator = jsonschema.Draft202012Validator(schema)
    for items in itertools.product(some, repeat=3):
        for text in (respelled(list(items), rng) for _ in range(3)):
            assert judge(grammar, text.encode()) is validator.is_valid(list(items)), text


def respelled(value: Any, rng: random.Random) -> str:
    """A value with random white space, member order and zeros."""
    space = rng.choice(["", " ", "\n  "]) if value else ""
    if isinstance(value, dict):
        members = [f'"{name}":{space}{respelled(value[name], rng)}' for name in rng.sample(list(value), len(value))]
        return "{" + space + f",{space}".join(members) + space + "}"
    if isinstance(value, list):
        return "[" + space + f",{space}".join(respelled(item, rng) for item in value) + space + "]"
    return json.dumps(value) + (rng.choice(["", "0"]) if isinstance(value, float) else "")


WALKED: list[Any] = [
    distinct(STRING),
    distinct({"type": "string", "maxLength": 2, "minLength": 2}, minItems=3),
    distinct({"type": "string", "pattern": "^[ab]{0,2}$"}, minItems=4),
    distinct({"type": "number"}),
    distinct({"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 1.5}, minItems=2),
    distinct(one_of(1, 2, 2.5, "1", None, True)),
    distinct(distinct(distinct(one_of(1, 2)), maxItems=2)),
    distinct(closed(["a"], a=STRING, b=one_of(1, 1.5)), minItems=2),
    distinct({**closed([], a=BOOLEAN, b=BOOLEAN), "minProperties": 1}),
    distinct({"patternProperties": {"^[xy]$": BOOLEAN}, "additionalProperties": False, "type": "object"}),
    distinct({"anyOf": [closed(["k"], k=one_of("x"), v=BOOLEAN), closed(["k"], k=one_of("x", "y"), v=STRING)]}),
    distinct(True, contains=closed(["a"], a=one_of(1)), maxItems=4),
    distinct(BOOLEAN, prefixItems=[one_of("a", True), STRING, one_of("a", "b")], minItems=4),
    closed(["x"], x=distinct(closed(["x"], x=distinct(BOOLEAN, minItems=1))), y=distinct(BOOLEAN)),
]
OPTIONS: list[dict[str, Any]] = [{}, {"whitespace": "compact"}, {"property_order": "schema"}, {"whitespace": "any"}]
INDENTED: list[dict[str, Any]] = [{"whitespace": 2}, {"whitespace": 1, "property_order": "schema"}]


@pytest.mark.parametrize("schema", WALKED, ids=lambda schema: str(schema)[:70])
def test_random_texts_are_valid(schema: Any, bpe_vocab: Vocabulary) -> None:
    rng = random.Random(str(schema))
    validator = jsonschema.Draft202012Validator(json.loads(json.dumps(schema), parse_float=Decimal))
    for options in (OPTIONS + INDENTED) * 3:
        document = walk(compile_json_schema(schema, bpe_vocab, **options), rng, rng.choice([2, 10, 30]), structure=0.7)
        validator.validate(json.loads(document, parse_float=Decimal))


@pytest.mark.parametrize(
    "schema, pointer",
    [
        ({"not": {"uniqueItems": True}}, "/not"),
        ({"properties": {"a": {"if": distinct(), "then": False}}}, "/properties/a/if"),
        ({"oneOf": [distinct(), {"minItems": 1}]}, "/oneOf/0"),
        (
            {"properties": {"a": distinct(prefixItems=[BOOLEAN], contains={"const": 1}, minItems=2)}},
            "/properties/a",
        ),
    ],
    ids=str,
)
def test_unsupported_combinations(schema: Any, pointer: str, byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsupportedSchema) as error:
        compile_json_schema(schema, byte_vocab)
    assert (error.value.pointer, error.value.keyword) == (pointer, "uniqueItems")


def test_limits(byte_vocab: Vocabulary) -> None:
    with pytest.raises(ResourceLimit, match="different_items=4096"):
        compile_json_schema(distinct(minItems=5000), byte_vocab)
    schema = {"$defs": {"t": distinct({"$ref": "#/$defs/t"})}, "$ref": "#/$defs/t"}
    with pytest.raises(ResourceLimit, match="max_nesting"):
        compile_json_schema(schema, byte_vocab).matcher().accept_bytes(b"[" * 5000)


def test_many_items(judge: Judge) -> None:
    many = list(range(3000))
    assert judge(distinct(INTEGER), many)
    assert not judge(distinct(INTEGER), [*many, 1234])


def test_histories_share_nothing_that_changes(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    matcher = compile_json_schema(distinct(one_of("a", "b", "c")), byte_vocab, whitespace="compact").matcher()
    assert matcher.accept_bytes(b'["a",') and matcher.accept_bytes(b'"b"')
    other = matcher.clone()
    matcher.rollback(1)
    assert matcher.accept_bytes(b'"c","b"]')
    assert other.accept_bytes(b',"') and bytes(allowed(other, 257)) == b"c"


def test_masks_that_depend_on_other_items_are_not_shared(byte_vocab: Vocabulary, allowed: Allowed) -> None:
    """An item has two parse threads; masks of the second one depend on other items as well."""
    items = {"items": {"enum": ["b", "ab", "a"]}, "contains": {"const": "ab"}, "maxContains": 1}
    schema = {"type": "array", "uniqueItems": True, **items}
    grammar = compile_json_schema(schema, byte_vocab, whitespace="compact")
    for used, expected in ((b"a", b"ab"), (b"b", b"a"), (b"a", b"ab")):
        matcher = grammar.matcher()
        assert matcher.accept_bytes(b'["' + used + b'","')
        assert bytes(allowed(matcher, 257)) == expected
