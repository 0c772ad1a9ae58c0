"""JSON strings and numbers as languages."""

from __future__ import annotations

import itertools
import json
import random
from decimal import Decimal
from typing import Any

import pytest

from constrain._core import Automaton
from constrain.errors import ResourceLimit

CONTENTS = [
    "[^]*",
    "a*",
    'a"|b\\\\|/|\\n',
    "[^a-zé]*",
    "\\u{1F600}|\\uE000",
    "[\\u{10000}-\\u{103FF}]",
    "\\x00|\\x1f|\\x7f",
    "é{2}",
]
PIECES = [
    *(
        "a",
        "é",
        "😀",
        "\ue000",
        "/",
        '\\"',
        "\\\\",
        "\\/",
        "\\b",
        "\\f",
        "\\n",
        "\\r",
        "\\t",
        "\n",
        "\x7f",
        "\x1f",
        "\\",
    ),
    *("\\u0061", "\\u00e9", "\\u00E9", "\\ud83d\\ude00", "\\uD83D\\uDE00", "\\ud83d", "\\ude00", "\\u001f", "\\u001F"),
    *("\\u0000", "\\u0022", "\\ue000", "\\u12", "\\x41", "\\ud800\\udc00", "\\u006", '"'),
]


def value_of(text: str) -> str | None:
    """The string that a JSON text stands for; None where it is none, or holds half a surrogate pair."""
    try:
        value = json.loads(text)
        value.encode()
    except (ValueError, UnicodeEncodeError):
        return None
    return value if isinstance(value, str) else None


@pytest.mark.parametrize("content", CONTENTS)
def test_strings_are_accepted_by_value(content: str) -> None:
    inner = Automaton.regex(content, dialect="ecma")
    full, minimal = inner.json_string("full"), inner.json_string("minimal")
    for pieces in itertools.chain.from_iterable(itertools.product(PIECES, repeat=n) for n in range(3)):
        text = f'"{"".join(pieces)}"'
        value = value_of(text)
        wanted = value is not None and inner.matches(value)
        assert full.matches(text) == wanted, text
        plain = wanted and text == json.dumps(value, ensure_ascii=False)
        assert minimal.matches(text) == plain, text


@pytest.mark.parametrize("escapes", ["minimal", "full"])
@pytest.mark.parametrize("content", CONTENTS)
def test_no_string_prefix_is_a_dead_end(content: str, escapes: str) -> None:
    inner = Automaton.regex(content, dialect="ecma")
    automaton = inner.json_string(escapes)
    rng = random.Random(1)
    for _ in range(60):
        state, text = automaton.start(), bytearray()
        while not automaton.accepting(state):
            following = automaton.next_bytes(state)
            assert following, (content, bytes(text))
            special = [byte for byte in following if byte in b'\\u"']
            byte = rng.choice(special if special and rng.random() < 0.5 else following)
            if len(text) > 60 and ord('"') in following:
                byte = ord('"')
            text.append(byte)
            state = automaton.step(state, byte)
        assert inner.matches(json.loads(text.decode()))


def test_every_escape_of_one_character() -> None:
    words = Automaton.literals(["😀".encode()]).json_string("full").words(100)
    assert len(words) == 17
    assert {json.loads(word) for word in words} == {"😀"}


NUMBERS = [
    f"{sign}{integer}{fraction}{exponent}"
    for sign in ("", "-")
    for integer in ("0", "1", "4", "5", "7", "12", "19", "20", "21", "99", "100", "123", "05")
    for fraction in ("", ".0", ".5", ".05", ".250", ".251", ".")
    for exponent in ("", "e0", "E+1", "e-2", "e-06", "e2", "e309", "e")
]


def is_json_number(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def in_range(value: Decimal, limits: dict[str, Any]) -> bool:
    return (
        ("minimum" not in limits or value >= Decimal(limits["minimum"]))
        and ("maximum" not in limits or value <= Decimal(limits["maximum"]))
        and ("exclusive_minimum" not in limits or value > Decimal(limits["exclusive_minimum"]))
        and ("exclusive_maximum" not in limits or value < Decimal(limits["exclusive_maximum"]))
        and all(value % Decimal(step) == 0 for step in limits.get("multiples_of", ()))
    )


def should_accept(text: str, limits: dict[str, Any]) -> bool:
    """Membership in the language of `Automaton.number`, computed with decimals."""
    if not is_json_number(text):
        return False
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    zero = fraction == "0" and len(whole.lstrip("-")) <= 15
    if limits.get("integer") and (exponent or whole == "-0" or (fraction and not zero)):
        return False
    if exponent:
        first = whole.lstrip("-")
        normalised = len(first) == 1 and first != "0"
        if limits.get("multiples_of") or not normalised or abs(int(exponent)) > 308:
            return False
    return in_range(Decimal(text), limits)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"integer": True},
        {"minimum": "5", "maximum": "20"},
        {"integer": True, "minimum": "5", "maximum": "20"},
        {"integer": True, "minimum": "-12", "exclusive_maximum": "7"},
        {"minimum": "0", "exclusive_maximum": "1"},
        {"exclusive_minimum": "0"},
        {"exclusive_maximum": "0"},
        {"minimum": "0", "maximum": "0"},
        {"exclusive_minimum": "-1.05", "maximum": "4.25"},
        {"minimum": "0.05", "maximum": "0.051"},
        {"minimum": "-1e2", "maximum": "1.2e1"},
        {"multiples_of": ["0.05"]},
        {"multiples_of": ["0.25", "0.1"], "minimum": "-5"},
        {"integer": True, "multiples_of": ["2.5"]},
        {"integer": True, "multiples_of": ["7"], "minimum": "10", "maximum": "100"},
        {"multiples_of": ["3"], "exclusive_minimum": "12", "maximum": "1e2"},
    ],
    ids=str,
)
def test_numbers_agree_with_decimals(limits: dict[str, Any]) -> None:
    automaton = Automaton.number(**limits)
    for text in NUMBERS:
        assert automaton.matches(text) == should_accept(text, limits), text


@pytest.mark.seeds(4)
def test_random_ranges(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        low, high = sorted(round(rng.uniform(-130, 130), rng.randrange(3)) for _ in range(2))
        limits: dict[str, Any] = {
            rng.choice(["minimum", "exclusive_minimum"]): str(low),
            rng.choice(["maximum", "exclusive_maximum"]): str(high),
            "integer": rng.random() < 0.4,
        }
        if rng.random() < 0.5:
            limits["multiples_of"] = [rng.choice(["0.01", "0.5", "3", "7", "12.5", "1e1", "17"])]
        automaton = Automaton.number(**limits)
        if limits["integer"]:
            span = range(-140, 141)
            numbers = [Decimal(word.decode()) for word in automaton.words(1000)]
            assert set(numbers) == {n for n in span if in_range(Decimal(n), limits)}
            assert len(numbers) == 2 * len(set(numbers)), "with and without .0"
        for text in rng.sample(NUMBERS, 150):
            assert automaton.matches(text) == should_accept(text, limits), (text, limits)
        walk_numbers(automaton, limits, rng)


def walk_numbers(automaton: Automaton, limits: dict[str, Any], rng: random.Random) -> None:
    """Random words; none runs into a dead end, all are within the limits."""
    for _ in range(5):
        state, text = automaton.start(), ""
        while state is not None:
            following = automaton.next_bytes(state)
            if automaton.accepting(state) and (not following or rng.random() < 0.2):
                assert in_range(Decimal(text), limits), (text, limits)
                break
            assert following, (text, limits)
            byte = rng.choice(following)
            text += chr(byte)
            state = automaton.step(state, byte)


def test_steps_far_apart() -> None:
    automaton = Automaton.number(integer=True, multiples_of=["1000000"], minimum="1", maximum="9000000")
    assert automaton.words(20) == [b"%d000000%b" % (n, end) for n in range(1, 10) for end in (b"", b".0")]
    assert Automaton.number(integer=True, multiples_of=["1000003"], minimum="1", maximum="1000002").is_empty()
    assert Automaton.number(multiples_of=["0.01"]).matches("19.99")
    with pytest.raises(ResourceLimit):
        Automaton.number(multiples_of=["999999999999", "1000000000039"])


def test_numbers_do_not_run_away() -> None:
    automaton = Automaton.number()
    assert automaton.matches("9" * 30 + "." + "9" * 30)
    assert not automaton.matches("9" * 31)
    assert not automaton.matches("0." + "9" * 31)
    assert Automaton.number(minimum="1e40").matches("1" + "0" * 40)
    assert not automaton.matches("1.8e308")  # no double


@pytest.mark.parametrize(
    ("value", "spellings"),
    [
        ("5", ["5", "5.0"]),
        ("1.5", ["1.5", "1.50", "1.5000", "1.5e0"]),
        ("-0.25", ["-0.25", "-2.5e-01"]),
        ("1e2", ["100", "100.0"]),
        ("9007199254740992", ["9007199254740992.0"]),
        ("0", ["0", "0.0"]),
        ("1.5e-7", ["1.5e-07", "0.00000015"]),
    ],
)
def test_number_literals(value: str, spellings: list[str]) -> None:
    automaton = Automaton.number_literal(value)
    assert all(automaton.matches(spelling) for spelling in spellings)
    assert not any(automaton.matches(f"{other}") for other in ("1", "1.51", "-5", "5.00", "5.", "0.25", "-0", "1e2"))
