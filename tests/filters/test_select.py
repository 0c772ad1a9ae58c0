"""The select filter: exactly one option."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from filter_parts import Begin, tokens

from constrain import ExLlamaV2Tokenizer
from constrain.errors import BudgetError, FilterError, GrammarError
from constrain.filters import ExLlamaV2SelectFilter

EOS = 1
MODEL: Any = None


def made(tokenizer: ExLlamaV2Tokenizer, options: list[str], **arguments: Any) -> ExLlamaV2SelectFilter:
    filter_ = ExLlamaV2SelectFilter(MODEL, tokenizer, options, **arguments)
    filter_.begin("")
    return filter_


def pieces_of(tokenizer: ExLlamaV2Tokenizer, filter_: ExLlamaV2SelectFilter) -> tuple[set[str], set[str]]:
    pieces = tokenizer.get_id_to_piece_list()
    allowed, ends = filter_.next()
    assert allowed is not None
    return {pieces[i] for i in allowed}, {pieces[i] for i in ends}


def feed(tokenizer: ExLlamaV2Tokenizer, filter_: ExLlamaV2SelectFilter, text: str) -> None:
    for token_id in tokenizer.encode(text)[0].tolist():
        filter_.feed(torch.tensor([[token_id]]))


def beginnings(tokenizer: ExLlamaV2Tokenizer, *rests: str) -> set[str]:
    """Return the tokens whose text is a prefix of the remainder of an option, as documented by exllamav2."""
    return {piece for piece in tokenizer.get_id_to_piece_list() if piece and any(r.startswith(piece) for r in rests)}


@pytest.mark.parametrize(
    ("options", "before", "rests"),
    [
        (["yes", "no"], "", ["yes", "no"]),
        (["yes", "yes please"], "", ["yes", "yes please"]),
        (["hello there", "hell"], "h", ["ello there", "ell"]),
        (["hello there", "help"], "hel", ["lo there", "p"]),
    ],
)
def test_tokens_that_begin_a_remainder_pass_and_those_that_are_one_end(
    tokenizer: ExLlamaV2Tokenizer, options: list[str], before: str, rests: list[str]
) -> None:
    filter_ = made(tokenizer, options)
    for char in before:
        feed(tokenizer, filter_, char)
    expected = beginnings(tokenizer, *rests)
    assert pieces_of(tokenizer, filter_) == (expected, expected & set(rests))


def test_the_first_option_to_be_complete_wins(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = made(tokenizer, ["yes", "yes please"])
    feed(tokenizer, filter_, "yes")
    assert filter_.complete
    assert filter_.next() == ({EOS}, {EOS})
    filter_.feed(torch.tensor([[EOS]]))
    assert filter_.next() == ({EOS}, {EOS})
    filter_.begin("")
    assert pieces_of(tokenizer, filter_)[0] == beginnings(tokenizer, "yes", "yes please")


def test_letters_of_either_case(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = made(tokenizer, ["Yes", "é?"], case_insensitive=True)
    assert filter_.options == ["yes", "é?"]
    allowed, _ = pieces_of(tokenizer, filter_)
    assert {"y", "Y", "yes"} <= allowed
    assert {piece.lower() for piece in allowed} <= {*"y", "ye", "yes", "\ufffd", "é"}
    feed(tokenizer, filter_, "É?")
    assert filter_.complete
    sensitive = made(tokenizer, ["Yes"])
    assert pieces_of(tokenizer, sensitive)[0] == beginnings(tokenizer, "Yes")


def test_special_characters_are_literal_in_either_case(tokenizer: ExLlamaV2Tokenizer) -> None:
    option = r"a.*[b]{1}(c)|^$+?\d-/"
    filter_ = made(tokenizer, [option], case_insensitive=True)
    for char in option.upper():
        assert char in pieces_of(tokenizer, filter_)[0]
        feed(tokenizer, filter_, char)
    assert filter_.complete


def test_a_character_may_be_split_over_tokens(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = made(tokenizer, ["漢", "字"])
    first = tokenizer.encode("漢")[0].tolist()
    for token_id in first:
        assert token_id in (filter_.next()[0] or ())
        filter_.feed(torch.tensor([[token_id]]))
    assert filter_.complete


def test_the_option_follows_the_healed_prefix(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = made(tokenizer, ["llo", "n"], case_insensitive=True)
    filter_.begin("he")
    allowed, ends = pieces_of(tokenizer, filter_)
    pieces = set(tokenizer.get_id_to_piece_list())
    assert allowed == {"h", "he", "hel", "hell", "hello"} & pieces
    assert ends == {"hello"}
    feed(tokenizer, filter_, "hello")
    assert filter_.complete


def test_a_healed_token_leaves_enough_of_the_budget(tokenizer: ExLlamaV2Tokenizer) -> None:
    """The token that regenerates the prefix may begin an option, but not one that takes too long."""
    filter_ = made(tokenizer, ["llo, how are you?", "y"])
    filter_.begin("he")
    pieces, needed = tokenizer.get_id_to_piece_list(), filter_.min_tokens()
    assert needed == 2
    assert {pieces[i] for i in filter_.next(needed)[0] or ()} == {"he"}
    assert {"h", "he", "hello"} == {pieces[i] for i in filter_.next(20)[0] or ()}
    with pytest.raises(BudgetError):
        filter_.next(needed - 1)
    filter_.begin("{{(")  # no token
    assert filter_.min_tokens() == needed + 3
    assert {pieces[i] for i in filter_.next(needed + 3)[0] or ()} == {"{"}


def test_a_clone_goes_its_own_way(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = made(tokenizer, ["yes", "no"])
    feed(tokenizer, filter_, "y")
    copy = filter_.clone()
    feed(tokenizer, copy, "es")
    assert (copy.complete, filter_.complete) == (True, False)
    assert copy.options == ["yes", "no"]
    assert pieces_of(tokenizer, filter_)[0] == beginnings(tokenizer, "es")


@pytest.mark.parametrize("case_insensitive", [False, True])
def test_an_option_is_complete_within_the_budget(
    tokenizer: ExLlamaV2Tokenizer, begun: Begin, case_insensitive: bool
) -> None:
    select = made(tokenizer, ["a very long option", "yes"], case_insensitive=case_insensitive)
    constraint, pieces = begun(select), tokenizer.get_id_to_piece_list()

    def first_letters(budget: int | None) -> set[str]:
        return {pieces[token][0].lower() for token in tokens(constraint.mask(budget))}

    needed = constraint.min_tokens()
    assert first_letters(None) == first_letters(40) == {"a", "y"}
    assert first_letters(needed) == {"y"}
    with pytest.raises(FilterError, match="BudgetError: a budget of 1 token is too small"):
        constraint.mask(1)


def test_a_subclass_without_budgets_is_not_given_any(tokenizer: ExLlamaV2Tokenizer, begun: Begin) -> None:
    class Old(ExLlamaV2SelectFilter):
        def next(self) -> Any:  # type: ignore[override]
            return super().next()

    class Collected(ExLlamaV2SelectFilter):
        def get_next(self, mask: bool = False) -> Any:
            return super().get_next(mask)

    for form in (Old, Collected):
        assert begun(form(MODEL, tokenizer, ["yes"])).mask(1).count > 0


@pytest.mark.parametrize("options", [[], ["a", ""], "yes"])
def test_options_that_are_no_choice_are_refused(tokenizer: ExLlamaV2Tokenizer, options: Any) -> None:
    with pytest.raises(GrammarError, match=r"options must be a list of (non-empty )?texts"):
        ExLlamaV2SelectFilter(MODEL, tokenizer, options)
