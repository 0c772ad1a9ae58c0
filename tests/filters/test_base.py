"""The base class of filters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import current_thread, main_thread
from typing import Any

import pytest
import torch

from constrain.filters import ExLlamaV2Filter


class Counting(ExLlamaV2Filter):
    """Records the threads on which evaluations ran."""

    def __init__(self, model: Any = None, tokenizer: Any = None) -> None:
        super().__init__(model, tokenizer)
        self.threads: list[bool] = []

    def next(self) -> Any:
        self.threads.append(current_thread() is main_thread())
        return {len(self.threads)}, set()

    def prepare_logit_mask(self) -> bool:
        self.threads.append(current_thread() is main_thread())
        return True


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_new_filter_has_the_published_attributes_and_defaults() -> None:
    made = ExLlamaV2Filter("model", "tokenizer")  # type: ignore[arg-type]
    assert (made.model, made.tokenizer, made.sequence_str, made.background_result) == ("model", "tokenizer", "", None)
    assert ExLlamaV2Filter.allow_return_type_list is True
    assert made.use_background_worker() is False
    assert made.can_mask_logits() is False


@pytest.mark.parametrize(
    ("method", "arguments"),
    [("begin", ("",)), ("feed", (0,)), ("next", ()), ("prepare_logit_mask", ()), ("mask_logits", (torch.zeros(1),))],
)
def test_a_method_left_out_is_named(method: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(NotImplementedError, match=f"ExLlamaV2Filter must implement {method}"):
        getattr(ExLlamaV2Filter(None, None), method)(*arguments)  # type: ignore[arg-type]


def test_get_next_evaluates_at_once_where_nothing_is_pending() -> None:
    made = Counting()
    assert made.get_next() == ({1}, set())
    assert made.get_next(mask=True) is True
    assert made.threads == [True, True]


def test_get_next_collects_background_work_once(pool: ThreadPoolExecutor) -> None:
    made = Counting()
    made.background_next(pool)
    assert made.get_next() == ({1}, set())
    assert made.get_next() == ({2}, set())
    made.background_prepare_logit_mask(pool)
    assert made.get_next(mask=True) is True
    assert made.threads == [False, True, False]


def test_dropped_background_work_is_forgotten(pool: ThreadPoolExecutor) -> None:
    made = Counting()
    made.background_next(pool)
    made.background_drop()
    assert made.background_result is None
    assert made.get_next() == ({2}, set())
    made.background_drop()


def test_dropping_work_that_raised_is_silent(pool: ThreadPoolExecutor) -> None:
    made = ExLlamaV2Filter(None, None)  # type: ignore[arg-type]
    made.background_next(pool)
    made.background_drop()
    assert made.background_result is None


def test_starting_work_twice_is_an_error(pool: ThreadPoolExecutor) -> None:
    made = Counting()
    made.background_next(pool)
    with pytest.raises(RuntimeError, match="Counting has background work pending"):
        made.background_prepare_logit_mask(pool)


def test_a_clone_has_the_state_but_not_the_pending_work(pool: ThreadPoolExecutor) -> None:
    made = Counting("model", "tokenizer")
    made.sequence_str = "abc"
    made.background_next(pool)
    copy = made.clone()
    assert type(copy) is Counting
    assert (copy.model, copy.tokenizer, copy.sequence_str, copy.background_result) == (
        "model",
        "tokenizer",
        "abc",
        None,
    )
    target = Counting()
    assert made.clone(target) is target
    assert target.sequence_str == "abc"


def test_an_instance_that_was_not_initialised_has_the_defaults(pool: ThreadPoolExecutor) -> None:
    """Third-party filters create clones without ``__init__``."""
    made = Counting.__new__(Counting)
    made.threads = []
    assert made.get_next() == ({1}, set()) and made.sequence_str == ""
    made.background_next(pool)
    assert made.get_next() == ({2}, set())
    made.background_drop()
