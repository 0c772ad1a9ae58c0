"""A constraint that applies after the thoughts of a reasoning model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from constrain.filters.constraint import Constraint
from constrain.filters.masks import TokenMask, exclude, mask_of

if TYPE_CHECKING:
    import torch

    from constrain.engine import Matcher


@dataclass(frozen=True)
class Thinking:
    """How long a model may think.

    Attributes:
        opening: tokens that open its thoughts; empty if the prompt has opened them.
        closing: tokens that close them. The model may write the first of them at any time; the others follow.
        limit: maximum number of tokens in between.
    """

    opening: tuple[int, ...]
    closing: tuple[int, ...]
    limit: int

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens, the opening and the closing ones included."""
        return len(self.opening) + self.limit + len(self.closing)


class ThinkFirst:
    """A constraint on what a model writes after its thoughts.

    While the model thinks, only tokens that would end the output are excluded.

    Attributes:
        num_tokens: number of tokens so far that belong to the thoughts, their opening and closing included.
    """

    def __init__(self, constraint: Constraint, thinking: Thinking, stop_tokens: frozenset[int], width: int) -> None:
        """
        Args:
            constraint: applies after the thoughts.
            thinking: how long the model may think.
            stop_tokens: tokens that would end the output.
            width: number of logits.
        """
        self._constraint, self._thinking = constraint, thinking
        self._stop_tokens, self._width = stop_tokens, width
        self.num_tokens = self._num_closing = 0

    @property
    def _is_over(self) -> bool:
        return self._num_closing == len(self._thinking.closing)

    @property
    def filters(self) -> Sequence[Any]:
        return self._constraint.filters

    @property
    def end_tokens(self) -> Collection[int]:
        return self._constraint.end_tokens if self._is_over else ()

    @property
    def bias(self) -> torch.Tensor | None:
        return self._constraint.bias if self._is_over else None

    @property
    def matchers(self) -> Sequence[Matcher] | None:
        return self._constraint.matchers if self._is_over else None

    @property
    def in_background(self) -> bool:
        return self._is_over and self._constraint.in_background

    @property
    def is_third_party(self) -> bool:
        return self._constraint.is_third_party

    def begin(self, prefix: str = "") -> None:
        self.num_tokens = self._num_closing = 0
        self._constraint.begin(prefix)

    def begin_within(self, text: str) -> bool:
        self.begin()
        return not text

    def mask(self, budget: int | None = None) -> TokenMask | None:
        if self._is_over:
            return self._constraint.mask(budget)
        forced = self._forced()
        if forced:
            return mask_of(forced[:1], self._width)
        return exclude(None, self._stop_tokens, self._width)

    def accept(self, token: int) -> None:
        if self._is_over:
            self._constraint.accept(token)
            return
        is_open = self.num_tokens >= len(self._thinking.opening)
        if is_open and token == self._thinking.closing[self._num_closing]:
            self._num_closing += 1
        self.num_tokens += 1

    def accepted(self, token: int, masks: Sequence[TokenMask | None] | None = None) -> None:
        self._constraint.accepted(token, masks)

    def forced_tokens(self, limit: int) -> Sequence[int]:
        return self._constraint.forced_tokens(limit) if self._is_over else self._forced()[:limit]

    def fork(self) -> ThinkFirst:
        fork = copy(self)
        fork._constraint = self._constraint.fork()
        return fork

    def min_tokens(self) -> int | None:
        needed = self._constraint.min_tokens()
        if needed is None or self._is_over:
            return needed
        thinking = self._thinking
        before_closing = len(thinking.opening) + thinking.limit
        free = 0 if self._num_closing else max(0, before_closing - self.num_tokens)
        return free + len(thinking.closing) - self._num_closing + needed

    def close(self) -> None:
        self._constraint.close()

    def _forced(self) -> Sequence[int]:
        """Return the tokens that have to follow: the rest of the opening, or of the closing; none in between."""
        thinking, written = self._thinking, self.num_tokens
        if written < len(thinking.opening):
            return thinking.opening[written:]
        must_close = self._num_closing or written >= len(thinking.opening) + thinking.limit
        return thinking.closing[self._num_closing :] if must_close else ()
