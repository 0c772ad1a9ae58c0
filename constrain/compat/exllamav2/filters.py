"""Third-party filters on machines without an accelerator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

from constrain.filters import ExLlamaV2EngineFilter, ExLlamaV2Filter
from constrain.filters.base import FilterResult

T = TypeVar("T")


class _IdsOnly(ExLlamaV2Filter):
    """A wrapper of a filter that hides its mask of logits, so that its ids are used."""

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
    """Wrap ``function`` so that third-party filters in its argument ``filters`` work without an accelerator.

    Filters that mask logits were written for machines with a GPU, and allocate pinned memory, which torch refuses
    without an accelerator. There, the ids of third-party filters are used, which all filters can return.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        bound = signature.bind(*args, **kwargs)
        if bound.arguments.get("filters") and not torch.cuda.is_available():
            bound.arguments["filters"] = _without_masks(bound.arguments["filters"])
        return function(*bound.args, **bound.kwargs)

    return call


def _without_masks(filters: Any) -> Any:
    if isinstance(filters, (list, tuple)):
        return [_without_masks(entry) for entry in filters]
    can_mask = getattr(filters, "can_mask_logits", None)
    if isinstance(filters, ExLlamaV2EngineFilter) or can_mask is None or not can_mask():
        return filters
    # A class of the same name, since errors name the class of the filter.
    return type(type(filters).__name__, (_IdsOnly,), {})(filters)
