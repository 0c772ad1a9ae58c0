"""Adapters of filters: choice of the form, conversion of results, and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from constrain import ExLlamaV2Tokenizer
from constrain.engine.bitmask import pack_ids
from constrain.errors import DeadEnd, FilterError
from constrain.filters import Constraint, ExLlamaV2Filter, ExLlamaV2RegexFilter, ExLlamaV2SelectFilter
from constrain.filters.adapter import BitmaskAdapter, IdPacker, IdsAdapter, LogitsAdapter, adapt, new_step, pack
from constrain.filters.masks import RowMask, TokenMask, flags, row

EOS = 1
WIDTH = 384
MODEL: Any = None
FORMS = ["Ids", "Logits", "Bits", "Duck"]
Script = Callable[..., Any]
Adapt = Callable[..., Any]


@pytest.fixture(name="begun")
def begun_(tokenizer: ExLlamaV2Tokenizer) -> Adapt:
    def begun(target: Any, width: int = WIDTH, time_limit: float | None = None) -> Constraint:
        made = adapt(target, tokenizer, width, time_limit)
        made.begin()
        return made

    return begun


def tokens(mask: TokenMask | None, width: int = WIDTH) -> list[int]:
    allowed: list[int] = np.flatnonzero(flags(mask, width)).tolist()
    return allowed


def accept_text(constraint: Constraint, tokenizer: ExLlamaV2Tokenizer, text: str) -> None:
    for token in tokenizer.encode(text)[0].tolist():
        constraint.accept(token)


# Forms


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [WIDTH, WIDTH - 4])
def test_every_form_becomes_a_mask(script: Script, begun: Adapt, form: str, width: int) -> None:
    for allowed in ({3, 31, 32, 40, width - 1}, [0], range(width)):
        made = begun(script(form, (list(allowed), [])), width)
        assert tokens(made.mask(), width) == sorted(allowed)
        assert made.bias is None


@pytest.mark.parametrize("form", ["Ids", "Bits", "Duck"])
def test_a_filter_without_an_opinion_excludes_nothing_and_ends_nothing(script: Script, begun: Adapt, form: str) -> None:
    made = begun(script(form, (None, {9}), ({9}, {9})))
    assert made.mask() is None and list(made.end_tokens) == []
    made.mask()
    assert list(made.end_tokens) == ([EOS] if form == "Bits" else [9])


@pytest.mark.parametrize(("form", "steps"), [("Ids", ["next"]), ("Logits", ["prepare", "mask"]), ("Bits", ["fill"])])
@pytest.mark.parametrize("background", [False, True])
def test_the_order_of_calls(script: Script, begun: Adapt, form: str, steps: list[str], background: bool) -> None:
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


def test_logits_that_are_changed_become_a_mask_and_a_bias(script: Script, begun: Adapt) -> None:
    made = begun(script("Logits", ({4: 1.5, 6: 0.0, 40: -2.0}, []), ([5], [])), 380)
    assert tokens(made.mask(), 380) == [4, 6, 40]
    expected = torch.zeros(380)
    expected[4], expected[40] = 1.5, -2.0
    assert made.bias.dtype is torch.float32 and torch.equal(made.bias, expected)
    assert tokens(made.mask(), 380) == [5] and made.bias is None


class Biasing(ExLlamaV2Filter):
    """Changes the logits that it is given, in place, and excludes none."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.change = change

    def can_mask_logits(self) -> bool:
        return True

    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def prepare_logit_mask(self) -> bool:
        return True

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        assert logits.dtype is torch.float32 and not logits.any()
        return self.change(logits)


def test_a_bias_without_a_mask(begun: Adapt) -> None:
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


def test_objects_with_methods_of_their_own_are_inspected_one_by_one(script: Script, begun: Adapt) -> None:
    for view, form in ((Instance, "next"), (Proxy, "fill")):
        inner = script("Bits", ([4], []))
        made = begun(view(inner))
        assert tokens(made.mask()) == [4] and inner.trace[-1] == form and made.is_third_party
    assert begun(Proxy(script("Logits", ({7: 1.0}, [])))).mask().tokens == [7]
    assert begun(Instance(script("Ids"))).fork() is None
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


# Work in the background


class OwnBackground(ExLlamaV2Filter):
    """Overrides how background work is started, and fails without it."""

    def __init__(self, masks: bool) -> None:
        self.background_result, self.masks, self.trace = None, masks, list[str]()

    def use_background_worker(self) -> bool:
        return True

    def can_mask_logits(self) -> bool:
        return self.masks

    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def background_next(self, pool: Executor) -> None:
        self.trace.append("background_next")
        self.background_result = pool.submit(lambda: ({4}, set()))

    def background_prepare_logit_mask(self, pool: Executor) -> None:
        self.trace.append("background_prepare")
        self.background_result = pool.submit(lambda: True)

    def get_next(self, mask: bool = False) -> Any:
        assert self.background_result is not None
        pending, self.background_result = self.background_result, None
        return pending.result()

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.fill_(-torch.inf).index_fill_(0, torch.tensor([4]), 0)


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("time_limit", [None, 30.0])
def test_a_filter_with_its_own_background_work_is_started(begun: Adapt, masks: bool, time_limit: float | None) -> None:
    target = OwnBackground(masks)
    made = begun(target, time_limit=time_limit)
    assert made.mask().tokens == [4] and made.mask().tokens == [4]
    assert target.trace == ["background_prepare" if masks else "background_next"] * 2


class EagerFilter(ExLlamaV2Filter):
    """Starts its evaluation in the background in ``feed``."""

    def __init__(self) -> None:
        self.background_result, self.evaluated, self.dropped = None, 0, False

    def begin(self, prefix_str: str | None) -> None: ...

    def feed(self, token: torch.Tensor) -> None:
        self.background_result = Future()
        self.background_result.set_result(({int(token) + 1}, set()))

    def next(self) -> Any:
        self.evaluated += 1
        return {3}, set()

    def background_drop(self) -> None:
        self.dropped = True
        super().background_drop()


def test_a_result_that_is_pending_is_honoured(begun: Adapt) -> None:
    target = EagerFilter()
    made = begun(target)
    assert made.mask().tokens == [3] and target.evaluated == 1 and not target.dropped
    made.accept(7)
    assert made.mask().tokens == [8] and target.evaluated == 1
    made.accept(9)
    made.begin()  # drops it
    assert target.dropped and made.mask().tokens == [3]
    target.dropped = False
    made.accept(9)
    made.close()
    assert target.dropped and target.background_result is None


# Time limits


class Hanging(ExLlamaV2Filter):
    """Does not return before ``release`` is set."""

    def __init__(self, masks: str = "") -> None:
        self.background_result, self.masks, self.release = None, masks, threading.Event()

    def can_mask_logits(self) -> bool:
        return bool(self.masks)

    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def next(self) -> Any:
        self.release.wait(30)
        return {4}, {4}

    def prepare_logit_mask(self) -> bool:
        return bool(self.masks != "prepare" or self.release.wait(30))

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        self.release.wait(30)
        return logits.add_(1)


class HangingBits(Hanging):
    def fill_bitmask(self, bits: Any, row: int) -> bool:
        return not self.release.wait(30)


@pytest.fixture
def hanging() -> Iterator[list[Hanging]]:
    made = [Hanging(), Hanging("mask"), Hanging("prepare"), HangingBits("fill")]
    yield made
    for each in made:
        each.release.set()


@pytest.mark.parametrize("index", range(4))
def test_a_filter_that_hangs_runs_out_of_time(begun: Adapt, hanging: list[Hanging], index: int) -> None:
    made = begun(hanging[index], time_limit=0.05)
    method = ["next", "mask_logits", "mask_logits", "fill_bitmask"][index]
    with pytest.raises(FilterError, match=rf"Hanging.*: {method}\(\) did not return within 0\.05 seconds"):
        made.mask()
    assert made.bias is None and list(made.end_tokens) == []
    hanging[index].release.set()
    assert made.mask() is None or made.mask().tokens == [4]


def test_work_in_the_background_runs_out_of_time_too(begun: Adapt) -> None:
    target = EagerFilter()
    made = begun(target, time_limit=0.05)
    made.accept(4)
    target.background_result = Future()
    with pytest.raises(FilterError, match=r"within 0\.05 seconds"):
        made.mask()
    assert target.background_result is None
    target.background_result = Future()
    made.close()
    assert target.background_result is None and made.mask().tokens == [3]


def test_a_timeout_of_the_filter_itself_is_reported_as_such(begun: Adapt) -> None:
    class Impatient(Hanging):
        def next(self) -> Any:
            raise TimeoutError("the parser gave up")

    with pytest.raises(FilterError, match=r"Impatient: next\(\) raised TimeoutError: the parser gave up"):
        begun(Impatient(), time_limit=30.0).mask()


def test_built_in_filters_need_no_time_limit(
    tokenizer: ExLlamaV2Tokenizer, begun: Adapt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("constrain.filters.adapter.call_within", None)
    for target in (
        ExLlamaV2RegexFilter(MODEL, tokenizer, "ab"),
        ExLlamaV2SelectFilter(MODEL, tokenizer, ["ab"]),
    ):
        assert begun(target, time_limit=0.0).mask() is not None


# Failures


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


def test_errors_show_the_end_of_the_output_and_the_expectation(tokenizer: ExLlamaV2Tokenizer, begun: Adapt) -> None:
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


def test_a_token_outside_the_grammar_is_an_error_at_the_next_mask(tokenizer: ExLlamaV2Tokenizer, begun: Adapt) -> None:
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
    (({2**70}, set()), r"next\(\) raised OverflowError"),
    (({"yes"}, set()), r"next\(\) raised ValueError"),
]


@pytest.mark.parametrize(("result", "complaint"), WRONG, ids=[complaint for _, complaint in WRONG])
def test_a_wrong_result_is_described(script: Script, begun: Adapt, result: Any, complaint: str) -> None:
    with pytest.raises(FilterError, match=f"Duck: .*{complaint}"):
        begun(script("Duck", result)).mask()


def test_wrong_logits_are_described(begun: Adapt) -> None:
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
def test_a_filter_that_allows_nothing_is_a_dead_end(script: Script, begun: Adapt, form: str) -> None:
    made = begun(script(form, ([], []), ([4], [])))
    with pytest.raises(DeadEnd, match=f"{form}: no token is allowed") as caught:
        made.mask()
    assert caught.value.filters == (form,)
    assert made.mask().tokens == [4]


# Optional methods


def test_the_end_of_a_token_may_be_the_first_text(tokenizer: ExLlamaV2Tokenizer, script: Script, begun: Adapt) -> None:
    made = begun(ExLlamaV2RegexFilter(MODEL, tokenizer, "ab[0-9]"))
    accept_text(made, tokenizer, "ab1")
    assert made.begin_within("ab") and made.mask().count == 10
    assert made.begin_within("") and not made.begin_within("x")
    duck = begun(script("Duck"))
    assert duck.begin_within("") and not duck.begin_within("a")  # it cannot tell


def test_healing_is_passed_on(tokenizer: ExLlamaV2Tokenizer, begun: Adapt) -> None:
    made = begun(ExLlamaV2RegexFilter(MODEL, tokenizer, "llo"))
    made.begin("he")
    pieces = tokenizer.get_id_to_piece_list()
    assert {pieces[token] for token in tokens(made.mask())} == {"h", "he", "hel", "hell", "hello"} & set(pieces)
    assert made.matchers is None  # a token is no step of the matcher yet
    accept_text(made, tokenizer, "hello")
    assert made.mask().tokens == [EOS] == [*made.end_tokens] and made.matchers is not None


def test_forced_tokens_and_the_fewest(tokenizer: ExLlamaV2Tokenizer, script: Script, begun: Adapt) -> None:
    text = [*tokenizer.encode("the quick fox")[0].tolist(), EOS]
    made = begun(ExLlamaV2RegexFilter(MODEL, tokenizer, "the quick fox"))
    assert list(made.forced_tokens(64)) == text and list(made.forced_tokens(2)) == text[:2]
    assert made.min_tokens() == len(text)
    for form in FORMS:
        assert list(begun(script(form)).forced_tokens(9)) == [] and begun(script(form)).min_tokens() is None


def test_budgets_reach_those_filters_that_know_them(
    tokenizer: ExLlamaV2Tokenizer, script: Script, begun: Adapt
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


@pytest.mark.parametrize("form", ["Ids", "Logits", "Bits"])
def test_a_fork_goes_its_own_way(script: Script, begun: Adapt, form: str) -> None:
    target = script(form, ([4], []), ([5], []), ([6], []))
    made = begun(target)
    made.mask()
    made.accept(4)
    fork = made.fork()
    assert fork.mask().tokens == [5] == made.mask().tokens
    fork.accept(7)
    assert fork.mask().tokens == [6] and target.trace[-1] != "feed 7"
    fork.accept(9)
    fork.close()
    assert made.mask().tokens == [6]


def test_a_filter_is_copied_only_by_a_method_that_knows_all_of_it(tokenizer: ExLlamaV2Tokenizer, begun: Adapt) -> None:
    class Counting(ExLlamaV2RegexFilter):
        """Has state that the inherited ``clone`` does not copy."""

        count = 0

        def feed(self, token: torch.Tensor) -> None:
            self.count += 1
            super().feed(token)

    class Copied(Counting):
        def clone(self, c: Any = None) -> Any:
            c = super().clone(c)
            c.count = self.count
            return c

    assert begun(Counting(MODEL, tokenizer, "[a-z]+")).fork() is None
    made = begun(Copied(MODEL, tokenizer, "[a-z]+"))
    made.accept(int(tokenizer.encode("the")[0, 0]))
    fork = made.fork()
    assert fork.filter.count == 1 and fork.mask().id == made.mask().id
    assert begun(EagerFilter()).fork() is None


def test_a_subclass_that_feeds_in_its_own_way_is_fed(tokenizer: ExLlamaV2Tokenizer, begun: Adapt) -> None:
    class Counting(ExLlamaV2RegexFilter):
        fed = 0

        def feed(self, token: torch.Tensor) -> None:
            self.fed += 1
            super().feed(token)

    made = begun(Counting(MODEL, tokenizer, "[a-z ]+"))
    assert made.matchers is None
    made.accept(int(tokenizer.encode("the")[0, 0]))
    assert made.filter.fed == 1 and made.filter.matcher.accepted_tokens == 1


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
    tokenizer: ExLlamaV2Tokenizer, begun: Adapt, form: type[ExLlamaV2RegexFilter]
) -> None:
    whole = tokens(begun(ExLlamaV2RegexFilter(MODEL, tokenizer, r"[\s\S]*")).mask())
    made = begun(form(MODEL, tokenizer, r"[\s\S]*"))
    assert tokens(made.mask()) == [token for token in whole if token < 128] and max(whole) >= 128
    assert made.matchers is None and made.is_third_party and made.fork() is None


# Packing


IDS = st.lists(
    st.integers(-3, 70) | st.sampled_from([2**31, 2**61 - 1, 2**61 + 4, 2**63, 2**64 + 1, True, 3.0, 5.5, "7"])
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(ids=IDS, kind=st.sampled_from([set, frozenset, list, tuple]))
def test_ids_are_packed_natively_exactly_as_by_numpy(ids: list[Any], kind: Any) -> None:
    def outcome(work: Callable[[], Any]) -> Any:
        try:
            return work().tolist()
        except Exception as error:
            return type(error), str(error)

    def slowly() -> Any:
        index = np.fromiter(collection, dtype=np.int64, count=len(collection))
        is_outside = index.size > 0 and not 0 <= index.min() <= index.max() < 64
        for each in collection if is_outside else ():
            if not 0 <= each < 64:
                raise FilterError(f"next() returned token id {each}, outside the 64 of the model")
        bits = np.zeros(64, dtype=np.uint8)
        bits[index] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)

    collection = kind(ids)
    assert outcome(lambda: pack(collection, 2)) == outcome(slowly)
    native = pack_ids(collection, 2)
    if all(type(each) is int and 0 <= each < 64 for each in collection):
        assert native is not None and native.tolist() == slowly().tolist()
    else:
        assert native is None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ids=st.sets(st.integers(0, 20_000)), removed=st.sets(st.integers(0, 20_000)), words=st.integers(626, 640))
def test_large_sets_are_packed(ids: set[int], removed: set[int], words: int) -> None:
    ids -= removed
    expected = np.zeros(32 * words, dtype=np.uint8)
    expected[list(ids)] = 1
    for collection in (ids, frozenset(ids), sorted(ids), np.array(sorted(ids), dtype=np.int64)):
        packed = pack_ids(collection, words)
        assert packed is not None and packed.dtype == np.int32
        assert np.array_equal(np.unpackbits(packed.view(np.uint8), bitorder="little"), expected)


def test_sets_that_have_shrunk_and_subclasses() -> None:
    class Odd(set):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter([5])

        def __len__(self) -> int:
            return 1

    shrunk = set(range(64))
    for token in range(63):
        shrunk.remove(token)
    assert pack_ids(shrunk, 2).tolist() == [0, -(2**31)]  # type: ignore[union-attr]
    assert pack_ids(Odd([6]), 2) is None and pack(Odd([6]), 2).tolist() == [1 << 5, 0]
    for dtype in (np.int32, np.int64):
        ids = np.arange(64, dtype=dtype)[::2]
        assert pack_ids(ids, 2).tolist() == [0x55555555] * 2  # type: ignore[union-attr]
    assert pack(np.array([1, 3], dtype=np.uint8), 1).tolist() == [10]
    assert pack_ids([], 0).tolist() == []  # type: ignore[union-attr]


def test_a_collection_is_packed_once_a_step() -> None:
    packer, ids = IdPacker(), {4, 5}
    first = packer.pack(ids, 2, 0)
    assert packer.pack(ids, 2, 0) is first and first.tokens == [4, 5]
    assert packer.pack({4, 5}, 2, 0) is not first and packer.pack(ids, 3, 0) is not first
    ids.add(6)
    ids.remove(4)
    assert packer.pack(ids, 2, 0) is first  # nothing may change within a step
    again = packer.pack(ids, 2, None)
    assert again.tokens == [5, 6] and packer.pack(ids, 2, 0) is again
    packer.new_step()
    assert packer.step == 1 and packer.pack(ids, 2, 0) is not packer.pack(ids, 2, 0)  # too late for that step
    assert packer.pack(ids, 2, 1) is packer.pack(ids, 2, 1)
    changing = {7}
    last = packer.pack(changing, 2, None)
    assert packer.pack(changing, 2, 1) is not last  # which was not cached


class Shared(ExLlamaV2Filter):
    """Returns the same set in every step, and removes accepted tokens from it in place."""

    def __init__(self, ids: set[int]) -> None:
        self.ids = ids

    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None:
        self.ids.discard(int(token))

    def next(self) -> Any:
        return self.ids, set()


def test_sequences_share_packed_ids_in_a_step(begun: Adapt) -> None:
    ids = set(range(100))
    made = [begun(Shared(ids)) for _ in range(3)]
    assert len({id(each.mask()) for each in made}) == 3  # they have just begun
    for _ in range(2):
        new_step()
        assert len({id(each.mask()) for each in made}) == 1
    new_step()
    assert made[0].mask().count == 100
    made[0].accept(5)
    assert made[0].mask().count == 99 and 5 not in made[0].mask()  # in the same step
    new_step()
    fork = begun(Shared(ids))
    assert fork.mask().count == made[1].mask().count == 99
