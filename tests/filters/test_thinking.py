"""A constraint after thoughts: what may come in each phase, and how many tokens that takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from constrain import ExLlamaV2Tokenizer
from constrain.filters import ExLlamaV2RegexFilter, combine
from constrain.filters.masks import TokenMask, flags
from constrain.filters.thinking import ThinkFirst, Thinking

EOS, WIDTH = 1, 384
MODEL: Any = SimpleNamespace(config=SimpleNamespace(vocab_size=WIDTH))
OPENING, CLOSING = (50, 51), (60, 61, 62)


def made(tokenizer: ExLlamaV2Tokenizer, limit: int = 3) -> ThinkFirst:
    inner = combine([ExLlamaV2RegexFilter(MODEL, tokenizer, "[ab]{2}")], tokenizer, WIDTH)
    constraint = ThinkFirst(inner, Thinking(OPENING, CLOSING, limit), frozenset({EOS}), WIDTH)
    constraint.begin()
    return constraint


@pytest.fixture
def constraint(tokenizer: ExLlamaV2Tokenizer) -> ThinkFirst:
    return made(tokenizer)


def allowed(mask: TokenMask | None) -> list[int]:
    return np.flatnonzero(flags(mask, WIDTH)).tolist()  # type: ignore[no-any-return]


def accept(constraint: ThinkFirst, *tokens: int) -> None:
    for token in tokens:
        assert token in allowed(constraint.mask())
        constraint.accept(token)


def test_thoughts_are_opened_and_closed(constraint: ThinkFirst, tokenizer: ExLlamaV2Tokenizer) -> None:
    for token in OPENING:
        assert allowed(constraint.mask()) == [token]
        accept(constraint, token)
    for token in (7, 8, 9):
        assert allowed(constraint.mask()) == [idx for idx in range(WIDTH) if idx != EOS]
        assert not constraint.forced_tokens(9) and not constraint.end_tokens and constraint.matchers is None
        accept(constraint, token)
    for place, token in enumerate(CLOSING):
        assert constraint.forced_tokens(9) == CLOSING[place:]
        assert allowed(constraint.mask()) == [token]
        accept(constraint, token)
    assert constraint.num_tokens == len(OPENING) + 3 + len(CLOSING)
    assert constraint.matchers is not None
    a = tokenizer.single_id("a")
    assert a in allowed(constraint.mask()) and EOS not in allowed(constraint.mask())
    accept(constraint, a, a)
    assert allowed(constraint.mask()) == [EOS] and EOS in constraint.end_tokens


def test_the_first_token_of_the_closing_ends_thoughts_early(constraint: ThinkFirst) -> None:
    accept(constraint, *OPENING, 7, CLOSING[0])
    assert constraint.forced_tokens(1) == CLOSING[1:2]
    accept(constraint, *CLOSING[1:])
    assert constraint.num_tokens == len(OPENING) + 1 + len(CLOSING)
    constraint.begin()
    assert constraint.num_tokens == 0 and allowed(constraint.mask()) == [OPENING[0]]


def test_the_number_of_tokens_that_suffice(constraint: ThinkFirst, tokenizer: ExLlamaV2Tokenizer) -> None:
    # Thoughts of full length, a and b, and the end.
    record = len(tokenizer.encode("ab")[0]) + 1
    walk = (*OPENING, 7, 8, 9, *CLOSING)
    for place, token in enumerate(walk):
        assert constraint.min_tokens() == len(walk) - place + record
        accept(constraint, token)
    constraint.begin()
    accept(constraint, *OPENING, CLOSING[0])
    assert constraint.min_tokens() == len(CLOSING) - 1 + record


def test_there_may_be_no_room_for_thoughts(tokenizer: ExLlamaV2Tokenizer) -> None:
    constraint = made(tokenizer, limit=0)
    for token in (*OPENING, *CLOSING):
        assert allowed(constraint.mask()) == [token]
        accept(constraint, token)


def test_a_fork_goes_its_own_way(constraint: ThinkFirst, tokenizer: ExLlamaV2Tokenizer) -> None:
    accept(constraint, *OPENING)
    fork = constraint.fork()
    assert fork is not None
    accept(fork, CLOSING[0])
    assert fork.forced_tokens(9) == CLOSING[1:] and not constraint.forced_tokens(9)
    a = tokenizer.single_id("a")
    accept(fork, *CLOSING[1:], a, a)
    accept(constraint, *CLOSING)
    assert allowed(fork.mask()) == [EOS] and a in allowed(constraint.mask())
    fork.begin()
    accept(fork, *OPENING, *CLOSING)
    assert allowed(fork.mask()) == allowed(constraint.mask()), "the record begins again, too"
