"""Masks and operations on masks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrain.engine import Vocabulary, compile_choices
from constrain.engine.bitmask import packed
from constrain.filters.masks import RowMask, TokenMask, contains, exclude, flags, intersect, only_end, row, token_list
from constrain.testing import byte_vocabulary

WIDTH, WORDS = 257, 9
BYTES = byte_vocabulary()
#: Byte tokens that can begin a choice: text is UTF-8.
TOKENS = st.sets(st.integers(1, 127))
Make = Callable[[Collection[int]], TokenMask]


def made_of_bits(tokens: Collection[int]) -> TokenMask:
    return RowMask(packed([*tokens], WORDS))


def made_by_the_engine(tokens: Collection[int]) -> TokenMask:
    mask = compile_choices([chr(token) for token in tokens], BYTES).matcher().mask()
    assert mask is not None
    return mask


def made_of_fewer_words(tokens: Collection[int]) -> TokenMask:
    return RowMask(packed([*tokens], 4))


MAKERS: list[Make] = [made_of_bits, made_by_the_engine, made_of_fewer_words]
KIND = st.sampled_from(MAKERS)


def tokens_of(mask: TokenMask | None) -> set[int]:
    return set(np.flatnonzero(flags(mask, WIDTH)).tolist())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(tokens=TOKENS.filter(bool), kind=KIND)
def test_a_mask_is_a_set(tokens: set[int], kind: Make) -> None:
    mask = kind(tokens)
    assert tokens_of(mask) == tokens == {token for token in range(-2, 400) if token in mask}
    assert mask.count == len(tokens)
    listed = token_list(mask)
    # The engine lists fewer tokens of a small vocabulary.
    assert listed == (sorted(tokens) if len(tokens) <= 64 else None) or (listed is None and kind is made_by_the_engine)
    assert row(mask, WORDS).tolist() == packed([*tokens], WORDS).tolist()
    assert kind(tokens).id == mask.id or kind is made_by_the_engine
    assert all(contains(mask, token) == contains(None, token) for token in tokens) and not contains(mask, 250)


def test_all_tokens() -> None:
    assert flags(None, 5).tolist() == [True] * 5 and token_list(None) is None


@settings(max_examples=100, deadline=None, derandomize=True)
@given(parts=st.lists(st.tuples(TOKENS.filter(bool), KIND), min_size=1, max_size=4))
def test_intersection(parts: list[tuple[set[int], Make]]) -> None:
    masks = [kind(tokens) for tokens, kind in parts]
    both = intersect(masks, WORDS)
    assert tokens_of(both) == reduce(set.intersection, (tokens for tokens, _ in parts))
    assert intersect(masks[::-1], WORDS) is both or len({mask.id for mask in masks}) == 1


def test_an_intersection_of_equal_masks_is_one_of_them() -> None:
    one, other = made_of_bits([3, 40]), made_of_bits([3, 40])
    assert intersect([one], WORDS) is one and intersect([one, other], WORDS) in (one, other)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(tokens=TOKENS.filter(bool), removed=st.sets(st.integers(-3, 400)), kind=KIND)
def test_tokens_are_excluded_unless_nothing_would_be_left(tokens: set[int], removed: set[int], kind: Make) -> None:
    mask = kind(tokens)
    without = exclude(mask, removed, WIDTH)
    assert tokens_of(without) == (tokens - removed or tokens)
    assert exclude(mask, frozenset(removed), WIDTH) is without
    if not tokens & removed or tokens <= removed:
        assert without.id == mask.id


@settings(max_examples=100, deadline=None, derandomize=True)
@given(removed=st.sets(st.integers(0, 300)), width=st.sampled_from([1, 5, 32, 257]))
def test_tokens_are_excluded_from_all(removed: set[int], width: int) -> None:
    left = np.flatnonzero(flags(exclude(None, removed, width), 320)).tolist()
    assert left == sorted(set(range(width)) - removed or range(width))


@pytest.mark.parametrize("kind", MAKERS)
def test_the_end_is_preferred_where_it_is_allowed(kind: Make) -> None:
    mask = kind([7, 8, 90])
    assert tokens_of(only_end(mask, 90)) == {90} and only_end(mask, 90) is only_end(made_of_bits([90, 1]), 90)
    assert only_end(mask, 91) is mask and only_end(mask, None) is mask
    assert only_end(None, 90) is None


def test_combinations_are_the_same_objects_again(bpe: Vocabulary = BYTES) -> None:
    one, other = made_by_the_engine([65, 66, 67]), made_of_bits([66, 67, 68])
    assert intersect([one, other], WORDS) is intersect([other, one], WORDS)
    assert exclude(one, [65], WIDTH) is exclude(one, {65}, WIDTH)
    assert exclude(None, [65], WIDTH) is exclude(None, (65,), WIDTH)
    assert exclude(one, [65], WIDTH).id == intersect([one, other], WORDS).id


def test_masks_of_other_kinds() -> None:
    class Even:
        """A third-party mask."""

        id: Any = "even"
        count, tokens = 129, None

        def __contains__(self, token: int) -> bool:
            return token % 2 == 0

        def fill(self, bits: Any) -> None:
            bits[:] = 0x55555555

    mask = intersect([Even(), made_of_bits([3, 4, 6])], WORDS)
    assert mask.tokens == [4, 6] and tokens_of(exclude(Even(), [0, 2], 8)) & set(range(8)) == {4, 6}
