"""The protocol between a runtime and the constraint of one sequence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from constrain.engine import Matcher
    from constrain.filters.masks import TokenMask


class Constraint(Protocol):
    """What a runtime asks of the constraint of one sequence.

    A sequence is :meth:`begin`, then for every token :meth:`mask` and :meth:`accept`, then :meth:`close`. Every method
    raises :class:`~constrain.errors.FilterError`, with the name of the filter at fault, where a filter fails. One
    thread at a time may use a constraint.
    """

    @property
    def end_tokens(self) -> Collection[int]:
        """Of the tokens that the last mask allows, those that complete the constraint: the sequence ends after one."""

    @property
    def bias(self) -> torch.Tensor | None:
        """Numbers to add to the logits of the next token, float32 of shape (width,) on the CPU; ``None`` for none.

        They come with the last mask, from filters that change logits in place.
        """

    @property
    def matchers(self) -> Sequence[Matcher] | None:
        """Matchers whose ``accept`` and ``mask`` are all there is to it at this moment; ``None`` where there is more.

        They let a native batch advance many sequences in one call; see :meth:`accepted`.
        """

    @property
    def in_background(self) -> bool:
        """Whether some filter is worth a worker thread, beside the forward pass of the model."""

    @property
    def is_third_party(self) -> bool:
        """Whether some filter is not built in: it may block or be slow, and needs a thread of its own."""

    def begin(self, prefix: str = "") -> None:
        """Start, or restart, a sequence.

        Args:
            prefix: text of a removed prompt token that the next token generates anew (token healing).
        """

    def begin_within(self, text: str) -> bool:
        """Restart with the end of a token as first text; returns whether every filter allows that text."""

    def mask(self, budget: int | None = None) -> TokenMask | None:
        """Return the allowed next tokens, ``None`` for all.

        Args:
            budget: tokens left, the one after the end of the text included; only tokens are allowed after which the
                text can be completed within it, as far as filters can tell. ``None``: any number.

        Raises:
            DeadEnd: no token is allowed.
        """

    def accept(self, token: int) -> None:
        """Advance by a token that became part of the sequence."""

    def accepted(self, token: int, masks: Sequence[TokenMask | None] | None = None) -> None:
        """Note that :attr:`matchers` have accepted a token already, in a native batch.

        Args:
            token: became part of the sequence.
            masks: the next mask of each matcher, if the batch has found them. The next :meth:`mask`, with the budget
                that the batch was given, returns their intersection without asking the filters.
        """

    def forced_tokens(self, limit: int) -> Sequence[int]:
        """Return tokens, ``limit`` at most, of text that must come next."""

    def fork(self) -> Constraint | None:
        """Return an independent copy at the same place; ``None`` where a filter cannot be copied."""

    def min_tokens(self) -> int | None:
        """Return the fewest tokens that complete the constraint, the one after its end included; ``None``: unknown.

        Of several filters, it is the largest of their numbers: no fewer tokens can complete all.
        """

    def close(self) -> None:
        """Drop background work; nobody asks any more."""
