"""Adapters of filters: choice of the form, conversion of results, optional methods."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from filter_parts import EOS, FORMS, MODEL, WIDTH, Begin, Biasing, Script, accept_text, tokens

from constrain import ExLlamaV2Tokenizer
from constrain.errors import FilterError
from constrain.filters import ExLlamaV2RegexFilter, ExLlamaV2SelectFilter
from constrain.filters.adapter import BitmaskAdapter, IdsAdapter, LogitsAdapter, adapt
from constrain.filters.masks import RowMask, row


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [WIDTH, WIDTH - 4])
def test_every_form_becomes_a_mask(script: Script, begun: Begin, form: str, width: int) -> None:
    for allowed in ({3, 31, 32, 40, width - 1}, [0], range(width)):
        made = begun(script(form, (list(allowed), [])), width)
        assert tokens(made.mask(), width) == sorted(allowed)
        assert made.bias is None


@pytest.mark.parametrize("form", ["Ids", "Bits", "Duck"])
def test_a_filter_without_an_opinion_excludes_nothing_and_ends_nothing(script: Script, begun: Begin, form: str) -> None:
    made = begun(script(form, (None, {9}), ({9}, {9})))
    assert made.mask() is None and list(made.end_tokens) == []
    made.mask()
    assert list(made.end_tokens) == ([EOS] if form == "Bits" else [9])


@pytest.mark.parametrize(("form", "steps"), [("Ids", ["next"]), ("Logits", ["prepare", "mask"]), ("Bits", ["fill"])])
@pytest.mark.parametrize("background", [False, True])
def test_the_order_of_calls(script: Script, begun: Begin, form: str, steps: list[str], background: bool) -> None:
    """The runtime chooses the thread: the adapter evaluates a filter on the thread of the caller."""
    watched = script(form, *[([4, 5, 6], [])] * 2, background=background)
    made = begun(watched)
    made.begin("pre")
    for token in (4, 5):
        made.mask()
        made.accept(token)
    made.close()
    assert watched.trace == ["begin ''", "begin 'pre'", *steps, "feed 4", *steps, "feed 5"]


def test_the_best_form_is_chosen(tokenizer: ExLlamaV2Tokenizer, script: Script) -> None:
    forms = [BitmaskAdapter, LogitsAdapter, IdsAdapter, IdsAdapter]
    targets = [script(form) for form in ("Bits", "Logits", "Ids", "Duck")]
    assert [type(adapt(target, tokenizer, WIDTH)) for target in targets] == forms
    # It has all of them by inheritance, and says that ids are right.
    select = ExLlamaV2SelectFilter(MODEL, tokenizer, ["yes", "no"])
    assert type(adapt(select, tokenizer, WIDTH)) is IdsAdapter


def test_logits_that_are_changed_become_a_mask_and_a_bias(script: Script, begun: Begin) -> None:
    made = begun(script("Logits", ({4: 1.5, 6: 0.0, 40: -2.0}, []), ([5], [])), 380)
    assert tokens(made.mask(), 380) == [4, 6, 40]
    expected = torch.zeros(380)
    expected[4], expected[40] = 1.5, -2.0
    assert made.bias.dtype is torch.float32 and torch.equal(made.bias, expected)
    assert tokens(made.mask(), 380) == [5] and made.bias is None


def test_a_bias_without_a_mask(begun: Begin) -> None:
    for change in (lambda x: x.add_(3), lambda x: x.double() + 3, lambda x: (x + 3).requires_grad_()):
        made = begun(Biasing(change))
        assert made.mask() is None
        assert torch.equal(made.bias, torch.full((WIDTH,), 3.0)) and not made.bias.requires_grad
    made = begun(Biasing(lambda x: x))
    assert made.mask() is None and made.bias is None


class Instance:
    """A wrapper of a filter that hides its faster forms."""

    def __init__(self, inner: Any) -> None:
        self.begin, self.feed, self.next = inner.begin, inner.feed, inner.next


class Proxy:
    """A wrapper of a filter that delegates all attributes."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_objects_with_methods_of_their_own_are_inspected_one_by_one(script: Script, begun: Begin) -> None:
    for view, form in ((Instance, "next"), (Proxy, "fill")):
        inner = script("Bits", ([4], []))
        made = begun(view(inner))
        assert tokens(made.mask()) == [4] and inner.trace[-1] == form and made.is_third_party
    assert begun(Proxy(script("Logits", ({7: 1.0}, [])))).mask().tokens == [7]
    with pytest.raises(FilterError, match=r"Instance: has no clone\(\)"):
        begun(Instance(script("Ids"))).fork()
    assert begun(Proxy(script("Ids", ([4], [])))).fork().mask().tokens == [4]


def test_something_else_than_a_filter_is_refused(tokenizer: ExLlamaV2Tokenizer) -> None:
    with pytest.raises(FilterError, match="str: not a filter: it has no method begin, feed, next"):
        adapt("yes|no", tokenizer, WIDTH)


def test_built_in_and_third_party_filters(tokenizer: ExLlamaV2Tokenizer, script: Script) -> None:
    class Renamed(ExLlamaV2RegexFilter):
        """A third-party class that overrides nothing."""

    class Changed(ExLlamaV2RegexFilter):
        def next(self) -> Any:
            return super().next()

    filters = [cls(MODEL, tokenizer, "a") for cls in (ExLlamaV2RegexFilter, Renamed, Changed)]
    assert [adapt(each, tokenizer, WIDTH).is_third_party for each in filters] == [False, False, True]
    assert adapt(script("Duck"), tokenizer, WIDTH).is_third_party


class FewerBits(ExLlamaV2RegexFilter):
    """A subclass that overrides one form, to exclude more tokens."""

    def fill_bitmask(self, bits: Any, row: int = 0, budget: int | None = None) -> bool:
        super().fill_bitmask(bits, row, budget)
        bits[row][4:] = 0
        return True


class FewerMasks(ExLlamaV2RegexFilter):
    def token_mask(self, words: int, budget: int | None = None) -> Any:
        return RowMask(row(super().token_mask(words, budget), words)[:4])


class FewerLogits(ExLlamaV2RegexFilter):
    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        super().mask_logits(logits)[128:] = -torch.inf
        return logits


class FewerIds(ExLlamaV2RegexFilter):
    def next(self) -> Any:
        allowed, ends = super().next()
        return [token for token in allowed or () if token < 128], ends


class FewerResults(ExLlamaV2RegexFilter):
    def get_next(self, mask: bool = False) -> Any:
        allowed, ends = super().get_next(mask)
        return [token for token in allowed if token < 128], ends


@pytest.mark.parametrize("form", [FewerBits, FewerMasks, FewerLogits, FewerIds, FewerResults])
def test_the_form_that_a_subclass_overrides_is_used(
    tokenizer: ExLlamaV2Tokenizer, begun: Begin, form: type[ExLlamaV2RegexFilter]
) -> None:
    whole = tokens(begun(ExLlamaV2RegexFilter(MODEL, tokenizer, r"[\s\S]*")).mask())
    made = begun(form(MODEL, tokenizer, r"[\s\S]*"))
    assert tokens(made.mask()) == [token for token in whole if token < 128] and max(whole) >= 128
    assert made.matchers is None and made.is_third_party
    with pytest.raises(FilterError, match="has no clone"):
        made.fork()


# Optional methods


def test_the_end_of_a_token_may_be_the_first_text(tokenizer: ExLlamaV2Tokenizer, script: Script, begun: Begin) -> None:
    made = begun(ExLlamaV2RegexFilter(MODEL, tokenizer, "ab[0-9]"))
    accept_text(made, tokenizer, "ab1")
    assert made.begin_within("ab") and made.mask().count == 10
    assert made.begin_within("") and not made.begin_within("x")
    duck = begun(script("Duck"))
    assert duck.begin_within("") and not duck.begin_within("a")  # it cannot tell


def test_healing_is_passed_on(tokenizer: ExLlamaV2Tokenizer, begun: Begin) -> None:
    made = begun(ExLlamaV2RegexFilter(MODEL, tokenizer, "llo"))
    made.begin("he")
    pieces = tokenizer.get_id_to_piece_list()
    assert {pieces[token] for token in tokens(made.mask())} == {"h", "he", "hel", "hell", "hello"} & set(pieces)
    assert made.matchers is None  # a token is no step of the matcher yet
    accept_text(made, tokenizer, "hello")
    assert made.mask().tokens == [EOS] == [*made.end_tokens] and made.matchers is not None


def test_forced_tokens_and_the_fewest(tokenizer: ExLlamaV2Tokenizer, script: Script, begun: Begin) -> None:
    text = [*tokenizer.encode("the quick fox")[0].tolist(), EOS]
    made = begun(ExLlamaV2RegexFilter(MODEL, tokenizer, "the quick fox"))
    assert list(made.forced_tokens(64)) == text and list(made.forced_tokens(2)) == text[:2]
    assert made.min_tokens() == len(text)
    for form in FORMS:
        assert list(begun(script(form)).forced_tokens(9)) == [] and begun(script(form)).min_tokens() is None


def test_budgets_reach_those_filters_that_know_them(
    tokenizer: ExLlamaV2Tokenizer, script: Script, begun: Begin
) -> None:
    class Old(ExLlamaV2RegexFilter):
        """Has no parameter for budgets."""

        def fill_bitmask(self, bits: Any, row: int = 0) -> bool:  # type: ignore[override]
            return super().fill_bitmask(bits, row)

    regex = begun(ExLlamaV2RegexFilter(MODEL, tokenizer, "[0-9]*"))
    assert EOS in regex.mask(1) and regex.mask(1).count == 1 < regex.mask(2).count == regex.mask().count
    assert begun(Old(MODEL, tokenizer, "[0-9]*")).mask(1).count == regex.mask().count
    with pytest.raises(FilterError, match=r"fill_bitmask\(\) raised BudgetError"):
        begun(ExLlamaV2RegexFilter(MODEL, tokenizer, "[0-9]{4}")).mask(2)
    for form in FORMS:
        assert begun(script(form, ([4, 5], []))).mask(1).tokens == [4, 5]
