"""Stop strings, banned strings and multi-token characters, compared with a simple reference implementation."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from constrain import ExLlamaV2Tokenizer
from constrain.filters import ExLlamaV2RegexFilter, combine
from constrain.filters.masks import contains
from constrain.runtime import Request, Runtime, SamplingParams, SequenceState
from constrain.runtime.detokenizer import Detokenizer
from constrain.runtime.outputs import SampledToken
from constrain.runtime.trigger import Trigger

PIECES = ["a", "b", "c", "A", "B", "ab", "abc", ".", " x", "é", "x"]
STRINGS = st.lists(st.text("abcAB.é x", min_size=1, max_size=4), max_size=3)


class Letters:
    """A tokenizer with a few pieces."""

    def get_vocab_size(self) -> int:
        return len(PIECES)

    def get_id_to_piece_list(self, include_special_tokens: bool = False) -> list[str]:
        return PIECES


def ranking(seed: int, tokens: list[int]) -> list[int]:
    """Return all tokens, most likely first, given the previous tokens."""
    order = list(range(10))
    random.Random(f"{seed} {tokens}").shuffle(order)
    return order


def decode(
    seed: int, stop: list[str], banned: list[str], limit: int, minimum: int, drop: bool = False
) -> tuple[str, str, list[str]]:
    """Return the released text, the finish reason, and the text released in each step."""
    request = Request(
        prompt=[torch.tensor([[10]])],
        sampling=SamplingParams(),
        max_new_tokens=limit,
        min_new_tokens=minimum,
        stop_strings=stop,
        banned_strings=banned,
        drop_held_text=drop,
    )
    sequence = SequenceState(request, limit, Letters(), 32, 0)  # type: ignore[arg-type]
    released = []
    while sequence.finish is None:
        mask = sequence.mask()
        token = next(token for token in ranking(seed, sequence.rows[0].tokens(1)) if contains(mask, token))
        released.append(sequence.accept(SampledToken(token, 1.0)).released.text)
        assert len(sequence) == 1 + sequence.new_tokens
    return "".join(released), sequence.finish.reason, released


def state(
    seed: int, stop: list[str], banned: list[str], limit: int, minimum: int, drop: bool = False
) -> tuple[str, str]:
    """Return the text and the finish reason found by searching the whole text after each token."""
    tokens: list[int] = []
    forbidden: dict[int, set[int]] = {}
    while True:
        left = [t for t in ranking(seed, tokens) if t not in forbidden.get(len(tokens), ())]
        if not left:
            return "", "dead_end"
        tokens.append(left[0])
        text, full = "".join(PIECES[t] for t in tokens), len(tokens) >= limit
        seen = len("".join(PIECES[t] for t in tokens[: minimum - 1])) if minimum else 0
        ends = [place for string in stop if len(tokens) >= minimum and (place := text.find(string, seen)) >= 0]
        end = None if (full and drop) or not ends else min(ends)
        starts = [place for string in banned if (place := text[:end].lower().find(string.lower())) >= 0]
        if starts:
            first = next(
                i for i in range(len(tokens)) if len("".join(PIECES[t] for t in tokens[: i + 1])) > min(starts)
            )
            forbidden = {place: excluded for place, excluded in forbidden.items() if place <= first}
            forbidden.setdefault(first, set()).add(tokens[first])
            del tokens[first:]
        elif end is not None:
            return text[:end], "stop_string"
        elif full:
            return text, "max_new_tokens"


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), STRINGS, STRINGS, st.integers(1, 12), st.booleans())
def test_strings_do_what_a_search_through_the_text_would(
    seed: int, stop: list[str], banned: list[str], limit: int, drop: bool
) -> None:
    expected = state(seed, stop, banned, limit, 0, drop)
    text, reason, released = decode(seed, stop, banned, limit, 0, drop)
    assert reason == expected[1]
    if reason != "dead_end":
        assert text == expected[0]
    so_far = ""
    for piece in released:
        so_far += piece
        assert not any(string.lower() in so_far.lower() for string in banned)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), STRINGS, st.integers(1, 8), st.integers(0, 8))
def test_stop_strings_wait_for_the_minimum(seed: int, stop: list[str], limit: int, minimum: int) -> None:
    assert decode(seed, stop, [], limit, minimum)[:2] == state(seed, stop, [], limit, minimum)


@given(st.text("aé漢🙂 \n", max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_characters_come_whole(tiny_tokenizer: ExLlamaV2Tokenizer, text: str, choose: random.Random) -> None:
    detokenizer, pieces = Detokenizer(tiny_tokenizer, special=False), []
    for part in text:
        # Encode characters one by one, so that more of them take several tokens.
        pieces += [detokenizer.push(token) for token in tiny_tokenizer.encode(part)[0].tolist()]
    assert "".join(pieces) == text and detokenizer.complete
    assert not any("\ufffd" in piece for piece in pieces)


def test_bytes_that_are_no_character_do_not_hold_the_text_up(tiny_tokenizer: ExLlamaV2Tokenizer) -> None:
    first, middle, last = tiny_tokenizer.encode("漢")[0].tolist()
    plain = int(tiny_tokenizer.encode("y")[0, 0])
    detokenizer = Detokenizer(tiny_tokenizer, special=False)
    assert [detokenizer.push(token) for token in (first, middle)] == ["", ""]
    assert detokenizer.push(plain) == "\ufffdy"
    assert [detokenizer.push(last) for _ in range(5)][-1] == "\ufffd" * 5
    assert detokenizer.push(first) == "" and detokenizer.flush() == "\ufffd"


@pytest.mark.parametrize(
    ("pattern", "banned"),
    [
        ("(è|ê)x", "è"),
        ("a(è|ê)x", "aÈ"),
        ("(b|è|ê)(è|ê)", "è"),
        ("(è|ê|ë)(è|ê|ë)x", "è"),
        ("(€|₭)(€|₭)!", "€"),
    ],
)
def test_a_banned_string_may_end_within_a_character(
    make: Callable[..., Runtime], tokenizer: ExLlamaV2Tokenizer, pattern: str, banned: str
) -> None:
    """Characters of several tokens, of which only the last can be another one."""
    runtime = make()
    for seed in range(4):
        constraint = combine([ExLlamaV2RegexFilter(runtime.model, tokenizer, pattern)], tokenizer, 384)
        request = Request(
            [tokenizer.encode("hello")], SamplingParams(top_k=0), seed, constraint,
            max_new_tokens=12, within_budget=True, banned_strings=[banned],
        )  # fmt: skip
        output = runtime.submit(request).result()
        assert re.fullmatch(pattern, output.text) and banned.lower() not in output.text
        assert tokenizer.decode(torch.tensor([token.id for token in output.tokens])) == output.text


@pytest.mark.parametrize("stops", [False, True])
def test_a_banned_string_before_an_incomplete_character(tiny_tokenizer: ExLlamaV2Tokenizer, stops: bool) -> None:
    """A token of text and the beginning of a character, after which the output ends."""
    pieces = tiny_tokenizer.get_id_to_piece_list()
    token = next(i for i, piece in enumerate(pieces) if piece.endswith("\ufffd") and piece[0].isascii())
    banned, prompt = pieces[token].rstrip("\ufffd"), torch.tensor([[10]])
    request = Request([prompt], SamplingParams(), stop_tokens=frozenset({1}), banned_strings=[banned])
    sequence = SequenceState(request, 2 if stops else 1, tiny_tokenizer, 384, 0)
    updates = [sequence.accept(SampledToken(each, 1.0)) for each in ([token, 1] if stops else [token])]
    assert sequence.finish is None and sequence.new_tokens == 0
    assert not any(update.released for update in updates)
    assert updates[-1].suppressed is not None and updates[-1].suppressed.text.startswith(banned)
    assert not contains(sequence.mask(), token)


def test_special_tokens_are_shown_on_demand(tiny_tokenizer: ExLlamaV2Tokenizer) -> None:
    assert [Detokenizer(tiny_tokenizer, shown).push(1) for shown in (False, True)] == ["", "</s>"]


@pytest.mark.parametrize(
    ("text", "rests"),
    [(["x", "ab", "c"], [None, None, ""]), (["a", "b", "c", "abc"], [None, None, ""]), (["ab", "abc"], [None, ""])],
)
def test_a_trigger_is_found_over_the_borders_of_tokens(text: list[str], rests: list[Any]) -> None:
    trigger = Trigger("abc", Letters())  # type: ignore[arg-type]
    for piece, rest in zip(text, rests, strict=False):
        token = PIECES.index(piece)
        assert trigger.rest_after(token) == rest
        trigger.accept(token)
    assert trigger.found
    trigger.reset()
    assert not trigger.found


def test_a_token_may_go_on_beyond_a_trigger() -> None:
    trigger = Trigger("xa", Letters())  # type: ignore[arg-type]
    trigger.accept(PIECES.index("x"))
    assert trigger.rest_after(PIECES.index("abc")) == "bc"
