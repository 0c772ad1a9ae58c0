"""Random schemas over every keyword that is supported, against an independent validator on many small values.

Where the validator accepts a value, so must the grammar, and where it refuses one, so must the grammar.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from constrain.engine import Vocabulary, compile_json_schema
from constrain.errors import ResourceLimit, UnsatisfiableSchema, UnsupportedSchema

Judge = Callable[..., bool]
Random = random.Random

NAMES = ["a", "b", "ab", "c"]
SCALARS = [None, True, False, 0, 1, 2, 3, 5, -1, 0.5, 1.5, 2.5, "", "a", "b", "ab", "abc", "é", "🙂x"]
FEW = [None, False, 1, 2.5, "a", "ab"]
VALUES: list[Any] = [
    *SCALARS,
    *([*items] for n in range(3) for items in itertools.product(FEW, repeat=n)),
    [1, 1, 1], [1, "a", None], ["a", "a", "ab", 1], [[]], [[1]], [{}], [{"a": 1}, 1],
    {},
    *({name: value} for name in NAMES for value in [*FEW, [], {}, {"a": 1}, ["a"]]),
    *({p: x, q: y} for p, q in itertools.combinations(NAMES, 2) for x in (1, "a") for y in (2.5, "b")),
    {"a": 1, "b": 1, "ab": 1}, {"a": "a", "b": None, "c": {}}, {"a": {"a": 1, "b": 1}}, {"a": {"a": {"b": 1}}},
    {"a": 1, "b": 2, "ab": 3, "c": 5}, {"b": {"b": {}}, "c": [{}]},
]  # fmt: skip


def schema(rng: Random, depth: int) -> Any:
    """A schema of a few keywords, with references among them where the root is."""
    if rng.random() < 0.06:
        return rng.random() < 0.7
    keywords = [*LEAVES, *(COMBINED if depth else [])]
    made: dict[str, Any] = {}
    for keyword in rng.sample(keywords, rng.choice([1, 1, 2, 2, 3])):
        made |= keyword(rng, depth - 1)
    return made


def type_(rng: Random, depth: int) -> Any:
    names = ["null", "boolean", "integer", "number", "string", "array", "object"]
    return {"type": rng.choice(names) if rng.random() < 0.5 else rng.sample(names, rng.randint(1, 4))}


def constant(rng: Random, depth: int) -> Any:
    some = rng.sample(VALUES, rng.randint(1, 4))
    return {"enum": some} if rng.random() < 0.6 else {"const": some[0]}


def number(rng: Random, depth: int) -> Any:
    keyword = rng.choice(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
    return (
        {keyword: rng.choice([0, 1, 2, 2.5, 3])} if rng.random() < 0.7 else {"multipleOf": rng.choice([1, 2, 0.5, 1.5])}
    )


def string(rng: Random, depth: int) -> Any:
    choices = [{"minLength": rng.randint(0, 3)}, {"maxLength": rng.randint(0, 3)}]
    return rng.choice([*choices, {"pattern": rng.choice(["^a", "b$", "a", "^[ab]+$", "^.b?$"])}])


def sizes(rng: Random, depth: int) -> Any:
    what = rng.choice(["Items", "Properties"])
    return {rng.choice(["min", "max"]) + what: rng.randint(0, 3)}


def unique(rng: Random, depth: int) -> Any:
    return {"uniqueItems": True}


def required(rng: Random, depth: int) -> Any:
    return {"required": rng.sample(NAMES, rng.randint(1, 2))}


def dependent(rng: Random, depth: int) -> Any:
    return {"dependentRequired": {rng.choice(NAMES): rng.sample(NAMES, rng.randint(0, 2))}}


def members(rng: Random, depth: int) -> Any:
    made: dict[str, Any] = {}
    if rng.random() < 0.8:
        made["properties"] = {name: schema(rng, depth) for name in rng.sample(NAMES, rng.randint(1, 3))}
    if rng.random() < 0.25:
        made["patternProperties"] = {pattern: schema(rng, depth) for pattern in rng.sample(["^a", "b$", "c"], 1)}
    if rng.random() < 0.5:
        made["additionalProperties"] = rng.choice([False, False, schema(rng, depth)])
    return made


def names(rng: Random, depth: int) -> Any:
    return {
        "propertyNames": rng.choice(
            [{"maxLength": 1}, {"pattern": "^a"}, {"enum": ["a", "c"]}, {"not": {"const": "b"}}]
        )
    }


def items(rng: Random, depth: int) -> Any:
    made: dict[str, Any] = {}
    if rng.random() < 0.4:
        made["prefixItems"] = [schema(rng, depth) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.8:
        made["items"] = schema(rng, depth)
    return made


def contains(rng: Random, depth: int) -> Any:
    made: dict[str, Any] = {"contains": schema(rng, depth)}
    if rng.random() < 0.5:
        made[rng.choice(["minContains", "maxContains"])] = rng.randint(0, 2)
    return made


def several(rng: Random, depth: int) -> Any:
    return {rng.choice(["anyOf", "allOf", "oneOf", "oneOf"]): [schema(rng, depth) for _ in range(rng.randint(1, 3))]}


def negation(rng: Random, depth: int) -> Any:
    return {"not": schema(rng, depth)}


def condition(rng: Random, depth: int) -> Any:
    return {"if": schema(rng, depth), rng.choice(["then", "else"]): schema(rng, depth)}


def dependent_schema(rng: Random, depth: int) -> Any:
    return {"dependentSchemas": {rng.choice(NAMES): schema(rng, depth)}}


def unevaluated(rng: Random, depth: int) -> Any:
    """Seldom alone, since other keywords determine what is evaluated."""
    keyword, others = rng.choice([("unevaluatedProperties", members), ("unevaluatedItems", items)])
    several = {rng.choice(["anyOf", "oneOf", "allOf"]): [others(rng, 0) for _ in range(rng.randint(1, 2))]}
    return {keyword: rng.choice([False, False, schema(rng, 0)]), **rng.choice([{}, others(rng, 0)]), **several}


def reference(rng: Random, depth: int) -> Any:
    return {"$ref": rng.choice(["#/$defs/one", "#/$defs/two"])}


LEAVES = [type_, constant, number, string, sizes, unique, required, dependent]
COMBINED = [
    members,
    members,
    names,
    items,
    contains,
    several,
    several,
    negation,
    condition,
    dependent_schema,
    unevaluated,
    reference,
]


def random_document(rng: Random) -> Any:
    """A schema whose definitions refer to one another only by way of members and items, so that they have a meaning."""
    one, inner = without_references(schema(rng, 1)), without_references(schema(rng, 1))
    root = schema(rng, 3)
    if isinstance(root, bool):
        return root
    two = {"properties": {"a": {"$ref": "#/$defs/two"}, "b": inner}}
    return {**root, "$defs": {"one": one, "two": two}}


def without_references(node: Any) -> Any:
    if isinstance(node, dict):
        return {keyword: without_references(value) for keyword, value in node.items() if keyword != "$ref"}
    return [without_references(item) for item in node] if isinstance(node, list) else node


def compare(document: Any, vocabulary: Vocabulary, judge: Judge) -> str | None:
    """How the grammar and the validator disagree about some value, or None."""
    validator = jsonschema.Draft202012Validator(document)
    valid = [value for value in VALUES if validator.is_valid(value)]
    try:
        grammar = compile_json_schema(document, vocabulary)
    except (UnsupportedSchema, ResourceLimit):
        return None
    except UnsatisfiableSchema:
        return f"unsatisfiable, but {valid[0]!r} is valid" if valid else None
    for value in VALUES:
        expected = any(value is one for one in valid)
        if judge(grammar, value) is not expected:
            return f"{'refuses' if expected else 'accepts'} {json.dumps(value)}"
    return None


@pytest.mark.seeds(400)
def test_random_schemas(seed: int, byte_vocab: Vocabulary, judge: Judge, tally: Counter[str]) -> None:
    document = random_document(Random(seed))
    tally["random schemas compared with jsonschema"] += 1
    if complaint := compare(document, byte_vocab, judge):
        pytest.fail(f"{json.dumps(document)}\n{complaint}")
