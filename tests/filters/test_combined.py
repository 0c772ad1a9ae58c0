"""Several filters as one constraint."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from filter_parts import EOS, FORMS, MODEL, WIDTH, Script, tokens
from hypothesis import given, settings
from hypothesis import strategies as st

from constrain import ExLlamaV2Tokenizer
from constrain.errors import ArgumentError, DeadEnd, FilterError
from constrain.filters import (
    Constraint,
    ExLlamaV2Filter,
    ExLlamaV2PrefixFilter,
    ExLlamaV2RegexFilter,
    ExLlamaV2SelectFilter,
    combine,
)
from constrain.filters.adapter import FilterAdapter
from constrain.filters.combined import Combined, filters_of

Combine = Callable[..., Constraint]


@pytest.fixture(name="begun", scope="session")
def begun_(tokenizer: ExLlamaV2Tokenizer) -> Combine:
    def begun(*filters: Any, width: int = WIDTH, time_limit: float | None = None) -> Constraint:
        made = combine(filters, tokenizer, width, time_limit)
        made.begin()
        return made

    return begun


@pytest.mark.parametrize(("first", "second"), [*product(FORMS, FORMS)])
def test_two_filters_of_any_form_intersect(script: Script, begun: Combine, first: str, second: str) -> None:
    made = begun(script(first, ([3, 31, 32, 40, 383], set())), script(second, ({40, 31, 7, 383}, [])))
    assert tokens(made.mask()) == [31, 40, 383]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    filters=st.lists(
        st.tuples(st.sampled_from(FORMS), st.none() | st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300))),
        min_size=1,
        max_size=4,
    )
)
def test_masks_of_filters_are_intersected(script: Script, begun: Combine, filters: Any) -> None:
    def scripted() -> list[Any]:
        return [
            script(form, (range(300) if form == "Logits" and allowed is None else allowed, ends))
            if form == "Logits"
            else script(form, (allowed, ends))
            for form, allowed, ends in filters
        ]

    alone, ends = set(range(WIDTH)), set[int]()
    for each in scripted():
        single = begun(each)
        try:
            alone &= set(tokens(single.mask()))
            ends |= {*single.end_tokens}
        except DeadEnd:
            alone.clear()
    together = begun(*scripted())
    if alone:
        assert set(tokens(together.mask())) == alone and {*together.end_tokens} == ends
    else:
        with pytest.raises(DeadEnd):
            together.mask()


def test_a_single_filter_costs_no_layer(script: Script, begun: Combine) -> None:
    assert isinstance(begun(script("Ids")), FilterAdapter) and isinstance(begun(script("Ids"), script("Ids")), Combined)


def test_no_filter_excludes_nothing(begun: Combine) -> None:
    made = begun()
    made.accept(5)
    assert made.mask() is None and not made.end_tokens and made.bias is None and made.min_tokens() is None
    assert made.forced_tokens(9) == () and made.begin_within("x") and not made.is_third_party
    assert made.fork() is not None and made.matchers == []
    made.close()


def test_arguments(tokenizer: ExLlamaV2Tokenizer, script: Script) -> None:
    for wrong in (5, "ab", {"a": 1}):
        with pytest.raises(ArgumentError, match="filters must be a list of filters"):
            combine(wrong, tokenizer, WIDTH)  # type: ignore[arg-type]
    with pytest.raises(FilterError, match="str: not a filter: it has no method begin, feed, next"):
        combine([script("Ids"), "yes|no"], tokenizer, WIDTH)
    assert filters_of(None) == [] and filters_of(each for each in "ab") == ["a", "b"]


@pytest.mark.parametrize("form", ["Ids", "Bits", "Duck"])
def test_a_filter_without_an_opinion_is_left_out(script: Script, begun: Combine, form: str) -> None:
    made = begun(script(form, (None, {9})), script("Ids", ({4, 9}, {4})))
    assert tokens(made.mask()) == [4, 9] and {*made.end_tokens} == {4}


def test_end_tokens_are_united_and_biases_added(script: Script, begun: Combine) -> None:
    made = begun(
        script("Ids", ({4, 5, 6}, {4}), ({4}, ())),
        script("Duck", ({4, 5, 6}, [5]), (None, [5])),
        script("Bits", ({EOS, 4, 5, 6}, ()), (None, ())),
        script("Logits", ({4: 1.0, 5: 2.0, 7: 9.0}, ()), ([4], ())),
        script("Logits", ({4: 0.5, 5: -2.0}, ()), ([4], ())),
    )
    assert tokens(made.mask()) == [4, 5] and {*made.end_tokens} == {EOS, 4, 5}
    bias = made.bias
    assert bias is not None and bias.shape == (WIDTH,) and bias.dtype is torch.float32
    assert (float(bias[4]), float(bias[5])) == (1.5, 0.0)
    assert tokens(made.mask()) == [4] and not made.end_tokens and made.bias is None


def test_each_filter_is_evaluated_in_its_fastest_form(script: Script, begun: Combine) -> None:
    filters = [script(form, ([4], []), background=True) for form in ("Logits", "Ids", "Bits")]
    made = begun(*filters)
    made.mask()
    made.accept(4)
    steps = [["prepare", "mask"], ["next"], ["fill"]]
    assert [each.trace for each in filters] == [["begin ''", *step, "feed 4"] for step in steps]


def test_filters_that_exclude_each_other_are_all_named(tokenizer: ExLlamaV2Tokenizer, begun: Combine) -> None:
    regexes = [ExLlamaV2RegexFilter(MODEL, tokenizer, pattern) for pattern in ("[0-9]{2}-x", "[0-9]{3}-x")]

    class Free(ExLlamaV2Filter):
        def begin(self, prefix_str: str | None) -> None: ...
        def feed(self, token: torch.Tensor) -> None: ...
        def next(self) -> Any:
            return None, ()

    made = begun(*regexes, Free(MODEL, tokenizer))
    for token in tokenizer.encode("12")[0].tolist():
        made.accept(token)
    with pytest.raises(DeadEnd, match="and Free: no token is allowed by all of them") as caught:
        made.mask()
    assert caught.value.filters == ("ExLlamaV2RegexFilter", "ExLlamaV2RegexFilter", "Free")
    assert (caught.value.tail, caught.value.state) == ("12", "`-x`; [0-9]")


def test_a_dead_end_of_one_filter_names_it_and_all_are_evaluated(script: Script, begun: Combine) -> None:
    last = script("Ids", ([4], []))
    with pytest.raises(DeadEnd, match=r"^Duck: no token is allowed") as caught:
        begun(script("Duck", (set(), set())), last).mask()
    assert caught.value.filters == ("Duck",) and last.trace[-1] == "next"


class Exploding(ExLlamaV2Filter):
    def __init__(self) -> None: ...
    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def next(self) -> Any:
        raise ZeroDivisionError("boom")


def test_a_filter_that_raises_is_named_with_the_end_of_the_text(
    tokenizer: ExLlamaV2Tokenizer, script: Script, begun: Combine
) -> None:
    made = begun(script("Ids", ([4], [])), Exploding())
    for token in tokenizer.encode("hello there")[0].tolist():
        made.accept(token)
    with pytest.raises(FilterError, match=r"Exploding: next\(\) raised ZeroDivisionError: boom") as caught:
        made.mask()
    assert caught.value.filters == ("Exploding",) and caught.value.tail == "hello there"


def test_constraints_can_be_used_again(script: Script, begun: Combine) -> None:
    filters = [script("Ids", ([4], []), ([5], [])), script("Bits", ([4, 5], []), ([4, 5], []))]
    made = begun(*filters)
    made.mask()
    made.close()
    made.begin("pre")
    assert tokens(made.mask()) == [5] and filters[0].trace[-2:] == ["begin 'pre'", "next"]


def test_all_filters_begin_within_a_token(tokenizer: ExLlamaV2Tokenizer, begun: Combine) -> None:
    regexes = [ExLlamaV2RegexFilter(MODEL, tokenizer, pattern) for pattern in ("[a-z]+[0-9]", "a+b[0-9]|c")]
    made = begun(*regexes)
    assert made.begin_within("ab") and made.mask() is not None
    assert all(part.matcher.accepted_tokens == 1 for part in regexes)
    assert not made.begin_within("b") and made.begin_within("") and made.begin_within("a")


def test_the_longest_forced_text_and_the_largest_number(
    tokenizer: ExLlamaV2Tokenizer, script: Script, begun: Combine
) -> None:
    regexes = [ExLlamaV2RegexFilter(MODEL, tokenizer, pattern) for pattern in ("[a-z]*", "th.*", "the fox")]
    single = begun(regexes[2])
    made = begun(*regexes, script("Ids"))
    assert made.forced_tokens(9) == single.forced_tokens(9) and len(made.forced_tokens(9)) > 1
    assert made.min_tokens() == single.min_tokens()
    assert begun(script("Ids"), script("Duck")).min_tokens() is None


def test_a_constraint_is_copied_if_all_its_filters_can_be(
    tokenizer: ExLlamaV2Tokenizer, script: Script, begun: Combine
) -> None:
    prefix = ExLlamaV2PrefixFilter(MODEL, tokenizer, ["the ", "a "])
    regex = ExLlamaV2RegexFilter(MODEL, tokenizer, "[a-z ]+")
    made = begun(prefix, regex)
    fork = made.fork()
    with pytest.raises(FilterError, match=r"Duck: has no clone\(\)"):
        begun(regex, script("Duck")).fork()
    token = int(tokenizer.encode("the")[0, 0])
    before = made.mask()
    fork.accept(token)
    assert made.mask() is before and fork.mask() is not before
    made.accept(token)
    assert made.mask() is fork.mask()  # the same combination is the same mask


def test_who_may_be_slow(tokenizer: ExLlamaV2Tokenizer, script: Script, begun: Combine) -> None:
    own = [ExLlamaV2RegexFilter(MODEL, tokenizer, "a+"), ExLlamaV2SelectFilter(MODEL, tokenizer, ["a"])]
    assert not begun(*own).is_third_party and begun(*own, script("Ids")).is_third_party
