"""Adapters of filters: work in the background, and time limits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest
import torch
from filter_parts import MODEL, Begin, EagerFilter

from constrain import ExLlamaV2Tokenizer
from constrain.errors import FilterError
from constrain.filters import ExLlamaV2Filter, ExLlamaV2RegexFilter, ExLlamaV2SelectFilter


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
def test_a_filter_with_its_own_background_work_is_started(begun: Begin, masks: bool, time_limit: float | None) -> None:
    target = OwnBackground(masks)
    made = begun(target, time_limit=time_limit)
    assert made.mask().tokens == [4] and made.mask().tokens == [4]
    assert target.trace == ["background_prepare" if masks else "background_next"] * 2


def test_a_result_that_is_pending_is_honoured(begun: Begin) -> None:
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
def test_a_filter_that_hangs_runs_out_of_time(begun: Begin, hanging: list[Hanging], index: int) -> None:
    made = begun(hanging[index], time_limit=0.05)
    method = ["next", "mask_logits", "mask_logits", "fill_bitmask"][index]
    with pytest.raises(FilterError, match=rf"Hanging.*: {method}\(\) did not return within 0\.05 seconds"):
        made.mask()
    assert made.bias is None and list(made.end_tokens) == []
    hanging[index].release.set()
    assert made.mask() is None or made.mask().tokens == [4]


def test_work_in_the_background_runs_out_of_time_too(begun: Begin) -> None:
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


def test_a_timeout_of_the_filter_itself_is_reported_as_such(begun: Begin) -> None:
    class Impatient(Hanging):
        def next(self) -> Any:
            raise TimeoutError("the parser gave up")

    with pytest.raises(FilterError, match=r"Impatient: next\(\) raised TimeoutError: the parser gave up"):
        begun(Impatient(), time_limit=30.0).mask()


def test_built_in_filters_need_no_time_limit(
    tokenizer: ExLlamaV2Tokenizer, begun: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("constrain.filters.adapter.call_within", None)
    for target in (
        ExLlamaV2RegexFilter(MODEL, tokenizer, "ab"),
        ExLlamaV2SelectFilter(MODEL, tokenizer, ["ab"]),
    ):
        assert begun(target, time_limit=0.0).mask() is not None
