"""JSON Schema: what is refused, where, and why; what is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Limits, Report, Vocabulary, compile_choices, compile_json_schema
from constrain.errors import (
    ConstrainError,
    GrammarError,
    ResourceLimit,
    SchemaError,
    UnsatisfiableSchema,
    UnsupportedSchema,
)

Judge = Callable[..., bool]

NO_OTHERS = {"additionalProperties": False}

#: Eight choices of ten alternatives each.
MANY_ALTERNATIVES: Any = {
    "type": "object",
    "allOf": [{"anyOf": [{"properties": {f"p{i}{k}": {"const": i}}} for i in range(10)]} for k in range(8)],
}

MALFORMED: list[tuple[Any, str, str | None]] = [
    (5, "", None),
    (None, "", None),
    ("string", "", None),
    ([], "", None),
    ({"type": "text"}, "", "type"),
    ({"type": 5}, "", "type"),
    ({"type": []}, "", "type"),
    ({"type": [5]}, "", "type"),
    ({"type": {"a": 1}}, "", "type"),
    ({"enum": 5}, "", "enum"),
    ({"enum": {"a": 1}}, "", "enum"),
    ({"minimum": "5"}, "", "minimum"),
    ({"exclusiveMaximum": []}, "", "exclusiveMaximum"),
    ({"multipleOf": 0}, "", "multipleOf"),
    ({"multipleOf": -2}, "", "multipleOf"),
    ({"multipleOf": "2"}, "", "multipleOf"),
    ({"minLength": -1}, "", "minLength"),
    ({"maxLength": 1.5}, "", "maxLength"),
    ({"maxLength": None}, "", "maxLength"),
    ({"minItems": "1"}, "", "minItems"),
    ({"maxItems": True}, "", "maxItems"),
    ({"minProperties": -3}, "", "minProperties"),
    ({"maxProperties": {}}, "", "maxProperties"),
    ({"pattern": 5}, "", "pattern"),
    ({"not": {"pattern": 5}}, "/not", "pattern"),
    ({"format": 5}, "", "format"),
    ({"not": {"format": None}}, "/not", "format"),
    ({"uniqueItems": "yes"}, "", "uniqueItems"),
    ({"$schema": 1}, "", "$schema"),
    ({"$defs": {"a": {"$id": "b", "$schema": []}}, "$ref": "b"}, "/$defs/a", "$schema"),
    ({"properties": []}, "", "properties"),
    ({"properties": {"a": 5}}, "/properties/a", None),
    ({"properties": {"a/b~c": None}}, "/properties/a~1b~0c", None),
    ({"patternProperties": 5}, "", "patternProperties"),
    ({"additionalProperties": 5}, "/additionalProperties", None),
    ({"propertyNames": 5}, "/propertyNames", None),
    ({"required": "a"}, "", "required"),
    ({"required": [1]}, "", "required"),
    ({"items": 5}, "/items", None),
    ({"prefixItems": {}}, "", "prefixItems"),
    ({"prefixItems": [1]}, "/prefixItems/0", None),
    ({"anyOf": []}, "", "anyOf"),
    ({"anyOf": {}}, "", "anyOf"),
    ({"anyOf": [True, 1]}, "/anyOf/1", None),
    ({"allOf": 5}, "", "allOf"),
    ({"allOf": [{"items": {"type": "text"}}]}, "/allOf/0/items", "type"),
    ({"$defs": {"a": {"minLength": "x"}}, "items": {"$ref": "#/$defs/a"}}, "/$defs/a", "minLength"),
]


@pytest.mark.parametrize("schema, pointer, keyword", MALFORMED, ids=lambda value: str(value)[:40])
def test_malformed_schemas(schema: Any, pointer: str, keyword: str | None, byte_vocab: Vocabulary) -> None:
    with pytest.raises(SchemaError) as error:
        compile_json_schema(schema, byte_vocab)
    assert type(error.value) is SchemaError
    assert (error.value.pointer, error.value.keyword) == (pointer, keyword)
    assert str(error.value).startswith(f"#{pointer}" if pointer or keyword else "a schema is a dict or a bool")


PYTHON_MISTAKES = [
    ({"const": float("nan")}, "/const"),
    ({"minimum": float("inf")}, "/minimum"),
    ({"const": "\ud800"}, "/const"),
    ({"properties": {"\udc00": {}}}, "/properties"),
    ({"properties": {5: {}}}, "/properties"),
    ({"enum": [{1, 2}]}, "/enum/0"),
    ({"default": object()}, "/default"),
    ({"enum": [b"bytes"]}, "/enum/0"),
]


@pytest.mark.parametrize("schema, pointer", PYTHON_MISTAKES, ids=range(len(PYTHON_MISTAKES)))
def test_values_that_are_no_json(schema: Any, pointer: str, byte_vocab: Vocabulary) -> None:
    with pytest.raises(SchemaError) as error:
        compile_json_schema(schema, byte_vocab)
    assert error.value.pointer == pointer


UNSUPPORTED: list[tuple[dict[str, Any], str]] = [
    ({"pattern": r"^(a)\1$"}, "pattern"),
    ({"pattern": "("}, "pattern"),
    ({"patternProperties": {"[": True}, "additionalProperties": False}, "patternProperties"),
]


@pytest.mark.parametrize("schema, keyword", UNSUPPORTED, ids=lambda value: str(value)[:40])
def test_keywords_that_cannot_be_enforced_are_refused(schema: Any, keyword: str, byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsupportedSchema) as error:
        compile_json_schema({"properties": {"x": {"items": schema}}}, byte_vocab)
    assert (error.value.pointer, error.value.keyword) == ("/properties/x/items", keyword)


@pytest.mark.parametrize("schema, keyword", UNSUPPORTED, ids=lambda value: str(value)[:40])
def test_or_left_out_if_so_wished(schema: Any, keyword: str, byte_vocab: Vocabulary, judge: Judge) -> None:
    grammar = compile_json_schema({"items": {**schema, "maxLength": 2}}, byte_vocab, lenient=True)
    assert ("/items", keyword) in [entry[:2] for entry in grammar.report.ignored]
    assert judge(grammar, [{"a": [1, 1]}, "ab", None])
    assert not judge(grammar, ["abc"]), "the rest is enforced"


def test_keywords_without_effect_are_supported(byte_vocab: Vocabulary) -> None:
    compile_json_schema({"uniqueItems": False, "if": {"type": "string"}, "required": True}, byte_vocab)
    compile_json_schema({"then": False, "else": False, "$anchor": "x", "x-mine": {"not": {}}}, byte_vocab)


def test_leniency_does_not_forgive_mistakes(byte_vocab: Vocabulary) -> None:
    with pytest.raises(SchemaError):
        compile_json_schema({"type": "text"}, byte_vocab, lenient=True)
    with pytest.raises(UnsatisfiableSchema):
        compile_json_schema(False, byte_vocab, lenient=True)


def test_report_lists_enforced_and_narrowed_keywords(byte_vocab: Vocabulary) -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1},
            "s": {"type": "string", "format": "date", "maxLength": 20},
        },
        "required": ["n"],
    }
    report = compile_json_schema(schema, byte_vocab).report
    found = {(entry.pointer, entry.keyword) for entry in report.enforced}
    assert found >= {
        ("", "type"),
        ("", "properties"),
        ("", "required"),
        ("/properties/n", "minimum"),
        ("/properties/s", "maxLength"),
    }
    assert [entry[:2] for entry in report.narrowed] == [("/properties/n", "type"), ("/properties/s", "format")]
    assert report.ignored == ()
    assert compile_choices(["a"], byte_vocab).report == Report()


# ---- Limits.


def nested(depth: int, keyword: str = "allOf") -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {keyword: [schema]} if keyword == "allOf" else {keyword: schema}
    return schema


def chain(length: int) -> dict[str, Any]:
    """Definitions that refer to one another, one after the other."""
    links = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(length)}
    return {"$defs": {**links, f"d{length}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize("schema", [nested(600), nested(600, "items"), nested(100_000), chain(600)], ids=range(4))
def test_nesting(schema: Any, byte_vocab: Vocabulary) -> None:
    with pytest.raises(ResourceLimit) as error:
        compile_json_schema(schema, byte_vocab)
    assert (error.value.kind, error.value.limit) == ("max_nesting", 512)


def test_nesting_within_the_limit(byte_vocab: Vocabulary, judge: Judge) -> None:
    assert judge(nested(200), 5)
    assert judge(nested(500, "items"), [[[[]]]])
    assert judge(chain(400), 5)
    with pytest.raises(ResourceLimit, match="limit max_nesting=20 reached"):
        compile_json_schema(nested(50), byte_vocab, limits=Limits(max_nesting=20))


def test_cells(byte_vocab: Vocabulary) -> None:
    """Alternatives of alternatives multiply."""
    with pytest.raises(ResourceLimit) as error:
        compile_json_schema(MANY_ALTERNATIVES, byte_vocab)
    assert error.value.kind == "max_cells"


def test_alternatives_within_others_do_not_multiply(byte_vocab: Vocabulary, judge: Judge) -> None:
    names = [f"p{i}" for i in range(10)]
    either = {"anyOf": [{"properties": {name: {"const": name}}} for name in names]}
    schema = {"type": "object", "required": names, "allOf": [either] * 8}
    assert judge(schema, dict.fromkeys(names, "p3"))
    assert not judge(schema, dict.fromkeys(names, "p"))


def test_a_negated_union_of_closed_objects_is_one_alternative(byte_vocab: Vocabulary, judge: Judge) -> None:
    """What is beyond the open object of the union is beyond the closed ones: they know no such name."""
    names = [[f"{kind}{i}" for i in range(12)] for kind in "abcde"]
    closed = [{"type": "object", "properties": {n: {"type": "null"} for n in some}, **NO_OTHERS} for some in names]
    schema = {"type": "object", "not": {"anyOf": [{"properties": {"title": {"type": "string"}}}, *closed]}}
    assert judge(schema, {"title": 1})
    assert judge(schema, {"a0": 1, "title": None})
    assert not judge(schema, {"title": "x", "a0": 1})
    assert not judge(schema, {"a0": None})


def test_stack_depth(byte_vocab: Vocabulary) -> None:
    matcher = compile_json_schema({}, byte_vocab, limits=Limits(max_stack_depth=50)).matcher()
    assert matcher.accept_bytes(b"[" * 40)
    with pytest.raises(ResourceLimit) as error:
        matcher.accept_bytes(b"[" * 100)
    assert (error.value.kind, error.value.limit) == ("max_stack_depth", 50)
    assert matcher.accepted_tokens == 1, "a token that failed changes nothing"
    assert matcher.accept_bytes(b"]" * 40)
    assert matcher.is_accepting()


def test_states(byte_vocab: Vocabulary) -> None:
    with pytest.raises(ResourceLimit) as error:
        matcher = compile_choices(["a" * 1000], byte_vocab, limits=Limits(max_states=100)).matcher()
        matcher.accept_bytes(b"a" * 1000)
    assert (error.value.kind, error.value.limit) == ("max_states", 100)


def test_every_error_is_of_the_family(byte_vocab: Vocabulary) -> None:
    for schema in (5, {"not": {"uniqueItems": True}}, False, nested(600)):
        with pytest.raises(ConstrainError) as error:
            compile_json_schema(schema, byte_vocab)  # type: ignore[arg-type]
        assert isinstance(error.value, GrammarError)
        assert isinstance(error.value, ValueError)


# ---- Places.

CONFLICTS: list[tuple[Any, str, str | None]] = [
    (False, "", None),
    ({"type": "integer", "enum": ["x"]}, "", "enum"),
    ({"type": "string", "minLength": 5, "maxLength": 3}, "", "minLength"),
    ({"type": "string", "pattern": "^a$", "minLength": 2}, "", "pattern"),
    ({"type": "object", "oneOf": [{"type": "string"}, {"type": "integer"}]}, "", "oneOf"),
    ({"type": "object", "required": ["a"], "properties": {"a": False}}, "/properties/a", None),
    ({"type": "object", "required": ["b"], "unevaluatedProperties": False}, "/unevaluatedProperties", None),
    ({"type": "object", "required": ["a"], "not": {"required": ["a"]}}, "", "not"),
    ({"type": "object", "required": ["b"], "propertyNames": {"const": "a"}}, "", "propertyNames"),
    (
        {"type": "object", "minProperties": 2, "properties": {"a": {}}, "additionalProperties": False},
        "",
        "minProperties",
    ),
    ({"type": "array", "contains": {"type": "string"}, "items": {"type": "integer"}}, "", "contains"),
    ({"type": "array", "minItems": 2, "prefixItems": [True, {"not": {}}]}, "/prefixItems/1/not", None),
    ({"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#"}}}, "/properties/next", None),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"type": "null"}, {"type": "string"}]}}}, "/$defs/a", "allOf"),
    (
        {
            "type": "object",
            "required": ["a"],
            "allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"type": "string"}}}],
        },
        "/allOf/1/properties/a",
        None,
    ),
]


@pytest.mark.parametrize("schema, pointer, keyword", CONFLICTS, ids=range(len(CONFLICTS)))
def test_conflicts_have_a_place(schema: Any, pointer: str, keyword: str | None, byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsatisfiableSchema) as error:
        compile_json_schema(schema, byte_vocab)
    assert (error.value.pointer, error.value.keyword) == (pointer, keyword)


def test_both_sides_of_a_conflict_are_named(byte_vocab: Vocabulary) -> None:
    schema = CONFLICTS[-1][0]
    with pytest.raises(UnsatisfiableSchema, match="no value satisfies #/allOf/0/properties/a and this schema"):
        compile_json_schema(schema, byte_vocab)


def test_limits_have_a_place(byte_vocab: Vocabulary) -> None:
    crowded = {"allOf": [{"contains": {"const": i}} for i in range(7)]}
    for schema, kind in ((MANY_ALTERNATIVES, "max_cells"), (crowded, "counted_kinds")):
        with pytest.raises(ResourceLimit) as error:
            compile_json_schema({"properties": {"x": schema}}, byte_vocab)
        assert (error.value.kind, error.value.pointer) == (kind, "/properties/x")
        assert str(error.value).startswith("#/properties/x: limit ")


def test_errors_of_combinations_have_a_pointer(byte_vocab: Vocabulary, judge: Judge) -> None:
    schema = {
        "properties": {"a": {}, "b": {}, "c": {}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 2,
        "dependentRequired": {"a": ["b"]},
    }
    with pytest.raises(UnsupportedSchema) as error:
        compile_json_schema({"items": schema}, byte_vocab)
    assert (error.value.pointer, error.value.keyword) == ("/items", "dependentRequired")
    grammar = compile_json_schema({"items": schema}, byte_vocab, lenient=True)
    assert [entry[:2] for entry in grammar.report.ignored] == [("/items", "dependentRequired")]
    assert judge(grammar, [{"a": 1}])


# ---- Reports and leniency.


def test_schemas_that_differ_in_annotations_are_reported_at_all_places(byte_vocab: Vocabulary) -> None:
    schema = {"properties": {"a": {"type": "null", "title": "A"}, "b": {"description": "B", "type": "null"}}}
    places = {entry.pointer for entry in compile_json_schema(schema, byte_vocab).report.enforced}
    assert places == {"", "/properties/a", "/properties/b"}


def test_integers_of_constants_are_reported_as_narrowed(byte_vocab: Vocabulary) -> None:
    schema = {"items": {"enum": ["a", {"x": [1]}]}, "prefixItems": [{"const": 2.0}, {"const": 0.5}, {"enum": ["a"]}]}
    report = compile_json_schema(schema, byte_vocab).report
    assert {entry[:2] for entry in report.narrowed} == {("/items", "enum"), ("/prefixItems/0", "const")}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("max_length", "maxLength"),
        ("MinItems", "minItems"),
        ("one-of", "oneOf"),
        ("additional_propertys", ""),
        ("exclusive_minimun", "exclusiveMinimum"),
        ("Title", "title"),
        ("_if_", ""),
        ("requird", "required"),
    ],
)
def test_keywords_in_another_case_are_told(byte_vocab: Vocabulary, written: str, meant: str) -> None:
    ((_, keyword, note, *_),) = compile_json_schema({"type": "null", written: 1}, byte_vocab).report.ignored
    assert (keyword, note) == (written, "unknown keyword" + (f"; did you mean '{meant}'?" if meant else ""))


def test_nullable_of_openapi_is_told(byte_vocab: Vocabulary) -> None:
    ((_, _, note, *_),) = compile_json_schema({"type": "string", "nullable": True}, byte_vocab).report.ignored
    assert note == "a keyword of OpenAPI 3.0; did you mean \"null\" in 'type'?"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("date_time", "date-time"), ("datetime", "date-time"), ("emial", "email"), ("Uuid", "uuid"), ("int32", "")],
)
def test_misspelled_formats_are_told(byte_vocab: Vocabulary, written: str, meant: str) -> None:
    ((_, keyword, note, *_),) = compile_json_schema({"type": "string", "format": written}, byte_vocab).report.ignored
    told = f"'{written}' is no standard format: an annotation"
    assert (keyword, note) == ("format", told + (f"; did you mean '{meant}'?" if meant else ""))


def test_keywords_without_effect_are_reported(byte_vocab: Vocabulary) -> None:
    schema: dict[str, Any] = {
        "title": "t",
        "additonalProperties": False,
        "x-mine": 1,
        "contentEncoding": "base64",
        "$recursiveRef": "#",
        "items": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$id": "https://example.org/old",
            "$ref": "#/definitions/a",
        },
        "definitions": {},
    }
    schema["items"]["definitions"] = {"a": {"dependentRequired": {}}}
    schema["items"]["maximum"] = 3
    ignored = {entry[:3] for entry in compile_json_schema(schema, byte_vocab).report.ignored}
    assert ignored == {
        ("", "additonalProperties", "unknown keyword; did you mean 'additionalProperties'?"),
        ("", "x-mine", "unknown keyword"),
        ("", "contentEncoding", "the contents of strings are not checked"),
        ("", "$recursiveRef", "no keyword of draft 2020-12"),
        ("/items", "maximum", "hidden by $ref, as in every draft before 2019-09"),
        ("/items/definitions/a", "dependentRequired", "no keyword of draft 7"),
    }


EVERY_KEYWORD: list[dict[str, Any]] = [
    {"type": ["integer", "string"], "enum": ["a", 1], "const": "a", "not": {"const": "b"}},
    {"minimum": 1, "maximum": 9, "exclusiveMinimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
    {"minLength": 1, "maxLength": 9, "pattern": "a", "format": "ipv4"},
    {"prefixItems": [{}], "items": {}, "contains": {"const": "a"}, "minContains": 1, "maxContains": 2},
    {"minItems": 1, "maxItems": 2, "unevaluatedItems": False},
    {"properties": {"a": {}}, "patternProperties": {"^b": {}}, "additionalProperties": {}, "required": ["a"]},
    {"propertyNames": {"maxLength": 9}, "minProperties": 1, "maxProperties": 9, "unevaluatedProperties": False},
    {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {}}, "dependencies": {"a": ["b"]}},
    {"allOf": [{}], "anyOf": [{}, {"type": "null"}], "oneOf": [{}], "if": {}, "then": {}, "else": {}},
    {"$ref": "#/$defs/a", "$dynamicRef": "#/$defs/a"},
]


@pytest.mark.parametrize("keywords", EVERY_KEYWORD, ids=lambda keywords: next(iter(keywords)))
@pytest.mark.parametrize("wrap", [lambda schema: schema, lambda schema: {"not": schema}], ids=["plain", "negated"])
def test_every_keyword_is_reported_once(keywords: dict[str, Any], wrap: Any, byte_vocab: Vocabulary) -> None:
    schema = {"$defs": {"a": {}}, "properties": {"x": wrap(keywords)}}
    pointer = "/properties/x" + "/not" * bool(wrap({}))
    report = compile_json_schema(schema, byte_vocab).report
    found = [entry.keyword for part in vars(report).values() for entry in part if entry.pointer == pointer]
    assert sorted(found) == sorted(keywords)


def test_leniency_widens_under_negation(byte_vocab: Vocabulary, judge: Judge) -> None:
    """Without the keyword the rest would be too little: what violates it is not known."""
    lookbehind = {"pattern": r"^(a)\1$"}
    for schema in (
        {"not": {"type": "string", **lookbehind}},
        {"not": {"patternProperties": {r"^(a)\1$": False}}},
        {"not": {"patternProperties": {r"^(a)\1$": True}, "unevaluatedProperties": False}},
    ):
        grammar = compile_json_schema(schema, byte_vocab, lenient=True)
        assert judge(grammar, "b"), schema
        assert judge(grammar, {"x": 1}), schema
        with pytest.raises(UnsupportedSchema):
            compile_json_schema(schema, byte_vocab)


def test_equal_schemas_are_reported_at_every_place(byte_vocab: Vocabulary) -> None:
    both = {"items": {"minimum": 1}}
    schema = {"properties": {"a": both, "b": both, "c": {"minimum": 1}, "d": {"minimum": 2}}}
    report = compile_json_schema(schema, byte_vocab).report
    places = [entry.pointer for entry in report.enforced if entry.keyword == "minimum"]
    assert sorted(places) == ["/properties/a/items", "/properties/b/items", "/properties/c", "/properties/d"]


def test_an_error_says_what_is_narrowed(byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsatisfiableSchema, match="narrowed: only texts that all common validators accept"):
        compile_json_schema({"type": "string", "pattern": r"\bσ"}, byte_vocab)


@pytest.mark.parametrize("name", ["uuid", "duration"])
def test_formats_of_later_drafts_hold_under_a_negation(byte_vocab: Vocabulary, name: str) -> None:
    """Validators of the draft take them for annotations."""
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    with pytest.raises(UnsatisfiableSchema):
        compile_json_schema({**draft, "not": {"format": name}}, byte_vocab)
    grammar = compile_json_schema({**draft, "type": "string", "not": {"format": name, "maxLength": 1}}, byte_vocab)
    assert grammar.accepts(b'"bb"')
    assert not grammar.accepts(b'"b"')
    assert [(entry.keyword, entry.pointer) for entry in grammar.report.narrowed] == [("format", "/not")]
    later = compile_json_schema({"type": "string", "not": {"format": name, "maxLength": 1}}, byte_vocab)
    assert later.accepts(b'"b"')
