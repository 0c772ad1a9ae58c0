"""The protocol between the runtime and the constraint of a sequence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from constrain.engine import Matcher
    from constrain.filters.masks import TokenMask


class Constraint(Protocol):
    """The constraint of one sequence.

    The runtime calls :meth:`begin`, then for every token :meth:`mask` and :meth:`accept`, then :meth:`close`. If a
    filter fails, every method raises :class:`~constrain.errors.FilterError` with the name of the filter. A constraint
    is used by one thread at a time.
    """

    @property
    def filters(self) -> Sequence[Any]:
        """Its filters, none of which may follow another sequence at the same time."""

    @property
    def end_tokens(self) -> Collection[int]:
        """Tokens that complete the constraint, if the last mask allows them: the sequence ends after one."""

    @property
    def bias(self) -> torch.Tensor | None:
        """Values to add to the logits of the next token, float32 of shape (width,) on the CPU; ``None`` for none.

        Computed together with the last mask, by filters that change logits in place.
        """

    @property
    def matchers(self) -> Sequence[Matcher] | None:
        """Matchers whose ``accept`` and ``mask`` are equivalent to those of the constraint at present, else ``None``.

        With them, a native batch can advance many sequences in one call; see :meth:`accepted`.
        """

    @property
    def in_background(self) -> bool:
        """Whether to evaluate the constraint on a worker thread, in parallel with the forward pass of the model."""

    @property
    def is_third_party(self) -> bool:
        """Whether a filter is not built in: it may block or be slow, and needs its own thread."""

    def begin(self, prefix: str = "") -> None:
        """Start, or restart, a sequence.

        Args:
            prefix: text of a removed prompt token that the next token regenerates (token healing).
        """

    def begin_within(self, text: str) -> bool:
        """Restart with the last part of the text of a token; returns whether every filter allows it."""

    def mask(self, budget: int | None = None) -> TokenMask | None:
        """Return the allowed next tokens, ``None`` for all.

        Args:
            budget: remaining tokens, the end-of-sequence token included. Filters that support budgets allow only tokens
                after which the text can be completed within it. ``None``: unlimited.

        Raises:
            DeadEnd: no token is allowed.
        """

    def accept(self, token: int) -> None:
        """Accept a token that was appended to the sequence."""

    def accepted(self, token: int, masks: Sequence[TokenMask | None] | None = None) -> None:
        """Notify the constraint that its :attr:`matchers` have accepted a token in a native batch.

        Args:
            token: the token.
            masks: the next mask of each matcher, if the batch has computed them. The next :meth:`mask`, with the budget
                of the batch, returns their intersection without evaluating the filters.
        """

    def forced_tokens(self, limit: int) -> Sequence[int]:
        """Return the tokens, at most ``limit``, of the forced text."""

    def fork(self) -> Constraint:
        """Return an independent copy in the same state; raises an error if a filter cannot be copied."""

    def min_tokens(self) -> int | None:
        """Return the minimum number of tokens to complete the constraint, end-of-sequence included; ``None``: unknown.

        For several filters this is the maximum of their numbers, which is a lower bound.
        """

    def close(self) -> None:
        """Discard background work; the constraint is not used any more."""
