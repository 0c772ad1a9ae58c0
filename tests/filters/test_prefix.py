"""The prefix filter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from constrain import ExLlamaV2Tokenizer
from constrain.errors import GrammarError
from constrain.filters import ExLlamaV2PrefixFilter

MODEL: Any = None
FREE: tuple[None, set[int]] = (None, set())


def made(tokenizer: ExLlamaV2Tokenizer, strings: str | list[str]) -> ExLlamaV2PrefixFilter:
    filter_ = ExLlamaV2PrefixFilter(MODEL, tokenizer, strings)
    filter_.begin("")
    return filter_


def pieces_of(tokenizer: ExLlamaV2Tokenizer, filter_: ExLlamaV2PrefixFilter) -> set[str]:
    pieces = tokenizer.get_id_to_piece_list()
    allowed, ends = filter_.next()
    assert allowed is not None
    assert not ends
    return {pieces[i] for i in allowed}


def feed(tokenizer: ExLlamaV2Tokenizer, filter_: ExLlamaV2PrefixFilter, text: str) -> None:
    for token_id in tokenizer.encode(text)[0].tolist():
        filter_.feed(torch.tensor([[token_id]]))


def fitting(tokenizer: ExLlamaV2Tokenizer, *rests: str) -> set[str]:
    """Return the tokens that are a prefix of a remainder, or start with one."""
    pieces = set(tokenizer.get_id_to_piece_list()) - {""}
    return {piece for piece in pieces if any(r.startswith(piece) or piece.startswith(r) for r in rests)}


@pytest.mark.parametrize("strings", ["hell", ["hell", "the q"], ["he", "hello there"]])
def test_tokens_that_lead_to_a_string_or_beyond_it_pass(
    tokenizer: ExLlamaV2Tokenizer, strings: str | list[str]
) -> None:
    filter_ = made(tokenizer, strings)
    given = [strings] if isinstance(strings, str) else strings
    assert pieces_of(tokenizer, filter_) == fitting(tokenizer, *given)
    feed(tokenizer, filter_, "h")
    assert pieces_of(tokenizer, filter_) == fitting(tokenizer, *(s[1:] for s in given if s[0] == "h"))


def test_after_the_string_the_text_is_free(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = made(tokenizer, "{")
    feed(tokenizer, filter_, '{"')
    assert filter_.next() == FREE
    feed(tokenizer, filter_, "anything")
    assert filter_.next() == FREE


def test_the_shorter_of_two_strings_is_enough_for_good(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = made(tokenizer, ["ab", "abcdef"])
    for text in ("a", "b"):
        assert filter_.next() != FREE
        feed(tokenizer, filter_, text)
    assert filter_.next() == FREE
    feed(tokenizer, filter_, "c")
    assert filter_.next() == FREE


def test_begin_starts_anew(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = made(tokenizer, "yes")
    feed(tokenizer, filter_, "yes")
    filter_.begin(None)
    assert pieces_of(tokenizer, filter_) == fitting(tokenizer, "yes")


def test_the_empty_string_leaves_everything_free(tokenizer: ExLlamaV2Tokenizer) -> None:
    assert made(tokenizer, "").next() == FREE


def test_a_character_may_be_split_over_tokens(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = made(tokenizer, "漢")
    for token_id in tokenizer.encode("漢")[0].tolist():
        assert token_id in (filter_.next()[0] or ())
        filter_.feed(torch.tensor([[token_id]]))
    assert filter_.next() == FREE


def test_the_string_follows_the_healed_prefix(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = made(tokenizer, "llo")
    filter_.begin("he")
    assert pieces_of(tokenizer, filter_) == fitting(tokenizer, "hello")
    feed(tokenizer, filter_, "hello")
    assert filter_.next() == FREE


def test_a_clone_goes_its_own_way(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = made(tokenizer, "yes")
    copy = filter_.clone()
    feed(tokenizer, copy, "yes")
    assert copy.next() == FREE
    assert copy.prefix_strings == ["yes"]
    assert filter_.next() != FREE


def test_no_string_is_refused(tokenizer: ExLlamaV2Tokenizer) -> None:
    with pytest.raises(GrammarError, match="at least one string"):
        ExLlamaV2PrefixFilter(MODEL, tokenizer, [])
