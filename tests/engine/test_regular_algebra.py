"""Boolean operations, measures and lengths of regular languages against sets of words."""

from __future__ import annotations

import itertools
import random

import pytest

from constrain._core import Automaton
from constrain.errors import ResourceLimit

TEXTS = ["".join(text) for length in range(5) for text in itertools.product("abé", repeat=length)]
PATTERNS = ["a*", "(ab|é)*", "[^a]b?", "a|é{2,3}", "(?:a|b){2}.*", "", "(?!.*ab).*", "[ab]*é", "a{1,3}"]


def words_of(automaton: Automaton) -> set[str]:
    return {text for text in TEXTS if automaton.matches(text)}


@pytest.mark.parametrize(("left", "right"), list(itertools.product(PATTERNS, repeat=2)))
def test_operations_are_those_of_sets(left: str, right: str) -> None:
    a, b = Automaton.regex(left), Automaton.regex(right)
    words_a, words_b = words_of(a), words_of(b)
    assert words_of(a & b) == words_a & words_b
    assert words_of(a | b) == words_a | words_b
    assert words_of(a - b) == words_a - words_b
    assert words_of(~a) == set(TEXTS) - words_a
    joined = {x + y for x in words_a for y in words_b}
    assert words_of(a + b) == {text for text in joined if text in set(TEXTS)}
    assert Automaton.disjoint(a, b) == (a & b).is_empty()
    assert (a - a).is_empty()


def test_complements_hold_well_formed_text_only() -> None:
    everything = ~Automaton.empty()
    assert everything.matches("é🙂".encode())
    for broken in (b"\xc3", b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff"):
        assert not everything.matches(broken)


def test_literals() -> None:
    words = ["", "a", "ab", "abc", "xbc", "é", "🙂"]
    automaton = Automaton.literals([word.encode() for word in words])
    assert automaton.words(10) == sorted(word.encode() for word in words)
    assert automaton.count(100) == len(words)
    assert automaton.count(3) == 3
    assert automaton.shortest_length() == 0
    assert not automaton.matches("b")
    assert Automaton.literals([]).is_empty()


def test_measures() -> None:
    automaton = Automaton.regex("[abc]{2,3}|x{5}")
    assert automaton.count(1000) == 9 + 27 + 1
    assert automaton.shortest_length() == 2
    assert len(automaton.words(37)) == 37
    with pytest.raises(ResourceLimit):
        automaton.words(36)
    assert Automaton.regex("a|b*c").count(50) == 50
    assert Automaton.empty().count(5) == 0


def test_a_search_has_a_budget() -> None:
    near, far = Automaton.regex("[ab]*a[ab]{12}c"), Automaton.regex("[ab]*b[ab]{12}c")
    assert Automaton.disjoint(near, far)
    with pytest.raises(ResourceLimit) as caught:
        Automaton.disjoint(near, far, budget=1000)
    assert (caught.value.kind, caught.value.limit) == ("search_states", 1000)


@pytest.mark.parametrize("pattern", ["(?:aaa)*|(?:aaaa)*é", "a{3,5}|é{8}", "", "🙂{2,}", "(?:ab|abcab)*", "(?!aa)a*b?"])
def test_lengths(pattern: str) -> None:
    automaton = Automaton.regex(pattern)
    texts = ["".join(text) for length in range(9) for text in itertools.product("abc", repeat=length)]
    texts += ["a" * n + "é" for n in range(9)] + ["é" * n for n in range(9)] + ["🙂" * n for n in range(9)]
    lengths = {len(text) for text in texts if automaton.matches(text)}
    for low, high in itertools.combinations_with_replacement(range(8), 2):
        assert automaton.any_length_between(low, high) == any(low <= length <= high for length in lengths), (low, high)


def test_lengths_far_away() -> None:
    automaton = Automaton.regex("(?:aaa)*|(?:aaaa)*b")
    for length in (10**6, 10**6 + 1, 10**12 + 2, 2**63):
        possible = length % 3 == 0 or length % 4 == 1
        assert automaton.any_length_between(length, length) == possible
    assert Automaton.regex("a{5}").any_length_between(0, 2**64 - 1)
    assert not Automaton.regex("a{5}").any_length_between(6, 2**64 - 1)


def test_lengths_from_inside() -> None:
    automaton = Automaton.regex("a{5}b*")
    state = automaton.start()
    for remaining in range(5, -1, -1):
        assert automaton.any_length_between(remaining, remaining, state)
        assert remaining == 0 or not automaton.any_length_between(0, remaining - 1, state)
        state = automaton.step(state, ord("a")) if remaining else state


def test_character_sets_reach_utf8_unharmed() -> None:
    rng = random.Random(3)
    edges = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0xFFFFF, 0x10FFFF]
    for _ in range(60):
        points = sorted({min(max(rng.choice(edges) + rng.randrange(-3, 4), 0), 0x10FFFF) for _ in range(8)})
        points = [point for point in points if not 0xD800 <= point <= 0xDFFF]
        pairs = list(zip(points[::2], points[1::2], strict=False))
        members = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in pairs)
        if not members:
            continue
        for negated in (False, True):
            automaton = Automaton.regex(f"[{'^' if negated else ''}{members}]")
            for point in {p + d for p in points + edges for d in (-1, 0, 1)}:
                if 0 <= point < 0x110000 and not 0xD800 <= point <= 0xDFFF:
                    inside = any(low <= point <= high for low, high in pairs)
                    assert automaton.matches(chr(point)) == (inside != negated), (members, hex(point))
