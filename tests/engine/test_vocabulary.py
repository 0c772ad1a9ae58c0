"""Vocabularies made of token bytes: what the trie under every mask must keep apart."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from constrain.engine import Matcher, Vocabulary, allocate_bitmask, compile_choices, compile_json_schema, compile_regex
from constrain.errors import VocabularyError

Allowed = Callable[[Matcher, int], list[int]]


def test_bytes_and_ids() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"", b"\xff", "é".encode(), b"</s>"], [4], [1])
    assert vocabulary.size == 5
    assert vocabulary.eos_token_ids == (4,)
    assert vocabulary.special_token_ids == frozenset({1, 4})
    assert [vocabulary.token_bytes(i) for i in range(5)] == [b"a", b"", b"\xff", "é".encode(), b""]


def test_special_tokens_are_no_text(allowed: Allowed) -> None:
    vocabulary = Vocabulary.from_tokens([b"yes", b"yes", b"<end>"], [2], [1])
    matcher = compile_choices(["yes", "<end>"], vocabulary).matcher()
    assert allowed(matcher, 3) == [0]
    assert not matcher.accept(1)
    assert not matcher.accept(2)


def test_tokens_with_the_same_bytes_go_together(allowed: Allowed) -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"b", b"a", b"ab", b"a", b"", b"b"], [5])
    matcher = compile_choices(["ab"], vocabulary).matcher()
    assert allowed(matcher, 7) == [0, 2, 3, 4]
    assert matcher.accept(4)
    assert allowed(matcher, 7) == [1, 6]


def test_empty_tokens_are_never_allowed(allowed: Allowed) -> None:
    vocabulary = Vocabulary.from_tokens([b"", b"a", b"", b""], [3])
    matcher = compile_choices(["a", "aa"], vocabulary).matcher()
    assert matcher.accept(1)
    assert allowed(matcher, 4) == [1, 3]
    assert not matcher.accept(0)
    assert not matcher.accept(2)


def test_all_ends_are_allowed_where_one_is(allowed: Allowed) -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"", b"", b"x"], [2, 1, 2])
    matcher = compile_choices(["a"], vocabulary).matcher()
    assert allowed(matcher, 4) == [0]
    assert matcher.accept(0)
    assert allowed(matcher, 4) == [1, 2]
    assert matcher.accept(2)
    assert matcher.is_finished()
    assert allowed(matcher, 4) == [1, 2]
    assert not matcher.accept(0)
    assert matcher.accept(1)


@pytest.mark.parametrize("length", [255, 256, 257, 300, 40_000, 65_535])
def test_long_tokens(length: int, allowed: Allowed) -> None:
    vocabulary = Vocabulary.from_tokens([b"a" * length, b"a", b"a" * (length - 1) + b"b", b"b", b""], [4])
    matcher = compile_choices(["a" * length + "b"], vocabulary).matcher()
    assert allowed(matcher, 5) == [0, 1]
    assert matcher.accept(0)
    assert allowed(matcher, 5) == [3]


def test_tokens_beyond_the_longest_are_refused() -> None:
    with pytest.raises(VocabularyError, match=r"token 1 is longer than 65535 bytes"):
        Vocabulary.from_tokens([b"a", b"a" * 65_536], [0])


@pytest.mark.parametrize("size", [33, 64, 65, 1000])
def test_ids_beyond_the_tokens_are_padding(size: int) -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b""], [1], size=size)
    assert vocabulary.size == size
    assert vocabulary.token_bytes(size - 1) == b""
    bits = allocate_bitmask(1, size)
    matcher = compile_choices(["a"], vocabulary).matcher()
    assert matcher.fill_bitmask(bits)
    assert bits[0, 0] == 1 and not bits[0, 1:].any()
    assert not matcher.accept(size - 1)
    assert not matcher.accept(size)
    assert not matcher.accept(-1)


# ---- Vocabularies with which not every text is tokenizable.


def test_texts_that_no_tokens_complete_are_not_begun(allowed: Allowed) -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"b", b"ab", b"c", b"cd", b""], [5])
    matcher = compile_choices(["abd", "acd", "abc"], vocabulary).matcher()
    assert allowed(matcher, 6) == [0, 2]
    assert matcher.accept(0)
    assert allowed(matcher, 6) == [1, 4]  # "c" would need "d"
    assert not matcher.accept(3)
    assert matcher.accept(1) and allowed(matcher, 6) == [3]
    matcher.reset()
    assert matcher.accept_bytes(b"abd") and matcher.is_finished()


def test_completions_that_are_not_the_shortest_count(allowed: Allowed) -> None:
    """A shortest text needs a byte that is missing, but others do not."""
    vocabulary = Vocabulary.from_tokens([b"a", b"b", b"b" * 4, b""], [3])
    matcher = compile_regex("a(x|b{8})", vocabulary).matcher()
    assert allowed(matcher, 4) == [0]
    assert matcher.accept(0) and allowed(matcher, 4) == [1, 2]


def test_values_that_are_not_tokenizable_are_excluded(allowed: Allowed) -> None:
    tokens = [b"", *(bytes([byte]) for byte in b'[]",:0a\\u1'), "é".encode(), b"true", b"null"]
    vocabulary = Vocabulary.from_tokens(tokens, [0])
    matcher = compile_json_schema(
        {"items": {"enum": ["é", "a", "aß", "ß", True, False, {}, None]}}, vocabulary
    ).matcher()
    assert {vocabulary.token_bytes(token) for token in allowed(matcher, vocabulary.size)} >= {b"[", b'"', b"true", b"0"}
    assert matcher.accept_bytes(b"[")
    names = {vocabulary.token_bytes(token) for token in allowed(matcher, vocabulary.size)}
    assert names == {b'"', b"true", b"null", b"]"}
    assert matcher.accept_bytes(b'"')
    assert {vocabulary.token_bytes(token) for token in allowed(matcher, vocabulary.size)} == {b"a", "é".encode()}
    assert matcher.accept_bytes(b"a")
    assert {vocabulary.token_bytes(token) for token in allowed(matcher, vocabulary.size)} == {b'"'}


def test_nesting_that_never_ends_is_refused(allowed: Allowed) -> None:
    tokens = [b"", b"{", b"[", b"]", b"1", b'"', b"a", b":"]
    vocabulary = Vocabulary.from_tokens(tokens, [0])
    assert allowed(compile_json_schema({}, vocabulary).matcher(), 8) == [2, 4, 5]
    with pytest.raises(VocabularyError, match="lacks bytes"):
        allowed(compile_json_schema({"type": "object"}, vocabulary).matcher(), 8)


def test_an_end_may_lie_in_the_padding(allowed: Allowed) -> None:
    vocabulary = Vocabulary.from_tokens([b"a"], [40], size=41)
    matcher = compile_choices(["a"], vocabulary).matcher()
    assert matcher.accept(0)
    assert allowed(matcher, 41) == [40]


@pytest.mark.parametrize("eos, special", [([2], []), ([-1], []), ([0], [2]), ([0], [-1])])
def test_ids_outside_are_refused(eos: list[int], special: list[int]) -> None:
    with pytest.raises(VocabularyError, match=r"token -?\d+ is outside the vocabulary of 2 tokens"):
        Vocabulary.from_tokens([b"a", b"b"], eos, special)


def test_every_token_stands_for_itself(allowed: Allowed) -> None:
    """Among many tokens that share beginnings, exactly those that begin the text are found."""
    rng = random.Random(0)
    tokens = [bytes(rng.choices(b"ab\xff", k=rng.randint(1, 6))) for _ in range(400)]
    vocabulary = Vocabulary.from_tokens([*tokens, b""], [400])
    for _ in range(50):
        text = "".join(rng.choices("ab", k=6))
        expected = [i for i, token in enumerate(tokens) if text.encode().startswith(token)]
        assert allowed(compile_choices([text], vocabulary).matcher(), 401) == expected
