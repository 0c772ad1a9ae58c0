"""The constraint of a sequence: when it applies, its next mask, and what it says about the tokens to come."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

import torch

from constrain.errors import FilterError
from constrain.filters import Constraint
from constrain.filters.masks import TokenMask, contains, only_end
from constrain.runtime.mask_batch import MaskBatch, PendingMask
from constrain.runtime.trigger import Trigger

#: Number of allowed tokens above which no text is looked for that is certain to follow: their first bytes differ.
_MAX_ALLOWED = 4096
#: After this many searches in a row without such text, there is one at every fourth token only.
_FRUITLESS = 16


class SequenceConstraint:
    """The constraint of one sequence, with its pending mask. Before it begins, all tokens are allowed.

    Attributes:
        active: the constraint, once it has begun.
        ends: allowed next tokens that complete the constraint.
    """

    def __init__(self, constraint: Constraint | None, eos: int | None, trigger: Trigger | None = None) -> None:
        """
        Args:
            constraint: must not have begun; ``None``: none.
            eos: allow only this token as soon as the constraint allows it; ``None``: no preference.
            trigger: begins the constraint; ``None``: :meth:`begin` does.
        """
        self.active: Constraint | None = None
        self.ends: Collection[int] = ()
        self._ends_after: list[Collection[int]] = []
        self._constraint, self._eos, self._trigger = constraint, eos, trigger
        self._pending: PendingMask | None = None
        self._prefetched: int | None = None
        self._cached: tuple[TokenMask | None] | None = None
        self._failure: FilterError | None = None
        self._fruitless = 0

    @property
    def may_begin(self) -> bool:
        """Whether to :meth:`begin` before the next token."""
        return self._constraint is not None and self.active is None and self._trigger is None

    @property
    def bias(self) -> torch.Tensor | None:
        """Bias to add to the next logits, float32 ``[width]`` on the CPU, known with :meth:`mask`."""
        return None if self.active is None else self.active.bias

    def begin(self, prefix: str = "") -> None:
        """Begin; ``prefix`` is text that the next token regenerates (token healing)."""
        self._reset(self._constraint)
        if self.active is not None:
            self.active.begin(prefix)

    def restart(self, prefix: str, tokens: Iterable[int]) -> None:
        """Begin again, or wait for the trigger again, and accept the tokens of the output."""
        if self._trigger is None:
            self.begin(prefix)
        else:
            self._trigger.reset()
            self._reset(None)
        for token in tokens:
            self.accept(token)

    def needs_mask(self, token: int | None) -> bool:
        """Return whether the next mask of an active constraint, after ``token`` if given, is still to be computed."""
        return self._pending is None and (token is not None or self._cached is None)

    def prefetch(self, batch: MaskBatch, token: int | None, budget: int | None) -> None:
        """Queue a mask that it :meth:`needs_mask`; :meth:`accept` must get ``token`` next, if given."""
        assert self.active is not None
        self._pending = batch.add(self.active, token, budget)
        if self._pending is not None:
            self._prefetched, self._cached = token, None

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`mask` returns without waiting."""
        return self._pending is None or self._pending.done

    @property
    def may_end(self) -> bool:
        """Whether the output may end before the next token, as far as the constraint can tell."""
        needed = None if self.active is None else self.active.min_tokens()
        return needed is None or needed <= 1  # an end-of-sequence token

    def may_follow(self, token: int) -> bool:
        """Return false if the constraint excludes the text that a token adds after the trigger, which it completes."""
        if self._trigger is None or self._trigger.found:
            return True
        rest = self._trigger.rest_after(token)
        return rest is None or self._begin_within(rest)

    def accept(self, token: int) -> None:
        """Accept a token, unless :meth:`prefetch` has already queued it."""
        if self._trigger is not None and not self._trigger.found:
            rest = self._trigger.accept(token)
            if rest is not None and self._begin_within(rest):
                self.active = self._constraint
        elif self._prefetched is not None:
            self._prefetched = None
        elif self.active is not None:
            self._forget()
            self.ends = self._ends_after.pop(0) if self._ends_after else ()
            self.active.accept(token)

    def mask(self, budget: int | None) -> TokenMask | None:
        """Return the allowed tokens, ``None`` for all.

        Raises:
            DeadEnd: no token is allowed.
            FilterError: a filter failed.
        """
        if self.active is None:
            return None
        mask = self._mask(self.active, budget)
        self.ends = self.active.end_tokens if mask is not None else ()
        return only_end(mask, self._eos)

    def _mask(self, active: Constraint, budget: int | None) -> TokenMask | None:
        """Return the next mask; an error stays, as the constraint may have missed a token."""
        if self._failure is not None:
            raise self._failure
        try:
            if self._pending is not None:
                pending, self._pending = self._pending, None
                self._cached = (pending.result(budget),)
            elif self._cached is None:
                self._cached = (active.mask(budget),)
        except FilterError as error:
            self._failure = error
            raise
        return self._cached[0]

    def fork(self, budget: int | None) -> SequenceConstraint:
        """Return an independent copy in the same state.

        Raises:
            FilterError: a filter failed, or cannot be copied.
        """
        other = SequenceConstraint(None, self._eos)
        if self.active is not None:
            self.mask(budget)  # the pending mask has to be done first
            other.active = other._constraint = self.active.fork()
        return other

    def discard_mask(self) -> None:
        """Drop the cached mask, so that the next :meth:`mask` recomputes it."""
        self._cached = None

    def masks_after(self, proposals: Sequence[int], budget: int | None) -> list[TokenMask | None]:
        """Return the masks after each proposed token, up to the first that is not allowed."""
        masks: list[TokenMask | None] = []
        self._ends_after = []
        if self.active is None or not proposals:
            return [None] * len(proposals)
        with suppress(FilterError):  # of a filter that cannot be copied; others are raised again for sampled tokens
            ahead, allowed = self.fork(budget), self.mask(budget)
            for token in proposals:
                if not contains(allowed, token):
                    break
                ahead.accept(token)
                budget = None if budget is None else budget - 1
                allowed = ahead.mask(budget)
                if ahead.bias is not None:
                    break  # it would have to be added to the logits of this proposal only
                masks.append(allowed)
                self._ends_after.append(ahead.ends)
        return masks

    def forced_tokens(self, limit: int, budget: int | None) -> Sequence[int]:
        """Return tokens of text that is certain to follow, at most ``limit``; not all that could be found."""
        try:
            mask = self.mask(budget)
            if mask is None or self.active is None or mask.count > _MAX_ALLOWED:
                return ()
            forced: Sequence[int] = ()
            if self._fruitless < _FRUITLESS or self._fruitless % 4 == 0:
                forced = self.active.forced_tokens(limit)
        except FilterError:
            return ()  # computing the mask raises the same error again
        self._fruitless = 0 if forced else self._fruitless + 1
        return forced

    def close(self) -> None:
        """Drop background work: no more masks are needed."""
        self._pending = self._cached = None
        if self._constraint is not None:
            self._constraint.close()

    def _begin_within(self, text: str) -> bool:
        """Begin with ``text``, the end of a token; return whether the constraint allows it."""
        self._forget()
        return self._constraint is not None and self._constraint.begin_within(text)

    def _reset(self, active: Constraint | None) -> None:
        self._forget()
        self._failure = None
        self.active, self.ends, self._ends_after = active, (), []

    def _forget(self) -> None:
        """Wait for the pending mask, if any, and drop it."""
        pending, self._pending = self._pending, None
        self._prefetched, self._cached = None, None
        if pending is not None:
            try:
                pending.result(None)
            except FilterError as error:
                self._failure = error
