"""JSON Schemas that are small to write and large to compile, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Schema = Any
Source = tuple[str, Callable[[], Schema]]

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def sources() -> Iterator[Source]:
    """Every schema, by name; each is made when it is called for."""
    families = {
        nested: (10, 200, 505, 600, 3_000),
        doubling: (8, 40, 62, 70, 200),
        doubling_arrays: (10, 63, 150),
        product_of_unions: (4, 8, 12, 16, 24),
        overlapping: (4, 8, 12, 20, 60),
        exclusive_objects: (4, 8, 16, 40),
        conditions: (8, 16, 32, 100),
        negations: (4, 8, 16, 64),
        pattern_products: (2, 4, 8, 16),
        key_patterns: (4, 8, 12, 24),
        many_keys: (1_000, 5_000, 20_000),
        dependencies: (8, 30, 64, 300),
        counts: (10**3, 10**6, 10**9, 10**18, 2**64, 10**40),
        unevaluated: (4, 8, 12, 20),
        different: (3, 8, 40, 1_000),
        enumerations: (1_000, 10_000, 50_000),
        contained: (2, 5, 12, 40),
        large_numbers: (20, 300, 5_000),
        references: (2, 10, 300, 5_000),
    }
    for family, sizes in families.items():
        for size in sizes:
            for variant, make in family(size).items():
                yield f"{family.__name__}-{variant}-{size}", make


def nested(depth: int) -> dict[str, Callable[[], Schema]]:
    """One schema in another."""
    wraps: dict[str, Callable[[Schema], Schema]] = {
        "properties": lambda s: {"type": "object", "properties": {"a": s}, "required": ["a"]},
        "items": lambda s: {"type": "array", "items": s, "minItems": 1},
        "prefixItems": lambda s: {"type": "array", "prefixItems": [s]},
        "allOf": lambda s: {"allOf": [s, {"type": ["object", "string"]}]},
        "anyOf": lambda s: {"anyOf": [s, {"type": "object", "properties": {"a": s}}]},
        "oneOf": lambda s: {"oneOf": [s, {"type": "null"}]},
        "not": lambda s: {"not": {"properties": {"a": s}}},
        "if": lambda s: {"if": s, "then": {"minLength": 1}, "else": s},
        "contains": lambda s: {"type": "array", "contains": s},
        "const": lambda s: {"const": {"a": s.get("const", 1)}},
    }

    def wrap(by: Callable[[Schema], Schema]) -> Schema:
        schema: Schema = {"type": "string"}
        for _ in range(depth):
            schema = by(schema)
        return schema

    return {name: partial(wrap, by) for name, by in wraps.items()}


def doubling(levels: int) -> dict[str, Callable[[], Schema]]:
    """Definitions that need the one before twice: the shortest document doubles with each."""

    def objects(keyword: str) -> Schema:
        definitions: dict[str, Schema] = {"d0": {"type": "integer"}}
        for level in range(1, levels + 1):
            below = {"$ref": f"#/$defs/d{level - 1}"}
            definitions[f"d{level}"] = {"type": "object", keyword: {"a": below, "b": below}, "required": ["a", "b"]}
        return {"$defs": definitions, "$ref": f"#/$defs/d{levels}"}

    def unions() -> Schema:
        definitions: dict[str, Schema] = {"d0": {"type": "integer"}}
        for level in range(1, levels + 1):
            below = {"$ref": f"#/$defs/d{level - 1}"}
            definitions[f"d{level}"] = {"anyOf": [{"type": "array", "items": below}, below, {"allOf": [below, below]}]}
        return {"$defs": definitions, "$ref": f"#/$defs/d{levels}"}

    return {"properties": partial(objects, "properties"), "unions": unions}


def doubling_arrays(levels: int) -> dict[str, Callable[[], Schema]]:
    """Arrays of arrays, each with a least number of items."""

    def lengths(least: int, more: Schema) -> Schema:
        schema: Schema = {"enum": [0, 1]}
        for _ in range(levels):
            schema = {"type": "array", "items": schema, "minItems": least, **more}
        return schema

    return {
        "two": partial(lengths, 2, {}),
        "many": partial(lengths, 10**6, {}),
        "unique": partial(lengths, 2, {"uniqueItems": True}),
        "bounded": partial(lengths, 2, {"maxItems": 3}),
    }


def product_of_unions(count: int) -> dict[str, Callable[[], Schema]]:
    """A conjunction of disjunctions, which in normal form is a disjunction of all choices."""

    def of(part: Callable[[int, int], Schema]) -> Schema:
        return {"allOf": [{"anyOf": [part(i, j) for j in range(3)]} for i in range(count)]}

    parts: dict[str, Callable[[int, int], Schema]] = {
        "properties": lambda i, j: {"type": "object", "properties": {f"k{i}": {"const": j}}, "required": [f"k{i}"]},
        "patterns": lambda i, j: {"type": "string", "pattern": f"{chr(97 + i % 26)}.*{j}"},
        "ranges": lambda i, j: {"type": "number", "minimum": 7 * i * (j + 1), "maximum": 7 * i * (j + 1) + 1_000},
        "divisors": lambda i, j: {"type": "integer", "multipleOf": [2, 3, 5, 7, 11, 13][(i + j) % 6] ** (1 + i % 5)},
        "items": lambda i, j: {"type": "array", "contains": {"const": 3 * i + j}},
    }
    return {name: partial(of, part) for name, part in parts.items()}


def overlapping(count: int) -> dict[str, Callable[[], Schema]]:
    """`oneOf` whose branches overlap: each is cut by the negation of all others."""

    def of(part: Callable[[int], Schema]) -> Schema:
        return {"oneOf": [part(i) for i in range(count)]}

    parts: dict[str, Callable[[int], Schema]] = {
        "required": lambda i: {"type": "object", "required": [f"k{i}", f"k{i + 1}"]},
        "properties": lambda i: {"properties": {f"k{i}": {"type": "integer"}, f"k{i + 1}": {"minimum": i}}},
        "patterns": lambda i: {"type": "string", "pattern": f"[a-{chr(98 + i % 24)}]{{{i + 1}}}"},
        "ranges": lambda i: {"type": "number", "minimum": i, "maximum": i + count / 2},
        "divisors": lambda i: {"type": "integer", "multipleOf": i + 2},
        "lengths": lambda i: {"type": "array", "minItems": i, "items": {"type": ["string", "integer"]}},
        "nested": lambda i: {"oneOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}, {"minProperties": i}]},
    }
    return {name: partial(of, part) for name, part in parts.items()}


def exclusive_objects(count: int) -> dict[str, Callable[[], Schema]]:
    """Alternatives of objects that differ in many optional members."""

    def bodies() -> Schema:
        def branch(i: int) -> Schema:
            return {"type": "object", "properties": {f"k{j}": {"enum": [i, j, i + j]} for j in range(count)}}

        return {"oneOf": [branch(i) for i in range(count)]}

    def complement() -> Schema:
        return {
            "not": {"anyOf": [{"properties": {f"k{i}": {"type": "string"}}, "minProperties": i} for i in range(count)]}
        }

    return {"bodies": bodies, "complement": complement}


def conditions(count: int) -> dict[str, Callable[[], Schema]]:
    """Chains of conditions, each in the `else` of the previous one or next to it."""

    def chain() -> Schema:
        schema: Schema = {"type": "object"}
        for i in range(count):
            test = {"properties": {f"k{i}": {"const": i}}, "required": [f"k{i}"]}
            schema = {"if": test, "then": {"required": [f"r{i}"]}, "else": schema}
        return schema

    def siblings(test: Callable[[int], Schema]) -> Schema:
        parts = [{"if": test(i), "then": {"required": [f"r{i}"]}, "else": {"minProperties": i}} for i in range(count)]
        return {"type": "object", "allOf": parts}

    return {
        "chain": chain,
        "siblings": partial(siblings, lambda i: {"properties": {f"k{i}": {"const": i}}}),
        "one_key": partial(siblings, lambda i: {"properties": {"k": {"const": i}}, "required": ["k"]}),
    }


def negations(count: int) -> dict[str, Callable[[], Schema]]:
    """Nested and repeated negations."""

    def members() -> Schema:
        return {
            "not": {"properties": {f"k{i}": {"not": {"properties": {"x": {"type": "null"}}}} for i in range(count)}}
        }

    def strings() -> Schema:
        return {"type": "string", "allOf": [{"not": {"pattern": f"^.{{{i}}}[a-f]+x"}} for i in range(count)]}

    def numbers() -> Schema:
        return {"type": "integer", "allOf": [{"not": {"multipleOf": 101 + 2 * i}} for i in range(count)]}

    def arrays() -> Schema:
        return {"not": {"items": {"not": {"items": {"enum": list(range(count))}}}, "uniqueItems": True}}

    return {"members": members, "strings": strings, "numbers": numbers, "arrays": arrays}


def pattern_products(count: int) -> dict[str, Callable[[], Schema]]:
    """Strings that must match many patterns."""

    def all_of(patterns: list[str], **more: Any) -> Schema:
        return {"type": "string", "allOf": [{"pattern": pattern} for pattern in patterns], **more}

    letters = "abcdefghijklmnopqrstuvwxyz"
    return {
        "containing": partial(all_of, [f"{letters[i]}.*{letters[-1 - i]}" for i in range(count)]),
        "distances": partial(all_of, [f"a.{{{i + 5}}}b" for i in range(count)]),
        "periods": partial(
            all_of, [f"^(.{{{p}}})*$" for p in [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53]][:count]
        ),
        "lengths": partial(all_of, [f"^.{{{i},{10**5}}}$" for i in range(count)], minLength=500, maxLength=10**5),
        "formats": partial(all_of, [f"^.{{{i}}}[0-9a-f]" for i in range(count)], format="uri"),
    }


def key_patterns(count: int) -> dict[str, Callable[[], Schema]]:
    """Objects whose patterns for keys overlap in all ways."""

    def patterns(more: Schema) -> Schema:
        return {
            "type": "object",
            "patternProperties": {chr(97 + i): {"type": ["integer", "null"], "minimum": i} for i in range(count)},
            "additionalProperties": False,
            **more,
        }

    def names() -> Schema:
        return {"type": "object", "propertyNames": {"allOf": [{"pattern": chr(97 + i)} for i in range(count)]}}

    return {"plain": partial(patterns, {}), "least": partial(patterns, {"minProperties": count}), "names": names}


def many_keys(count: int) -> dict[str, Callable[[], Schema]]:
    """Objects with very many members."""

    def members(required: int, more: Schema) -> Schema:
        keys = [f"key_{i:06}" for i in range(count)]
        return {
            "type": "object",
            "properties": {key: {"type": "integer"} for key in keys},
            "required": keys[:required],
            **more,
        }

    def long_key() -> Schema:
        return {"type": "object", "properties": {"k" * (10 * count): {}}, "required": ["k" * (10 * count)]}

    return {
        "optional": partial(members, 0, {}),
        "required": partial(members, count, {"additionalProperties": False}),
        "bounded": partial(members, 10, {"maxProperties": 20, "minProperties": 15}),
        "long": long_key,
    }


def dependencies(count: int) -> dict[str, Callable[[], Schema]]:
    """Members that require one another."""

    def ring() -> Schema:
        names = [f"k{i}" for i in range(count)]
        needs = {name: [names[(i + 1) % count]] for i, name in enumerate(names)}
        return {"type": "object", "dependentRequired": needs, "maxProperties": count - 1, "minProperties": 1}

    def web() -> Schema:
        needs = {f"k{i}": [f"k{j}" for j in range(count) if j % (i + 1) == 0] for i in range(count)}
        return {"type": "object", "dependentRequired": needs, "minProperties": 2}

    def schemas() -> Schema:
        parts = {f"k{i}": {"properties": {f"k{i + 1}": {"minimum": i}}, "minProperties": i % 5} for i in range(count)}
        return {"type": "object", "dependentSchemas": parts}

    return {"ring": ring, "web": web, "schemas": schemas}


def counts(number: int) -> dict[str, Callable[[], Schema]]:
    """Large bounds."""
    schemas: dict[str, Schema] = {
        "minLength": {"type": "string", "minLength": number},
        "maxLength": {"type": "string", "maxLength": number, "pattern": "^[a-z ]+$"},
        "both": {"type": "string", "minLength": number - 1, "maxLength": number, "pattern": "b"},
        "minItems": {"type": "array", "minItems": number},
        "maxItems": {"type": "array", "maxItems": number, "items": {"type": "array", "maxItems": number}},
        "minProperties": {"type": "object", "minProperties": number},
        "named": {"type": "object", "minProperties": number, "propertyNames": {"pattern": "^[ab]{1,30}$"}},
        "contains": {"type": "array", "contains": {"type": "integer"}, "minContains": number},
        "unique": {"type": "array", "minItems": number, "uniqueItems": True, "items": {"type": "integer"}},
        "multipleOf": {"type": "integer", "multipleOf": number, "minimum": 1 - number},
        "range": {
            "type": "number",
            "minimum": -number,
            "exclusiveMaximum": number + 0.5 if number < 10**15 else number,
        },
    }
    return {name: partial(lambda schema: schema, schema) for name, schema in schemas.items()}


def unevaluated(count: int) -> dict[str, Callable[[], Schema]]:
    """Unevaluated members and items of many branches."""

    def properties(keyword: str) -> Schema:
        branches = [{"properties": {f"k{i}": {"type": "integer"}}, "required": [f"k{i}"]} for i in range(count)]
        return {"type": "object", keyword: branches, "unevaluatedProperties": False}

    def items() -> Schema:
        branches = [{"prefixItems": [{"type": "integer"}] * (i + 1), "minItems": i} for i in range(count)]
        return {"type": "array", "anyOf": branches, "unevaluatedItems": {"type": "string"}}

    return {"anyOf": partial(properties, "anyOf"), "oneOf": partial(properties, "oneOf"), "items": items}


def different(count: int) -> dict[str, Callable[[], Schema]]:
    """Arrays of items that differ."""

    def items(item: Schema, least: int = count) -> Schema:
        return {"type": "array", "uniqueItems": True, "minItems": least, "items": item}

    member = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}},
        "additionalProperties": False,
    }
    return {
        "enum": partial(items, {"enum": list(range(count))}),
        "too_few": partial(items, {"enum": list(range(count - 1))}),
        "objects": partial(items, member),
        "nested": partial(items, items({"type": "boolean"}, 0)),
        "strings": partial(items, {"type": "string", "pattern": "^(a|b|ab)*$", "maxLength": 12}),
        "unions": partial(items, {"anyOf": [{"type": "number"}, {"type": "integer"}, {"enum": ["1", 1, 1.5]}]}),
    }


def enumerations(count: int) -> dict[str, Callable[[], Schema]]:
    """Very many values."""

    def conjunction() -> Schema:
        return {"allOf": [{"enum": [f"value {step * i}" for i in range(count)]} for step in (2, 3, 5)]}

    return {
        "strings": lambda: {"enum": [f"value number {i * 7919 % 1000003}" for i in range(count)]},
        "numbers": lambda: {"enum": [i * 1.37 for i in range(count)]},
        "objects": lambda: {"enum": [{"id": i, "name": f"n{i}"} for i in range(count // 10)]},
        "excluded": lambda: {"type": "string", "not": {"enum": [f"no {i}" for i in range(count)]}},
        "numbers_excluded": lambda: {"type": "integer", "not": {"enum": list(range(0, count, 10))}},
        "conjunction": conjunction,
        "consts": lambda: {"anyOf": [{"const": {"k": i}} for i in range(count // 10)]},
    }


def contained(count: int) -> dict[str, Callable[[], Schema]]:
    """Arrays and objects that owe something."""

    def arrays(least: int) -> Schema:
        parts = [{"contains": {"multipleOf": i + 2}, "minContains": least, "maxContains": 50} for i in range(count)]
        return {"type": "array", "items": {"type": "integer"}, "allOf": parts}

    def objects() -> Schema:
        absent = [{"not": {"additionalProperties": {"not": {"minimum": i}}}} for i in range(count)]
        return {"type": "object", "allOf": absent}

    return {"one": partial(arrays, 1), "several": partial(arrays, 20), "members": objects}


def large_numbers(digits: int) -> dict[str, Callable[[], Schema]]:
    """Numbers with many digits."""
    number = int("7" * min(digits, 4_000))
    schemas: dict[str, Schema] = {
        "minimum": {"type": "integer", "minimum": number, "maximum": 2 * number},
        "multipleOf": {"type": "integer", "multipleOf": number},
        "small": {"type": "number", "multipleOf": float(f"1e-{min(digits, 320)}"), "maximum": 1},
        "const": {"const": number},
        "exponent": {"type": "number", "minimum": float(f"1e{min(digits, 308)}"), "exclusiveMaximum": 1.5e308},
        "divisors": {
            "type": "integer",
            "allOf": [{"multipleOf": p} for p in (99_991, 99_989, 99_971)][: 1 + digits // 20],
        },
    }
    return {name: partial(lambda schema: schema, schema) for name, schema in schemas.items()}


def references(count: int) -> dict[str, Callable[[], Schema]]:
    """References that go in circles."""

    def ref(i: int) -> Schema:
        return {"$ref": f"#/$defs/d{i % count}"}

    def definitions(body: Callable[[int], Schema]) -> Schema:
        return {"$defs": {f"d{i}": body(i) for i in range(count)}, "$ref": "#/$defs/d0"}

    bodies: dict[str, Callable[[int], Schema]] = {
        "empty": lambda i: ref(i + 1),
        "allOf": lambda i: {
            "allOf": [{"properties": {f"k{i}": ref(i + 1)}}, {"properties": {f"k{i}": ref(2 * i + 1)}}]
        },
        "anyOf": lambda i: {
            "anyOf": [{"type": "null"}, {"items": ref(i + 1)}, {"items": {"allOf": [ref(i), ref(i + 2)]}}]
        },
        "oneOf": lambda i: {
            "oneOf": [{"type": "null"}, {"properties": {"a": ref(i + 1)}, "required": ["a"]}, {"minProperties": 3}]
        },
        "not": lambda i: {"not": {"properties": {"a": ref(i + 1)}, "required": ["a"]}},
        "required": lambda i: {"type": "object", "properties": {"a": ref(i + 1)}, "required": ["a"]},
        "conjunctions": lambda i: {"type": "object", "properties": {"a": {"allOf": [ref(i + 1), ref(3 * i + 2)]}}},
    }
    return {name: partial(definitions, body) for name, body in bodies.items()}
