"""Several filters as one constraint: the intersection of their masks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from constrain.arguments import refused
from constrain.errors import DeadEnd, FilterError
from constrain.filters.constraint import Constraint
from constrain.filters.masks import TokenMask, intersect

if TYPE_CHECKING:
    import torch

    from constrain.engine import Matcher
    from constrain.filters.adapter import FilterAdapter
    from constrain.tokenizer import ExLlamaV2Tokenizer


def combine(
    filters: Sequence[Any], tokenizer: ExLlamaV2Tokenizer, width: int, time_limit: float | None = None
) -> Constraint:
    """Combine filters to one constraint, which allows the tokens that all of them allow.

    Args:
        filters: filters, or objects that only have ``begin``, ``feed`` and ``next``.
        tokenizer: the tokenizer, for error messages.
        width: number of logits.
        time_limit: seconds that a third-party filter may take for a token; ``None``: no limit.

    Raises:
        ArgumentError: ``filters`` is not a list.
        FilterError: an object lacks a required method, or is given twice.
    """
    from constrain.filters.adapter import adapt

    parts = [adapt(each, tokenizer, width, time_limit) for each in filters_of(filters)]
    for number, part in enumerate(parts):
        if any(part.filter is other.filter for other in parts[:number]):
            raise FilterError("is given twice, but follows one sequence, once: give a clone() of it", (part.name,))
    return parts[0] if len(parts) == 1 else Combined(parts, (width + 31) // 32)


def filters_of(filters: Any) -> list[Any]:
    """Return an argument with filters as a list; ``None`` is an empty list.

    Raises:
        ArgumentError: the argument is not iterable.
    """
    if filters is None:
        return []
    if isinstance(filters, (str, bytes, Mapping)) or not isinstance(filters, Iterable):
        raise refused("filters", filters, "a list of filters")
    return list(filters)


class Combined:
    """The constraint of several filters.

    Args:
        parts: adapters of the filters.
        words: number of words of a packed row.
    """

    def __init__(self, parts: Sequence[FilterAdapter], words: int) -> None:
        self._parts = parts
        self._words = words

    @property
    def filters(self) -> Sequence[Any]:
        return [each for part in self._parts for each in part.filters]

    @property
    def end_tokens(self) -> Collection[int]:
        return frozenset().union(*(part.end_tokens for part in self._parts))

    @property
    def bias(self) -> torch.Tensor | None:
        biases = [part.bias for part in self._parts if part.bias is not None]
        return sum(biases[1:], biases[0]) if biases else None

    @property
    def matchers(self) -> Sequence[Matcher] | None:
        found = [part.matchers for part in self._parts]
        matchers = [matcher for each in found if each is not None for matcher in each]
        # A native batch cannot advance the same matcher twice, which happens if filters share one.
        return matchers if None not in found and len(set(matchers)) == len(matchers) else None

    @property
    def in_background(self) -> bool:
        return any(part.in_background for part in self._parts)

    @property
    def is_third_party(self) -> bool:
        return any(part.is_third_party for part in self._parts)

    def begin(self, prefix: str = "") -> None:
        for part in self._parts:
            part.begin(prefix)

    def begin_within(self, text: str) -> bool:
        allowed = [part.begin_within(text) for part in self._parts]  # all parts begin, even if an earlier one refuses
        return all(allowed)

    def mask(self, budget: int | None = None) -> TokenMask | None:
        found = [(part, part.evaluate(budget)) for part in self._parts]
        masks = [mask for _, mask in found if mask is not None]
        for part, mask in found:
            if mask is not None and mask.count == 0:
                raise part.dead_end()
        mask = intersect(masks, self._words) if masks else None
        if mask is not None and mask.count == 0:
            raise self._dead_end()
        return mask

    def accept(self, token: int) -> None:
        for part in self._parts:
            part.accept(token)

    def accepted(self, token: int, masks: Sequence[TokenMask | None] | None = None) -> None:
        for i, part in enumerate(self._parts):
            part.accepted(token, None if masks is None else masks[i : i + 1])

    def forced_tokens(self, limit: int) -> Sequence[int]:
        return max((part.forced_tokens(limit) for part in self._parts), key=len, default=())

    def fork(self) -> Combined:
        return Combined([part.fork() for part in self._parts], self._words)

    def min_tokens(self) -> int | None:
        return max((tokens for part in self._parts if (tokens := part.min_tokens()) is not None), default=None)

    def close(self) -> None:
        for part in self._parts:
            part.close()

    def _dead_end(self) -> DeadEnd:
        names = tuple(part.name for part in self._parts)
        states = "; ".join(state for part in self._parts if (state := part.state()))
        return DeadEnd("no token is allowed by all of them", names, self._parts[0].tail(), states or None)
