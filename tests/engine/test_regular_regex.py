"""Regular expressions against Python's own matcher: random patterns, and every text up to some length."""

from __future__ import annotations

import itertools
import random
import re
import warnings
from collections import Counter

import pytest

from constrain._core import Automaton
from constrain.errors import RegexError, ResourceLimit

ATOMS = ["a", "b", "c", ".", "[ab]", "[^a]", "é", r"\w", r"\W", r"\s", "a", "b"]
PLACES = ["^", "$", r"\b", r"\B", r"\A", r"\Z", "(?:)"]
REPEATS = ["*", "+", "?", "{2}", "{1,2}", "{0,2}", "{,1}", "{2,}", "{,}"]
LOOKS = ["(?=", "(?!", "(?<=", "(?<!"]
TEXTS = [
    *(
        "".join(text)
        for length in range(7)
        for text in itertools.product("abc", repeat=length)
        if length < 6 or "c" not in text
    ),
    *("".join(text) for length in range(1, 4) for text in itertools.product("aé \n", repeat=length)),
]


def random_pattern(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(12 if depth else 3)
    if kind < 3:
        return rng.choice(ATOMS)
    if kind < 6:
        return random_pattern(rng, depth - 1) + random_pattern(rng, depth - 1)
    if kind < 8:
        return f"(?:{random_pattern(rng, depth - 1)}|{random_pattern(rng, depth - 1)})"
    if kind < 10:
        return f"(?:{random_pattern(rng, depth - 1)}){rng.choice(REPEATS)}{rng.choice(['', '?'])}"
    if kind == 10:
        return rng.choice(PLACES)
    return rng.choice(LOOKS) + random_pattern(rng, depth - 1) + ")"


def random_patterns(seed: int, count: int) -> list[tuple[str, str]]:
    """Patterns that Python takes, with flags."""
    rng = random.Random(seed)
    patterns = []
    while len(patterns) < count:
        pattern = random_pattern(rng, rng.randrange(1, 5))
        flags = "".join(flag for flag in "ims" if rng.random() < 0.15)
        try:
            re.compile(pattern)
        except re.error:
            continue
        patterns.append((pattern, flags))
    return patterns


def python_regex(pattern: str, flags: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(f"(?{flags}){pattern}" if flags else pattern)


def accepts_leftmost(matcher: re.Pattern[str], text: str) -> bool:
    found = matcher.match(text)
    return found is not None and found.end() == len(text)


MODES = {
    "whole": ({}, lambda matcher, text: matcher.fullmatch(text) is not None),
    "search": ({"search": True}, lambda matcher, text: matcher.search(text) is not None),
    "leftmost": ({"leftmost_first": True}, accepts_leftmost),
}


@pytest.mark.seeds(1)
@pytest.mark.parametrize("mode", MODES)
def test_random_patterns_match_as_in_python(mode: str, seed: int, tally: Counter[str]) -> None:
    options, accepts = MODES[mode]
    compiled = 0
    for pattern, flags in random_patterns(seed=1000 * seed + len(mode), count=220):
        try:
            automaton = Automaton.regex(pattern, flags=flags, **options)
        except RegexError as error:
            assert "inside a lookbehind" in error.reason
            continue
        compiled += 1
        matcher = python_regex(pattern, flags)
        wrong = [text for text in TEXTS if automaton.matches(text) != accepts(matcher, text)]
        assert not wrong, (pattern, flags, wrong[:5])
    tally["random patterns compared with Python"] += compiled
    assert compiled > 200


def test_every_state_leads_to_acceptance() -> None:
    rng = random.Random(7)
    for pattern, flags in random_patterns(seed=7, count=150):
        try:
            automaton = Automaton.regex(pattern, flags=flags)
        except RegexError:
            continue
        state = automaton.start()
        for _ in range(8):
            if state is None:
                break
            assert automaton.accepting(state) or automaton.next_bytes(state), pattern
            automaton.shortest_length(state)  # finds a word, or never returns
            following = automaton.next_bytes(state)
            state = automaton.step(state, rng.choice(following)) if following else None


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a|ab", ["a"], ["ab"]),
        ("ab|a", ["a", "ab"], []),
        ("[a-z]+?", ["q"], ["qq"]),
        ('".*?"', ['""', '"a"'], ['"a""', '"a"b"']),
        ("(|a)*", [""], ["a"]),
        ("(a|ab)(c|bcd)?", ["a", "ac", "abcd"], ["ab", "abc"]),
    ],
)
def test_leftmost_first(pattern: str, matching: list[str], others: list[str]) -> None:
    automaton = Automaton.regex(pattern, leftmost_first=True)
    assert [text for text in matching + others if automaton.matches(text)] == matching


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (r"\u{1F600}\ud83d\ude00", ["😀😀"], ["😀"]),
        (r"\cJ\x41\0", ["\nA\0"], ["JA0"]),
        (r"[]", [], ["", "a"]),
        (r"[^]", ["a", "\n", "😀"], ["", "ab"]),
        (r"[\w-a]\-\_{", ["--_{", "x-_{"], ["b-_"]),  # legacy rules
        (r"\p{Lu}\P{L}\p{Script=Greek}\p{digit}", ["A1α4", "ÉωΩ٣"[:1] + "-β٣"], ["a1α4", "AAα4", "A1a4"]),
        (r"a.b", ["axb", "a\x85b"], ["a\nb", "a\rb", "a\u2028b"]),
        (r"\d\w\s", ["1a\ufeff", "1_ "], ["٣a ", "1é ", "1a\x1c"]),
        (r"(?<year>\d{4})$", ["2024"], ["2024\n", "12345"]),
        (r"(?<=a+)b|a+b", ["ab", "aab"], ["b"]),
    ],
)
def test_ecma_dialect(pattern: str, matching: list[str], others: list[str]) -> None:
    automaton = Automaton.regex(pattern, dialect="ecma")
    assert [text for text in matching + others if automaton.matches(text)] == matching


@pytest.mark.parametrize(
    ("pattern", "inner", "doubtful", "neither"),
    [
        (r"\d", ["7"], ["٣"], ["x"]),
        (r"\D", ["x"], ["٣"], ["7"]),
        (r"[^\d]", ["x"], ["٣"], ["7"]),
        (r"\w", ["x"], ["é"], ["-"]),
        (r"\s", [" ", "\u2003"], ["\ufeff", "\x1c"], ["x"]),
        (r"[^\s]", ["x"], ["\ufeff", "\x1c"], [" "]),
        (r".", ["x"], ["\r", "\u2028"], ["\n"]),
        (r"x$\n?", ["x"], ["x\n"], ["xx"]),
        (r"(?!\d)[^]", ["x"], ["٣"], ["7"]),
        (r"a\b[^]", ["a-"], ["aé"], ["ab"]),
        (r"a\B[^]", ["ab"], ["aé"], ["a-"]),
        (r"(?i)k", ["k", "K"], ["\u212a"], ["j"]),
    ],
)
def test_dialects_of_patterns(pattern: str, inner: list[str], doubtful: list[str], neither: list[str]) -> None:
    texts = inner + doubtful + neither
    small = Automaton.regex(pattern, dialect="ecma", classes="inner")
    large = Automaton.regex(pattern, dialect="ecma", classes="outer")
    assert [text for text in texts if small.matches(text)] == inner
    assert [text for text in texts if large.matches(text)] == inner + doubtful


@pytest.mark.parametrize(
    ("pattern", "offset", "reason", "dialect"),
    [
        ("ab(c", 2, "unterminated", "python"),
        ("abc)", 3, "parenthesis", "python"),
        ("é[z-a]", 2, "range", "python"),
        ("a[bc", 1, "unterminated", "python"),
        ("a**", 2, "multiple repeat", "python"),
        ("a|*b", 2, "nothing to repeat", "python"),
        ("{,}", 0, "nothing to repeat", "python"),
        ("(?x) +", 5, "nothing to repeat", "python"),
        ("x{3,2}", 1, "least count", "python"),
        (r"(a)\1", 3, "backreferences", "python"),
        ("(?P=n)", 0, "backreferences", "python"),
        ("(a)(?(1)b|c)", 3, "conditionals", "python"),
        ("a(?R)", 1, "recursion", "python"),
        (r"a\q", 1, "bad escape", "python"),
        ("a(?i)b", 1, "start", "python"),
        ("(?<=a+)b", 0, "fixed-width", "python"),
        (r"(?<=(?=a))b", 4, "lookahead inside", "python"),
        ("(?:a|ab)++c", 0, "possessive", "python"),
        ("x(?>a|ab)?c?", 1, "atomic", "python"),
        ("(?:(?>a+){2}){3}", 3, "atomic", "python"),
        (r"x\p{Nope}", 1, "property", "ecma"),
        (r"^abc\Z", 4, "place", "ecma"),
        (r"\ud83d", 0, "surrogate", "ecma"),
        (r"(?<n>a)\k<n>", 7, "backreferences", "ecma"),
        (300 * "(", 200, "deeply", "ecma"),
    ],
)
def test_errors_name_the_place(pattern: str, offset: int, reason: str, dialect: str) -> None:
    with pytest.raises(RegexError, match=reason) as caught:
        Automaton.regex(pattern, dialect=dialect)
    assert caught.value.offset == offset


@pytest.mark.parametrize("pattern", ["a++b", "(?>ab|cd)c", "[0-9]*+", "(?>a)b", "(?>ab|cd)?c*", "x{2,3}+y?z"])
def test_possessive_where_it_changes_nothing(pattern: str) -> None:
    plain = pattern.replace("++", "+").replace("(?>", "(?:").replace("*+", "*").replace("}+", "}")
    for text in [*TEXTS, "12", "xxz", "xxxyz", "abc", "cdc"]:
        assert Automaton.regex(pattern).matches(text) == (re.fullmatch(plain, text) is not None)


@pytest.mark.parametrize("pattern", ["a{,}", "a{,}?", "a{,1}{", "a{1}{,", "a{ ,}", "a{}", "a{,1"])
def test_braces_are_quantifiers_or_text_as_in_python(pattern: str) -> None:
    automaton = Automaton.regex(pattern)
    for text in ["", "a", "aa", "a{", "aa{", "a{,", "{", "a{,}", "a{ ,}", "a{}", "a{,1"]:
        assert automaton.matches(text) == (re.fullmatch(pattern, text) is not None), text


@pytest.mark.parametrize("flags", ["(?i)", "(?ai)", "(?a)"])
@pytest.mark.parametrize(
    "pattern",
    ["k", "s", "é", "[a-z]", "[^k]", "[à-ÿ]", r"\w", r"\W", r"\d", r"\s", r"\S", r"[\wσ]", r"[^\Wk]", r"[\W\d]", "σ"],
)
def test_ignored_case_is_that_of_python(flags: str, pattern: str) -> None:
    """The flag `a` leaves other letters than those of ASCII as they are; classes have no case."""
    automaton = Automaton.regex(flags + pattern)
    for text in "kKsSiIéÉσςΣµμıß1_- \u212a\u017f\u0345\u03b9\u1e9e\u212b\u0130\u0661\u24b6\u24d0\x1c\xa0":
        assert automaton.matches(text) == (re.fullmatch(flags + pattern, text) is not None), text


def test_large_counts() -> None:
    words = Automaton.regex(r"^(\S+\s+){0,99}\S+$", dialect="ecma", search=True)
    assert words.matches("word " * 99 + "word")
    assert not words.matches("word " * 100 + "word")
    assert Automaton.regex("[^]{0,1000}", dialect="ecma").matches("é" * 1000)
    assert not Automaton.regex("[^]{0,1000}", dialect="ecma").matches("é" * 1001)
    with pytest.raises(ResourceLimit) as caught:
        Automaton.regex("((a{100}){100}){100}")
    assert caught.value.kind == "regex_states"


def test_many_conditions_of_lookahead_are_refused_by_their_number() -> None:
    automaton = Automaton.regex("".join(f"(?=(.{{{i}}})*$)" for i in range(1, 13)) + ".*x")
    with pytest.raises(ResourceLimit, match="conditions of lookahead") as caught:
        automaton.start()
    assert caught.value.kind == "search_states"


def test_verbose_and_scoped_flags() -> None:
    assert Automaton.regex("(?x) a b # comment\n + [ ]").matches("abb ")
    scoped = Automaton.regex("(?i:a)b(?-i:c)", flags="i")
    assert [text for text in ("Abc", "ABc", "abC") if scoped.matches(text)] == ["Abc", "ABc"]


@pytest.mark.parametrize("pattern", ["(?i)(?m)^a", "(?x) # c\n (?i)a b", "(?#c)(?i)(?:a)", "(?i)a|^b$"])
def test_flags_of_the_whole_pattern_may_be_several_groups(pattern: str) -> None:
    automaton = Automaton.regex(pattern)
    for text in ["a", "A", "b", "B", "ab", "Ab", "a b"]:
        assert automaton.matches(text) == (re.fullmatch(pattern, text) is not None), text
