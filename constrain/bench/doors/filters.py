"""Filters as third parties write them: they return token ids as Python objects."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from typing_extensions import Self

from constrain.filters import ExLlamaV2Filter


class Fixed(ExLlamaV2Filter):
    """Forces one sequence of token ids, repeatedly."""

    def __init__(self, model: Any, tokenizer: Any, ids: Sequence[int]) -> None:
        super().__init__(model, tokenizer)
        self._ids, self._place = ids, 0

    def begin(self, prefix_str: str | None) -> None:
        self._place = 0

    def feed(self, token: Any) -> None:
        self._place += 1

    def next(self) -> tuple[Collection[int], Collection[int]]:
        return [self._ids[self._place % len(self._ids)]], []

    def clone(self, c: Self | None = None) -> Self:
        c = super().clone(c)
        c._ids, c._place = self._ids, self._place
        return c


class Many(ExLlamaV2Filter):
    """Always allows the same large set of ids."""

    def __init__(self, model: Any, tokenizer: Any, ids: Collection[int]) -> None:
        super().__init__(model, tokenizer)
        self._ids = ids

    def begin(self, prefix_str: str | None) -> None:
        pass

    def feed(self, token: Any) -> None:
        pass

    def next(self) -> tuple[Collection[int], Collection[int]]:
        return self._ids, set()

    def use_background_worker(self) -> bool:
        return True
