"""Several filters as one: forms, intersection, background work, and failures."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import current_thread, main_thread
from typing import Any

import pytest
import torch

from constrain import ExLlamaV2Tokenizer
from constrain.errors import DeadEnd, FilterError
from constrain.filters import ExLlamaV2Filter
from constrain.filters.stack import FilterStack

EOS = 1
WIDTH = 384


class Listing(ExLlamaV2Filter):
    """Returns prepared results, one a step, as sets or lists; records what it is asked, and whether in background."""

    def __init__(self, *results: Any, background: bool = False) -> None:
        self.background_result = None
        self.results = list(results)
        self.background = background
        self.trace: list[str] = []

    def note(self, what: str) -> None:
        self.trace.append(what if current_thread() is main_thread() else f"{what} in background")

    def use_background_worker(self) -> bool:
        return self.background

    def begin(self, prefix_str: str | None) -> None:
        self.note(f"begin {prefix_str!r}")

    def feed(self, token: torch.Tensor) -> None:
        self.note(f"feed {int(token[0][0])}")

    def next(self) -> Any:
        self.note("next")
        return self.results.pop(0)


class Masking(Listing):
    """The same by masks on the logits."""

    def can_mask_logits(self) -> bool:
        return True

    def prepare_logit_mask(self) -> bool:
        self.note("prepare")
        return True

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        self.note("mask")
        allowed = list(self.results.pop(0)[0])
        kept = torch.full_like(logits, -torch.inf)
        kept[allowed] = logits[allowed]
        return kept


class Packed(Listing):
    """The same by a bitmask."""

    end_tokens = (EOS,)

    def can_mask_logits(self) -> bool:
        return True

    def fill_bitmask(self, bits: Any, row: int) -> bool:
        self.note("fill")
        allowed = self.results.pop(0)[0]
        if allowed is None:
            return False
        words = [sum(1 << i % 32 for i in set(allowed) if i // 32 == word) for word in range(bits.shape[1])]
        bits[row] = torch.tensor(words).to(torch.int32).numpy()
        return True


class Duck:
    """Has only what every version of the protocol has."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.fed: list[int] = []

    def begin(self, prefix_str: str) -> None:
        self.fed.clear()

    def feed(self, token: torch.Tensor) -> None:
        self.fed.append(int(token))

    def next(self) -> Any:
        return self.results.pop(0)


def token(token_id: int) -> torch.Tensor:
    return torch.tensor([[token_id]])


def stack(tokenizer: ExLlamaV2Tokenizer, *filters: Any) -> FilterStack:
    made = FilterStack(filters, tokenizer, WIDTH - 4)
    made.begin()
    return made


def allowed_by(made: FilterStack, prefer_eos: bool = False) -> list[int]:
    logits = torch.zeros(WIDTH)
    made.apply(logits, prefer_eos)
    allowed: list[int] = torch.nonzero(logits > -torch.inf).flatten().tolist()
    return allowed


@pytest.mark.parametrize("first", [Listing, Masking, Packed, Duck])
@pytest.mark.parametrize("second", [Listing, Masking, Packed, Duck])
def test_two_filters_of_any_form_intersect(tokenizer: ExLlamaV2Tokenizer, first: Any, second: Any) -> None:
    made = stack(tokenizer, first(([3, 31, 32, 40, 383], set())), second(({40, 31, 7, 383}, [])))
    assert allowed_by(made) == [31, 40, 383]


@pytest.mark.parametrize("form", [Listing, Packed, Duck])
def test_a_filter_without_an_opinion_is_left_out(tokenizer: ExLlamaV2Tokenizer, form: Any) -> None:
    assert allowed_by(stack(tokenizer, form((None, {9})))) == list(range(WIDTH))
    made = stack(tokenizer, form((None, {9})), Listing(({4, 9}, {4})))
    assert allowed_by(made) == [4, 9]
    assert made.ends(4)
    assert not made.ends(9)


def test_the_logits_of_allowed_tokens_stay(tokenizer: ExLlamaV2Tokenizer) -> None:
    logits = torch.arange(WIDTH, dtype=torch.float32)
    stack(tokenizer, Listing(({5, 80}, set()))).apply(logits)
    assert (logits[5], logits[80]) == (5, 80)
    assert torch.isneginf(logits).sum() == WIDTH - 2


def test_end_tokens_are_united(tokenizer: ExLlamaV2Tokenizer) -> None:
    made = stack(tokenizer, Listing(({4, 5, 6}, {4})), Duck(({4, 5, 6}, [5])), Packed(({EOS, 4, 5, 6}, ())))
    allowed_by(made)
    assert [i for i in range(8) if made.ends(i)] == [EOS, 4, 5]


@pytest.mark.parametrize("form", [Listing, Packed])
@pytest.mark.parametrize("only", [0, 31, 32, 370])
def test_the_only_allowed_token_is_told(tokenizer: ExLlamaV2Tokenizer, form: Any, only: int) -> None:
    made = stack(tokenizer, form(([only], [])), Listing(([only, 380], [])))
    assert made.apply(torch.zeros(WIDTH)) == only


def test_several_allowed_tokens_are_not_told(tokenizer: ExLlamaV2Tokenizer) -> None:
    made = stack(tokenizer, Listing(([4, 5], []), ([4, 70], []), (None, [])))
    assert [made.apply(torch.zeros(WIDTH)) for _ in range(3)] == [None, None, None]


@pytest.mark.parametrize("form", [Listing, Masking, Packed, Duck])
def test_the_end_of_the_sequence_is_preferred_where_allowed(tokenizer: ExLlamaV2Tokenizer, form: Any) -> None:
    made = stack(tokenizer, form(([4, 5], []), ([EOS, 4, 5], [])))
    assert allowed_by(made, prefer_eos=True) == [4, 5]
    assert allowed_by(made, prefer_eos=True) == [EOS]


def trace_of(made: FilterStack, watched: Listing, pool: ThreadPoolExecutor) -> list[str]:
    made.begin("pre")
    for token_id in (4, 5):
        made.start(pool)
        made.apply(torch.zeros(WIDTH))
        made.feed(token_id)
    made.drop()
    return watched.trace


@pytest.mark.parametrize(("form", "steps"), [(Listing, ["next"]), (Masking, ["prepare", "mask"]), (Packed, ["fill"])])
@pytest.mark.parametrize("background", [False, True])
def test_the_order_of_calls(
    tokenizer: ExLlamaV2Tokenizer, monkeypatch: pytest.MonkeyPatch, form: Any, steps: list[str], background: bool
) -> None:
    monkeypatch.setattr("constrain.filters.forms.HANDOFF_SECONDS", 0.0)
    watched = form(*[([4, 5, 6], [])] * 2, background=background)
    if background:
        steps = [f"{steps[0]} in background", *steps[1:]]
    with ThreadPoolExecutor(1) as pool:
        trace = trace_of(FilterStack([watched], tokenizer, WIDTH), watched, pool)
    assert trace == ["begin 'pre'", *steps, "feed 4", *steps, "feed 5"]


def test_a_bitmask_that_was_filled_fast_is_not_handed_to_a_thread_again(
    tokenizer: ExLlamaV2Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("constrain.filters.forms.HANDOFF_SECONDS", 1e9)
    watched = Packed(*[([4, 5, 6], [])] * 2, background=True)
    with ThreadPoolExecutor(1) as pool:
        trace = trace_of(FilterStack([watched], tokenizer, WIDTH), watched, pool)
    assert trace == ["begin 'pre'", "fill in background", "feed 4", "fill", "feed 5"]


def test_masking_and_listing_filters_together_are_all_asked_for_lists(tokenizer: ExLlamaV2Tokenizer) -> None:
    watched = Masking(*[([4, 5, 6], [])] * 2, background=True)
    other = Listing(*[([4, 5], [])] * 2)
    with ThreadPoolExecutor(1) as pool:
        trace = trace_of(FilterStack([watched, other], tokenizer, WIDTH), watched, pool)
    assert trace == ["begin 'pre'", "next in background", "feed 4", "next in background", "feed 5"]


@pytest.mark.parametrize("form", [Listing, Masking, Packed])
def test_dropped_work_does_not_count_for_the_next_sequence(tokenizer: ExLlamaV2Tokenizer, form: Any) -> None:
    made = stack(tokenizer, form(([4], []), ([5], []), background=True))
    with ThreadPoolExecutor(1) as pool:
        made.start(pool)
        made.drop()
        made.start(pool)
        expected = [5] if form is not Masking else [4]  # a prepared mask was dropped, but not yet used up
        assert allowed_by(made) == expected


class Refusing(Duck):
    def begin(self, prefix_str: str) -> None:
        raise LookupError("no such state")


class Choking(Duck):
    def feed(self, token: torch.Tensor) -> None:
        raise ValueError("cannot swallow")


class Unready(Masking):
    def prepare_logit_mask(self) -> bool:
        return None  # type: ignore[return-value]


class Shrinking(Masking):
    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return logits[:10]


class Exploding(ExLlamaV2Filter):
    def __init__(self, background: bool = False) -> None:
        self.background_result = None
        self.background = background

    def use_background_worker(self) -> bool:
        return self.background

    def begin(self, prefix_str: str | None) -> None: ...

    def feed(self, token: torch.Tensor) -> None: ...

    def next(self) -> Any:
        raise ZeroDivisionError("boom")


def test_a_filter_that_raises_is_named_with_the_end_of_the_text(tokenizer: ExLlamaV2Tokenizer) -> None:
    made = stack(tokenizer, Listing(), Exploding())
    for token_id in tokenizer.encode("hello there")[0].tolist():
        made.feed(token_id)
    made = stack(tokenizer, Exploding())
    for token_id in tokenizer.encode("hello there")[0].tolist():
        made.feed(token_id)
    with pytest.raises(FilterError, match=r"Exploding: next\(\) raised ZeroDivisionError: boom") as caught:
        made.apply(torch.zeros(WIDTH))
    assert caught.value.filters == ("Exploding",)
    assert caught.value.tail == "hello there"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_filter_that_raises_in_background_is_named_too(tokenizer: ExLlamaV2Tokenizer) -> None:
    made = stack(tokenizer, Exploding(background=True))
    with ThreadPoolExecutor(1) as pool:
        made.start(pool)
        with pytest.raises(FilterError, match=r"Exploding: .*boom"):
            made.apply(torch.zeros(WIDTH))
        made.start(pool)
        made.drop()


def test_begin_and_feed_that_raise_are_named(tokenizer: ExLlamaV2Tokenizer) -> None:
    with pytest.raises(FilterError, match="Refusing: begin raised LookupError: no such state"):
        stack(tokenizer, Refusing())
    with pytest.raises(FilterError, match="Choking: feed raised ValueError: cannot swallow"):
        stack(tokenizer, Choking()).feed(5)


@pytest.mark.parametrize(
    ("filter_", "complaint"),
    [
        (Duck({4, 5}), "pair of collections of ids, not set"),
        (Duck(None), "pair of collections of ids, not NoneType"),
        (Duck(("45", set())), "sets or lists of ids, not str"),
        (Duck(({4}, None)), "sets or lists of ids, not NoneType"),
        (Duck(({4, WIDTH}, set())), f"token id {WIDTH}, outside the {WIDTH}"),
        (Duck(([-1, 4], set())), "token id -1, outside"),
        (Duck(({"yes"}, set())), "next.*raised"),
        (Unready(), "must return True, not None"),
        (Shrinking(), r"shape \(384,\), not \(10,\)"),
    ],
)
def test_a_wrong_result_is_described(tokenizer: ExLlamaV2Tokenizer, filter_: Any, complaint: str) -> None:
    with pytest.raises(FilterError, match=f"{type(filter_).__name__}: .*{complaint}"):
        stack(tokenizer, filter_).apply(torch.zeros(WIDTH))


def test_something_else_than_a_filter_is_refused(tokenizer: ExLlamaV2Tokenizer) -> None:
    with pytest.raises(FilterError, match="str: not a filter: it has no method begin, feed, next"):
        FilterStack(["yes|no"], tokenizer, WIDTH)


@pytest.mark.parametrize("form", [Listing, Masking, Packed, Duck])
def test_a_filter_that_allows_nothing_is_a_dead_end(tokenizer: ExLlamaV2Tokenizer, form: Any) -> None:
    made = stack(tokenizer, form(([], []), ([4], [])))
    with pytest.raises(DeadEnd, match=f"{form.__name__}: no token is allowed") as caught:
        made.apply(torch.zeros(WIDTH))
    assert caught.value.filters == (form.__name__,)
    assert allowed_by(made) == [4]


def test_filters_that_exclude_each_other_are_both_named(tokenizer: ExLlamaV2Tokenizer) -> None:
    made = stack(tokenizer, Duck(({4, 5}, set())), Packed(({6}, set())))
    with pytest.raises(DeadEnd, match="Duck and Packed: no token is allowed by all of them"):
        made.apply(torch.zeros(WIDTH))


def test_every_filter_is_asked_even_where_one_excludes_all(tokenizer: ExLlamaV2Tokenizer) -> None:
    last = Listing(([4], []))
    with pytest.raises(DeadEnd):
        stack(tokenizer, Duck((set(), set())), last).apply(torch.zeros(WIDTH))
    assert last.trace[-1] == "next"
