"""Filters of other packages, where they need what only an accelerator has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

from constrain.filters import ExLlamaV2EngineFilter, ExLlamaV2Filter
from constrain.filters.base import FilterResult

T = TypeVar("T")


class _AskedForIds(ExLlamaV2Filter):
    """A filter that could mask logits, and is asked for the ids of tokens instead."""

    def __init__(self, target: Any) -> None:
        super().__init__(getattr(target, "model", None), getattr(target, "tokenizer", None))  # type: ignore[arg-type]
        self.target = target

    def begin(self, prefix_str: str | None) -> None:
        self.target.begin(prefix_str)

    def feed(self, token: torch.Tensor) -> None:
        self.target.feed(token)

    def next(self) -> FilterResult:
        result: FilterResult = self.target.next()
        return result

    def use_background_worker(self) -> bool:
        return bool(self.target.use_background_worker())


def takes_filters(function: Callable[..., T]) -> Callable[..., T]:
    """``function`` with its argument ``filters`` (a list, or a list for each prompt) made fit for this machine.

    Filters that mask logits were written for machines with a GPU, and take pinned memory for it, which torch refuses
    where there is no accelerator. There, those of other packages are asked for ids, which they must be able to say too.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        bound = signature.bind(*args, **kwargs)
        if bound.arguments.get("filters") and not torch.cuda.is_available():
            bound.arguments["filters"] = _fit(bound.arguments["filters"])
        return function(*bound.args, **bound.kwargs)

    return call


def _fit(filters: Any) -> Any:
    if isinstance(filters, (list, tuple)):
        return [_fit(entry) for entry in filters]
    can_mask = getattr(filters, "can_mask_logits", None)
    if isinstance(filters, ExLlamaV2EngineFilter) or can_mask is None or not can_mask():
        return filters
    # Errors name the class of the filter at fault.
    return type(type(filters).__name__, (_AskedForIds,), {})(filters)
