"""Adapters of filters: errors of filters, and results of a wrong form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from filter_parts import FORMS, MODEL, WIDTH, Begin, Biasing, Script, accept_text

from constrain import ExLlamaV2Tokenizer
from constrain.errors import DeadEnd, FilterError
from constrain.filters import ExLlamaV2Filter, ExLlamaV2RegexFilter
from constrain.filters.adapter import adapt


class Refusing:
    def begin(self, prefix_str: str) -> None:
        raise LookupError("no such state")

    def feed(self, token: torch.Tensor) -> None:
        raise ValueError("cannot swallow")

    def next(self) -> Any:
        raise ZeroDivisionError("boom")

    def forced_tokens(self, limit: int) -> Any:
        raise KeyError("forced")

    def min_tokens(self) -> int:
        raise KeyError("least")

    def feed_text(self, text: str) -> bool:
        raise KeyError("text")

    def clone(self) -> Any:
        raise KeyError("copy")

    def expected(self) -> str:
        raise KeyError("expected")


def test_errors_name_the_method(tokenizer: ExLlamaV2Tokenizer) -> None:
    made = adapt(Refusing(), tokenizer, WIDTH)
    calls: dict[str, Callable[[], Any]] = {
        "begin raised LookupError: no such state": made.begin,
        "feed raised ValueError: cannot swallow": lambda: made.accept(5),
        r"next\(\) raised ZeroDivisionError: boom": made.mask,
        "forced_tokens raised KeyError": lambda: made.forced_tokens(4),
        "min_tokens raised KeyError": made.min_tokens,
        "clone raised KeyError": made.fork,
    }
    for said, call in calls.items():
        with pytest.raises(FilterError, match=f"Refusing: {said}") as caught:
            call()
        assert caught.value.filters == ("Refusing",) and caught.value.__cause__ is not None
    Refusing.begin = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(FilterError, match="Refusing: feed_text raised KeyError"):
        made.begin_within("a")


def test_errors_show_the_end_of_the_output_and_the_expectation(tokenizer: ExLlamaV2Tokenizer, begun: Begin) -> None:
    class Exploding(ExLlamaV2RegexFilter):
        def token_mask(self, words: int, budget: int | None = None) -> Any:
            raise ZeroDivisionError("boom")

        fill_bitmask = token_mask

    made = begun(Exploding(MODEL, tokenizer, "hello (there|you) *"))
    for text, tail in (("hello th", "hello th"), ("ere" + " " * 90, None)):
        accept_text(made, tokenizer, text)
        with pytest.raises(FilterError, match=r"Exploding: fill_bitmask\(\) raised ZeroDivisionError: boom") as caught:
            made.mask()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert tail is None or (caught.value.tail, caught.value.state) == (tail, "`ere`")
    assert len(caught.value.tail or "") < 90  # no more than the end
    made.begin()
    with pytest.raises(FilterError) as caught:
        made.mask()
    assert caught.value.tail == ""


def test_a_token_outside_the_grammar_is_an_error_at_the_next_mask(tokenizer: ExLlamaV2Tokenizer, begun: Begin) -> None:
    made = begun(ExLlamaV2RegexFilter(MODEL, tokenizer, "[0-9]+"))
    accept_text(made, tokenizer, "x")
    with pytest.raises(FilterError, match=r"ExLlamaV2RegexFilter: token .* was put into the sequence although"):
        made.mask()


class Unready(ExLlamaV2Filter):
    def __init__(self) -> None: ...
    def can_mask_logits(self) -> bool:
        return True

    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def prepare_logit_mask(self) -> Any:
        return None


WRONG: list[tuple[Any, str]] = [
    ({4, 5}, "pair of collections of ids, not set"),
    (None, "pair of collections of ids, not NoneType"),
    (("45", set()), "sets or lists of ids, not str"),
    (({4}, None), "sets or lists of ids, not NoneType"),
    ((np.ones((2, 2), dtype=np.int64), set()), "sets or lists of ids, not ndarray"),
    ((np.array([0.5]), set()), "sets or lists of ids, not ndarray"),
    (({4, WIDTH}, set()), f"token id {WIDTH}, outside the {WIDTH}"),
    (([-1, 4], set()), "token id -1, outside"),
    ((np.array([4, -1]), set()), "token id -1, outside"),
    (({2**61 + 3}, set()), f"token id {2**61 + 3}, outside"),
    (({2**70}, set()), f"token id {2**70}, outside"),
    (({"yes"}, set()), "'yes', which is no token id"),
    (({10.5}, set()), r"10\.5, which is no token id"),
    (([True], set()), "True, which is no token id"),
    (({4}, {WIDTH + 5}), f"token id {WIDTH + 5}, outside the {WIDTH}"),
    (({4}, ["4"]), "'4', which is no token id"),
    (({381, 383}, set()), "token id 381, outside the 379 of the tokenizer"),
]


@pytest.mark.parametrize(("result", "complaint"), WRONG, ids=[complaint for _, complaint in WRONG])
def test_a_wrong_result_is_described(script: Script, begun: Begin, result: Any, complaint: str) -> None:
    with pytest.raises(FilterError, match=f"Duck: .*{complaint}"):
        begun(script("Duck", result)).mask()


def test_wrong_logits_are_described(begun: Begin) -> None:
    wrong: list[tuple[Any, str]] = [
        (Unready(), "must return True, not None"),
        (Biasing(lambda x: x[:10]), r"shape \(384,\), not \(10,\)"),
        (Biasing(lambda x: x.tolist()), r"shape \(384,\), not list"),
        (Biasing(lambda x: x / x.sum()), "must not make NaN"),
    ]
    for target, complaint in wrong:
        with pytest.raises(FilterError, match=f"{type(target).__name__}: .*{complaint}"):
            begun(target).mask()


@pytest.mark.parametrize("form", FORMS)
def test_a_filter_that_allows_nothing_is_a_dead_end(script: Script, begun: Begin, form: str) -> None:
    made = begun(script(form, ([], []), ([4], [])))
    with pytest.raises(DeadEnd, match=f"{form}: no token is allowed") as caught:
        made.mask()
    assert caught.value.filters == (form,)
    assert made.mask().tokens == [4]


class Moody(ExLlamaV2Filter):
    """Raises where it is asked about itself."""

    def __init__(self, fails: str) -> None:
        self.fails = fails

    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def next(self) -> Any:
        return {4}, set()

    def can_mask_logits(self) -> bool:
        return self.answer("can_mask_logits")

    def use_background_worker(self) -> bool:
        return self.answer("use_background_worker")

    def answer(self, question: str) -> bool:
        if question == self.fails:
            raise ValueError("do not ask")
        return False


@pytest.mark.parametrize("question", ["can_mask_logits", "use_background_worker"])
def test_errors_of_questions_are_named(tokenizer: ExLlamaV2Tokenizer, question: str) -> None:
    with pytest.raises(FilterError, match=rf"Moody: {question}\(\) raised ValueError: do not ask"):
        adapt(Moody(question), tokenizer, WIDTH)


def test_a_class_is_no_filter(tokenizer: ExLlamaV2Tokenizer) -> None:
    with pytest.raises(FilterError, match="ExLlamaV2RegexFilter: a class is no filter: create one"):
        adapt(ExLlamaV2RegexFilter, tokenizer, WIDTH)


def test_a_method_that_is_gone_is_named(script: Script, begun: Begin) -> None:
    target = script("Duck")
    target.clone = lambda: target
    made = begun(target)
    made.fork()
    del target.clone
    target.__class__ = type("Mute", (), {"begin": lambda *_: None})
    with pytest.raises(FilterError, match="Duck: feed raised AttributeError"):
        made.accept(4)
    with pytest.raises(FilterError, match="Duck: clone raised AttributeError"):
        made.fork()
