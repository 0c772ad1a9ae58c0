"""JSON Schema: types, constants, and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Vocabulary, compile_json_schema
from constrain.errors import GrammarError, UnsatisfiableSchema

Judge = Callable[..., bool]

Verify = Callable[..., None]

NULL, BOOLEANS, INTEGERS = [None], [True, False], [0, 1, -1, 12, -120, 10**29, 1 - 10**30]
NUMBERS = [0.5, -0.25, 1.5, 1e-300, -1e-7, 12.000001]
STRINGS = ["", "a", "1", "null", "é🙂", 'say "hi"\\', "line\nbreak\ttab\x00\x1f\x7f"]
ARRAYS = [[], [1], [None, [[]], {"a": "b"}]]
OBJECTS = [{}, {"a": 1}, {"a": {"b": [{}]}, "": None, "é": ""}]
BY_TYPE: dict[str, list[Any]] = {
    "null": NULL,
    "boolean": BOOLEANS,
    "integer": INTEGERS,
    "number": INTEGERS + NUMBERS,
    "string": STRINGS,
    "array": ARRAYS,
    "object": OBJECTS,
}
EVERYTHING = NULL + BOOLEANS + INTEGERS + NUMBERS + STRINGS + ARRAYS + OBJECTS


@pytest.mark.parametrize("schema", [True, {}, {"$comment": "x"}, {"title": "t", "description": "d", "default": 3}])
def test_everything(schema: Any, verify: Verify) -> None:
    verify(
        schema, EVERYTHING, [b"", b"nul", b"'a'", b"[1,]", b"{,}", b"01", b"+1", b".5", b"1.", b"NaN", b'"\n"', b"1 2"]
    )


@pytest.mark.parametrize("name", BY_TYPE)
def test_type(name: str, verify: Verify) -> None:
    inside = BY_TYPE[name]
    verify({"type": name}, inside, [value for value in EVERYTHING if not any(value is one for one in inside)])


def test_several_types(verify: Verify) -> None:
    verify({"type": ["null", "string"]}, NULL + STRINGS, BOOLEANS + INTEGERS + NUMBERS + ARRAYS + OBJECTS)
    verify({"type": ["integer", "number"]}, INTEGERS + NUMBERS, STRINGS)


SPELLINGS: list[tuple[Any, list[bytes], list[bytes]]] = [
    (
        {"type": "integer"},
        [b"0", b"-1", b"10", b"1.0", b"0.0", b"-20.0"],
        [b"-0", b"-", b"01", b"-01", b"1.00", b"1.", b"1.5", b"-0.0", b"1e2", b"1.0e2", b"0x1", b"1_0", b" 1", b"1 "],
    ),
    (
        {"type": "number"},
        [b"0", b"-0", b"0.0", b"-0.10", b"1e5", b"1E+5", b"2.5e-3", b"0.001", b"120.50"],
        [b".5", b"5.", b"1e", b"1e+", b"--1", b"00", b"1.2.3", b"Infinity", b"1e1.5"],
    ),
    ({"type": "boolean"}, [b"true", b"false"], [b"True", b"tru", b"truee", b"1"]),
    ({"type": "null"}, [b"null"], [b"None", b"nil", b"nullnull"]),
]


@pytest.mark.parametrize("schema, yes, no", SPELLINGS)
def test_serialisations_of_scalars(schema: Any, yes: list[bytes], no: list[bytes], verify: Verify) -> None:
    verify(schema, yes, no)


VALUES = [
    None,
    True,
    False,
    0,
    1,
    -3,
    10**20,
    0.5,
    "",
    "a",
    'q"\\\n',
    "é🙂",
    [],
    [1, [True]],
    {},
    {"b": 1, "a": {"c": []}},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_const(value: Any, verify: Verify) -> None:
    verify({"const": value}, [value], [other for other in VALUES if other is not value])


def test_const_does_not_mix_up_types(verify: Verify) -> None:
    verify({"const": 1}, [1], [True, "1", [1], None])
    verify({"const": False}, [False], [0, None, ""])
    verify({"const": [0]}, [[0]], [[False], [], [0, 0]])
    verify({"const": {"a": 1}}, [{"a": 1}], [{"a": True}, {}, {"a": 1, "b": 1}])


def test_const_objects_take_their_members_in_any_order(verify: Verify) -> None:
    verify({"const": {"a": 1, "b": 2}}, [b'{"a":1,"b":2}', b'{"b": 2, "a": 1}'], [b'{"a":1,"a":1,"b":2}', b'{"a":1}'])


def test_enum(verify: Verify) -> None:
    verify({"enum": VALUES}, VALUES, [2, "b", [2], {"a": 1}, 0.25, [1, [1]]])
    verify({"enum": ["a", "ab", "abc"]}, ["a", "ab", "abc"], ["", "b", "abcd", "A"])
    verify({"enum": [1, 1, "x", "x"]}, [1, "x"], ["1"])


def test_integers_may_be_written_with_a_fraction_of_zero(verify: Verify) -> None:
    verify({"const": 2}, [b"2", b"2.0"], [b"2.5", b"20", b"2."])
    verify({"const": -2.0}, [b"-2", b"-2.0"], [b"2.0"])
    verify({"enum": [[1], {"a": 0}, 12]}, [b"[1.0]", b'{"a": 0.0}', b"12.0"], [b"[1.5]", b"1.0"])
    verify({"type": "integer", "minimum": 1.5, "maximum": 3}, [b"2.0", b"3.0"], [b"1.0", b"3.1", b"4.0"])
    verify({"type": "integer", "multipleOf": 1.5}, [b"3.0", b"0.0"], [b"1.0", b"1.5", b"2.0"])
    verify({"enum": [1, 2, 3], "type": "integer", "minimum": 2}, [b"2.0", b"3"], [b"1.0", b"4.0"])
    verify({"type": "integer", "not": {"const": 4}}, [b"5.0"], [b"4", b"4.0"])
    verify({"not": {"type": "integer"}}, [b"1.5"], [b"1.0", b"1"])
    verify({"type": "integer"}, [b"%d.0" % 10**14], [b"%d.0" % 10**15], oracle=False)
    verify({"enum": [2**53, 2**53 + 1]}, [b"%d.0" % 2**53, b"%d" % (2**53 + 1)], [b"%d.0" % (2**53 + 1)], oracle=False)
    verify({"type": "array", "uniqueItems": True, "maxItems": 3}, [b"[1.0, 2]"], [b"[1, 1.0]", b"[2.0, 1, 2]"])


def test_integers_of_draft_4_have_no_fraction(verify: Verify) -> None:
    draft4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
    verify({**draft4, "type": "integer"}, [b"1"], [b"1.0"])
    verify({**draft4, "type": "integer", "enum": [1, 2], "maximum": 1}, [b"1"], [b"1.0", b"2"])
    verify({**draft4, "enum": [1]}, [b"1", b"1.0"], [b"2.0"])
    verify({**draft4, "anyOf": [{"type": "integer"}, {"enum": [1]}]}, [b"7", b"1.0"], [b"7.0"])


def test_multiples_of_some_numbers_and_of_no_others(verify: Verify, byte_vocab: Vocabulary) -> None:
    def divisible(by: list[float], not_by: list[float], **keywords: Any) -> dict[str, Any]:
        negations = [{"not": {"multipleOf": divisor}} for divisor in not_by]
        return {"type": "number", "allOf": [{"multipleOf": divisor} for divisor in by] + negations, **keywords}

    verify(divisible([3], [2]), [3, -9, 15, b"21.0"], [0, 6, 4])
    verify(divisible([0.5], [1, 2.5]), [0.5, -1.5, 3.5], [0, 1, 2.5, 7.5, 0.25])
    verify(divisible([33, 13], [12, 77, 6, 7, 8]), [429, -2145], [0, 858, 3003, 33, 13])
    verify(divisible([44, 7, 13], [33, 12, 8]), [4004, -20020], [8008, 12012])
    verify(divisible([], [2, 3], type="integer", minimum=5, maximum=13), [5, 7, 11, 13], [1, 6, 8, 9, 17])
    verify(divisible([], [0.75, 2.5], type="integer"), [1, 2, 4, 7, 8], [0, 3, 5, 6, 10, 0.5])
    primes = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31]
    verify(
        divisible([], primes, type="integer", minimum=2, maximum=1368),
        [37, 41, 37 * 37 - 2],
        [35, 37 * 36],
        oracle=False,
    )
    with pytest.raises(UnsatisfiableSchema):
        compile_json_schema(divisible([], [2, 3], type="integer", minimum=8, maximum=10), byte_vocab)


def test_plain_integers_have_no_fraction(verify: Verify, byte_vocab: Vocabulary) -> None:
    plain = {"integers": "plain", "oracle": False}
    verify({"type": "integer"}, [b"1", b"-20", b"0"], [b"1.0", b"0.0", b"1e2"], **plain)
    verify({"type": ["integer", "null"], "minimum": 1}, [b"1", b"null"], [b"1.0", b"0"], **plain)
    verify({"enum": [1, [2], {"a": 3}]}, [b"1", b"[2]", b'{"a": 3}'], [b"1.0", b"[2.0]", b'{"a": 3.0}'], **plain)
    verify({"const": 12.0}, [b"12"], [b"12.0"], **plain)
    verify(
        {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        [b"[1, 2]"],
        [b"[1, 1]", b"[1.0]"],
        **plain,
    )
    verify({"type": "number"}, [b"1", b"1.0", b"1.5"], **plain)
    grammar = compile_json_schema({"type": "integer"}, byte_vocab, integers="plain")
    assert [entry.note for entry in grammar.report.narrowed] == ["integers are written without exponent and fraction"]
    with pytest.raises(GrammarError, match="there is no integer policy 'short'; there are 'any' and 'plain'"):
        compile_json_schema({"type": "integer"}, byte_vocab, integers="short")  # type: ignore[arg-type]


def test_enum_with_other_keywords(verify: Verify) -> None:
    verify({"enum": ["a", "bb", 3, None], "type": ["string", "null"], "maxLength": 1}, ["a", None], ["bb", 3])
    verify({"enum": [1, 2, 3, 4.5, 6], "type": "integer", "multipleOf": 2}, [2, 6], [1, 3, 4.5, 4])
    verify({"enum": [1, 2, 3], "const": 2}, [2], [1, 3])
    verify(
        {"enum": [[1], [1, 2], {"a": 1}, {"b": 1}], "minItems": 2, "required": ["b"]},
        [[1, 2], {"b": 1}],
        [[1], {"a": 1}],
    )
    verify({"enum": [5, "five"], "minimum": 6}, ["five"], [5])


def test_large_enums(verify: Verify) -> None:
    words = [f"value-{i * i}" for i in range(5000)]
    verify({"enum": words, "maxLength": 14}, words[::97], ["value-2", "value-", "value-24990000", "value-24990002"])


BOUNDS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"minimum": 5}, [5, 6, 5.0001, 1e9, "x", None, [4]], [4, 4.9999, -6, 0, 1e-9]),
    ({"maximum": 5}, [5, 4.5, -1e9, 0], [6, 5.0001, 50, 1e9]),
    ({"exclusiveMinimum": 5}, [5.0001, 6], [5, 4]),
    ({"exclusiveMaximum": 5}, [4.9999, -6], [5, 6]),
    ({"minimum": -3, "maximum": -1.5}, [-3, -1.5, -2.25], [-1, -1.25, -3.1, 0, 2]),
    ({"minimum": -1, "maximum": 1}, [-1, -0.5, 0, 0.5, 1], [-1.1, 1.1, 10]),
    ({"exclusiveMinimum": 0, "exclusiveMaximum": 1}, [0.5, 1e-300, 0.999], [0, 1, -0.5, 1.5]),
    ({"minimum": 5, "exclusiveMinimum": 5}, [6], [5]),
    ({"minimum": 5, "exclusiveMinimum": 4}, [5], [4.5]),
    ({"type": "integer", "minimum": 5, "maximum": 20}, [*range(5, 21)], [4, 21, 5.5, -5, 100, 50]),
    ({"type": "integer", "minimum": -20, "maximum": -5}, [*range(-20, -4)], [-4, -21, 5, 0]),
    ({"type": "integer", "minimum": 0.5, "maximum": 2.5}, [1, 2], [0, 3]),
    ({"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 1001}, [100, 999, 1000], [99, 1001, 10]),
    ({"type": "integer", "minimum": 10**18}, [10**18, 10**19], [10**18 - 1]),
    ({"type": "integer", "minimum": 1e3, "maximum": 1.5e3}, [1000, 1500], [999, 1501]),
    ({"minimum": 0.1, "maximum": 0.3}, [0.1, 0.2, 0.3, 0.15], [0.09, 0.31, 0.4, 1]),
    ({"type": "number", "maximum": -0.0}, [0, -1], [0.1, 1e-9]),
]


@pytest.mark.parametrize("schema, yes, no", BOUNDS, ids=str)
def test_bounds(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


def test_bounds_byte_by_byte(verify: Verify) -> None:
    verify(
        {"type": "integer", "minimum": 5, "maximum": 20}, [b"5", b"10", b"20"], [b"1", b"2", b"05", b"-", b"201", b"21"]
    )
    half_open = {"minimum": 0, "exclusiveMaximum": 1}
    verify(half_open, [b"0", b"0.5", b"0.000", b"1e-6", b"9.99e-1"], [b"1", b"1.0", b"10e-1", b"1e0", b"-1e-6"])


MULTIPLES: list[tuple[Any, list[Any], list[Any]]] = [
    ({"multipleOf": 3}, [0, 3, -9, 300, "x"], [1, 2, 3.5, -10, 1000]),
    ({"multipleOf": 0.5}, [0.5, 1, -2.5], [0.25, 0.3]),
    ({"multipleOf": 2.5, "minimum": 1, "maximum": 6}, [2.5, 5], [0, 7.5, 3]),
    ({"type": "integer", "multipleOf": 1.5}, [3, 6, -9], [1, 2, 4]),
    ({"type": "integer", "multipleOf": 7, "minimum": 50}, [56, 700], [49, 50, 55]),
    ({"allOf": [{"multipleOf": 4}, {"multipleOf": 6}]}, [12, 24, 0], [4, 6, 18]),
    ({"multipleOf": 1}, [1, 0, -5], [0.5]),
    ({"multipleOf": 1000}, [1000, 25_000], [100, 1001]),
    ({"enum": [10**60, 10**60 + 1, 1.5], "multipleOf": 10**9}, [10**60], [10**60 + 1, 1.5]),
]


@pytest.mark.parametrize("schema, yes, no", MULTIPLES, ids=str)
def test_multiples(schema: Any, yes: list[Any], no: list[Any], verify: Verify) -> None:
    verify(schema, yes, no)


def test_multiples_are_exact_decimals(verify: Verify) -> None:
    """Validators that divide floats refuse 0.07 / 0.01."""
    yes, no = [b"0.07", b"19.99", b"-4.35", b"7", b"1.10", b"0.070"], [b"0.075", b"0.0701", b"19.999"]
    verify({"multipleOf": 0.01}, yes, no, oracle=False)
    verify({"multipleOf": 1e-8}, [b"0.00000012", b"12.5"], [b"0.000000001"], oracle=False)


@pytest.mark.parametrize(
    "schema", [{"oneOf": [{"type": "integer"}, True]}, {"multipleOf": 1e-18, "not": {"multipleOf": 1}}], ids=str
)
def test_fractions_that_doubles_lose_make_no_number_a_fractional_one(schema: Any, verify: Verify) -> None:
    verify(schema, [b"0.5", b"-52.520008"], [b"1200001231.000000000000051", b"7"], oracle=False)


def test_keywords_of_numbers_leave_other_types_alone(verify: Verify) -> None:
    others = NULL + BOOLEANS + STRINGS + ARRAYS + OBJECTS
    verify({"minimum": 5, "exclusiveMaximum": 7, "multipleOf": 2}, [6, *others], [5, 7, 4])


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        (
            {"not": {"multipleOf": 2}},
            ["11111111", "12345678.5", "1" * 12, "1" * 12 + ".5"],
            ["1" * 11 + "2", "4.000", "0"],
        ),
        ({"not": {"type": "integer"}}, ["11111111.5", "1" * 12 + ".5", "-0.1"], ["1" * 12, "11111111.000", "-0.0"]),
        ({"not": {"multipleOf": 1e-12}}, ["1." + "0" * 12 + "1"], ["1." + "0" * 12, "1" * 12]),
        ({"minimum": 1e33, "not": {"multipleOf": 2}}, ["1" * 34, "1" * 35], ["1" * 33 + "2", "1" * 33 + "2.000"]),
        ({"minimum": 1e36, "not": {"multipleOf": 2}}, ["1" * 37], ["1" * 36 + "2", "1" * 37 + "2"]),
        ({"minimum": 1e-33, "not": {"multipleOf": 2}}, ["1", "1." + "0" * 33], ["2", "2." + "0" * 33, "2." + "0" * 34]),
        ({"not": {"anyOf": [{"multipleOf": 3}, {"multipleOf": 0.5}]}}, ["1.2", "11111111111.7"], ["3", "9.0", "2.50"]),
    ],
)
def test_numbers_that_are_no_multiples_may_have_many_digits(
    judge: Judge, schema: Any, yes: list[str], no: list[str]
) -> None:
    for text in yes:
        assert judge({"type": "number", **schema}, text.encode()), text
    for text in no:
        assert not judge({"type": "number", **schema}, text.encode()), text
