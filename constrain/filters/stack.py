"""Several filters as one: the only place that knows all the forms in which a filter may speak.

A filter says what it allows in one of three forms: a packed bitmask (``fill_bitmask``), a change of the logits in place
(``mask_logits``), or a collection of ids (``next``). :class:`FilterStack` decides once, for the whole stack, which form
it asks each of its filters for, turns bitmasks and ids into one packed row, and applies that row and the masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from constrain.arguments import refused
from constrain.engine.advance import Advance
from constrain.errors import DeadEnd, FilterError
from constrain.filters.base import ExLlamaV2Filter
from constrain.filters.forms import Masking, Member, Packed, make_member, pack
from constrain.filters.masks import RowMask, TokenMask, few, row
from constrain.kernels import apply_bitmask

if TYPE_CHECKING:
    from constrain.tokenizer import ExLlamaV2Tokenizer

_TAIL_TOKENS = 24
_PROTOCOL = tuple(name for name, member in vars(ExLlamaV2Filter).items() if callable(member) and name[0] != "_")


class FilterStack:
    """The filters of one sequence, intersected.

    Every failure of a filter becomes a :class:`FilterError` that names the filter and the end of the text; the stack
    (and the filters) can be used again after :meth:`drop` and :meth:`begin`.

    Args:
        filters: filters, or objects that only have ``begin``, ``feed`` and ``next``.
        tokenizer: for the end-of-sequence id, and the text of error messages.
        width: number of logits; rounded up to a multiple of 32.
        time_limit: seconds that a filter of somebody else's may take for a token; ``None``: any time.

    Attributes:
        budget: tokens within which filters that can are to complete the text, the one after its end included;
            ``None``: any number.

    Raises:
        ArgumentError: the filters are no list.
        FilterError: an object lacks a method that every filter has.
    """

    def __init__(
        self, filters: Sequence[Any], tokenizer: ExLlamaV2Tokenizer, width: int, time_limit: float | None = None
    ) -> None:
        self.budget: int | None = None
        self._tokenizer = tokenizer
        self._fed: list[int] = []
        self._ends: Collection[int] = ()
        self._words = (width + 31) // 32
        given = filters_of(filters)
        adapted = [_adapt(candidate) for candidate in given]
        masks = all(f.can_mask_logits() for f in adapted)
        self._members = [
            make_member(f, type(f0).__name__, masks, self._words, time_limit)
            for f, f0 in zip(adapted, given, strict=True)
        ]

    def begin(self, prefix: str = "") -> None:
        """Start a new sequence; ``prefix`` is prompt text that the next token generates anew."""
        self._fed.clear()
        for member in self._members:
            self._blame(member, "begin", member.filter.begin, prefix)

    def begin_within(self, text: str) -> bool:
        """Start a new sequence with a text: the end of a token, of which only this part is constrained.

        Returns:
            Whether every filter allows it; those that cannot tell allow none.
        """
        self.begin()
        return not text or all(self._blame(member, "feed_text", member.feed_text, text) for member in self._members)

    def promise(self, advance: Advance, token: int | None, budget: int | None) -> bool:
        """Have filters of the engine hear of a token, or of none, and find what may come behind it, with others.

        The next :meth:`feed` has to be of that token.

        Args:
            advance: is yet to be started.
            token: becomes part of the sequence.
            budget: what :attr:`budget` is going to be behind it.

        Returns:
            Whether :meth:`start` has nothing left to do then.
        """
        return all(member.promise(advance, token, budget) for member in self._members)

    @property
    def ready(self) -> bool:
        """Whether what :meth:`promise` and :meth:`start` have begun is done."""
        return all(member.ready for member in self._members)

    def feed(self, token: int) -> None:
        """Tell every filter of a token that became part of the sequence."""
        for member in self._members:
            try:
                member.feed(token)
            except Exception as error:
                raise self._blamed(member, "feed", error) from error
        self._fed.append(token)

    def start(self, pool: Executor, ahead: Sequence[int] = ()) -> None:
        """Start the evaluation of those filters that want to be evaluated in the background; ``apply`` collects it.

        Args:
            pool: where it runs.
            ahead: tokens that may come next; filters with bitmasks are evaluated behind each of them too. They hear of
                them only by ``feed``, if they do come.
        """
        for member in self._members:
            if member.in_background:
                self._blame(member, "background work", member.start, pool, ahead, self.budget)

    def forced(self, limit: int = 64) -> list[int]:
        """Tokens of a text that is certain to come next, as the tokenizer spells it."""
        runs = [self._blame(member, "forced_tokens", member.forced, limit) for member in self._members]
        return max(runs, key=len, default=[])

    def scout(self) -> Scout:
        """What the filters would allow behind tokens that may come next, without their hearing of it."""
        return Scout([member.probe() for member in self._members], self._words, self.budget)

    def drop(self) -> None:
        """Wait for background work that was not collected, and forget it."""
        for member in self._members:
            member.drop()

    def apply(self, logits: torch.Tensor, prefer_eos: bool = False) -> int | None:
        """Set the logits of all tokens that any filter excludes to negative infinity.

        Args:
            logits: float32 of shape (width,), on the CPU; changed in place.
            prefer_eos: exclude everything but the end of the sequence as soon as that is allowed.

        Returns:
            The only token allowed, if the filters said that there is just one.

        Raises:
            DeadEnd: no token is allowed.
            FilterError: a filter raised, or returned something else than a filter's result.
        """
        mask = self._mask(logits, prefer_eos)
        if mask is None:
            self._finish_masked(logits, self._tokenizer.eos_token_id if prefer_eos else None)
            return None
        apply_bitmask(logits.unsqueeze(0), torch.from_numpy(row(mask, self._words)).unsqueeze(0))
        return only(mask)

    @property
    def names_masks(self) -> bool:
        """Whether :meth:`mask` can be asked: no filter changes logits in place."""
        return not any(isinstance(member, Masking) for member in self._members)

    def mask(self, prefer_eos: bool = False) -> TokenMask | None:
        """The tokens that :meth:`apply` would leave; ``None`` for all. It raises the same."""
        return self._mask(None, prefer_eos)

    def masks_behind(self, proposals: Sequence[int], prefer_eos: bool = False) -> list[TokenMask | None]:
        """What :meth:`mask` would be behind each of the tokens that may come next, as far as can be told."""
        found: list[TokenMask | None] = []
        ahead = self._fork()
        if ahead is None:
            return found
        with suppress(FilterError):  # it is raised when it is known that the tokens do come
            for token in proposals:
                ahead.feed(token)
                ahead.budget = None if ahead.budget is None else ahead.budget - 1
                found.append(ahead.mask(prefer_eos))
        return found

    def _fork(self) -> FilterStack | None:
        """A copy that goes its own way, if every filter can be copied."""
        probes = [probe for member in self._members if (probe := member.probe()) is not None]
        if len(probes) < len(self._members):
            return None
        fork = copy(self)
        fork._members, fork._fed = list(probes), [*self._fed]
        return fork

    def _mask(self, logits: torch.Tensor | None, prefer_eos: bool) -> TokenMask | None:
        self._ends = ()
        masks: list[tuple[Member, TokenMask]] = []
        for member in self._members:
            what = "feed"
            try:
                member.settle()
                what = member.method
                mask = member.evaluate(logits, self.budget)
            except Exception as error:
                raise self._blamed(member, what, error) from error
            if mask is not None:
                masks.append((member, mask))
                self._ends = (*self._ends, *member.ends) if self._ends else member.ends
        if not masks:
            return None
        mask = masks[0][1] if len(masks) == 1 else self._joined([mask for _, mask in masks])
        eos = self._tokenizer.eos_token_id
        if prefer_eos and eos is not None:
            mask = self._narrowed(mask, eos)
        if mask.count == 0:
            raise self._dead_end(masks)
        return mask

    def _joined(self, masks: Sequence[TokenMask]) -> TokenMask:
        """The tokens that all of several masks allow."""
        return RowMask(np.bitwise_and.reduce([row(mask, self._words) for mask in masks]))

    def _narrowed(self, mask: TokenMask, eos: int) -> TokenMask:
        """The end of the sequence alone, if a mask allows it; else the mask."""
        allowed = row(mask, self._words)[eos >> 5] >> (eos & 31) & 1
        return RowMask(pack((eos,), self._words)) if allowed else mask

    def ends(self, token_id: int) -> bool:
        """Whether a token allowed by the last ``apply`` completes a constraint, so that the sequence ends after it."""
        return token_id in self._ends

    def _finish_masked(self, logits: torch.Tensor, eos: int | None) -> None:
        """Check, and narrow to the end of the sequence, what filters that mask in place have left."""
        if not any(isinstance(member, Masking) for member in self._members):
            return
        if not float(logits.max()) > -float("inf"):
            raise self._dead_end([])
        if eos is not None and float(logits[eos]) > -float("inf"):
            kept = logits[eos].clone()
            logits.fill_(-float("inf"))
            logits[eos] = kept

    def _blame(self, member: Member, what: str, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except Exception as error:
            raise self._blamed(member, what, error) from error

    def _blamed(self, member: Member, what: str, error: Exception) -> FilterError:
        """An error that names the filter in which another came up."""
        told = error.reason if isinstance(error, FilterError) else f"{what} raised {type(error).__name__}: {error}"
        return FilterError(told, (member.name,), self._tail(), _states([member]))

    def _dead_end(self, masks: list[tuple[Member, TokenMask]]) -> DeadEnd:
        alone = [member for member, mask in masks if mask.count == 0]
        if alone:
            return DeadEnd("no token is allowed", (alone[0].name,), self._tail(), _states(alone[:1]))
        names = tuple(member.name for member in self._members)
        reason = "no token is allowed by all of them" if len(names) > 1 else "no token is allowed"
        return DeadEnd(reason, names, self._tail(), _states(self._members))

    def _tail(self) -> str:
        return str(self._tokenizer.decode(torch.tensor(self._fed[-_TAIL_TOKENS:], dtype=torch.long)))


def filters_of(filters: Any) -> list[Any]:
    """The filters of a list of such; none for ``None``.

    Raises:
        ArgumentError: it is no list.
    """
    if filters is None:
        return []
    if isinstance(filters, (str, bytes, Mapping)) or not isinstance(filters, Iterable):
        raise refused("filters", filters, "a list of filters")
    return list(filters)


class Scout:
    """Copies of those filters of a stack that can be copied, which go ahead of them along a guess."""

    def __init__(self, probes: Sequence[Packed | None], words: int, budget: int | None) -> None:
        self._probes = [probe for probe in probes if probe is not None]
        self._words, self._budget = words, budget

    def apply(self, logits: torch.Tensor) -> bool:
        """Set the logits (float32, shape (width,), on the CPU) of excluded tokens to -inf; false where none is left."""
        for probe in self._probes:
            mask = probe.evaluate(None, self._budget)
            if mask is not None:
                apply_bitmask(logits.unsqueeze(0), torch.from_numpy(row(mask, self._words)).unsqueeze(0))
        return float(logits.max()) > -math.inf

    def feed(self, token: int) -> None:
        """Go on by a token that ``apply`` has left."""
        for probe in self._probes:
            probe.feed(token)
        if self._budget is not None:
            self._budget -= 1


def _states(members: Sequence[Member]) -> str | None:
    """What filters that can tell expect next."""
    told = []
    for member in members:
        with suppress(Exception):  # there is an error to be told of already
            told.append(str(member.filter.expected()))  # type: ignore[attr-defined]
    return "; ".join(told) or None


class _Adapted(ExLlamaV2Filter):
    """An object with some of a filter's methods, and the defaults of the base class for the others."""

    def __init__(self, target: Any) -> None:
        self.background_result = None
        for name in (*_PROTOCOL, "fill_bitmask", "end_tokens"):
            if hasattr(target, name):
                setattr(self, name, getattr(target, name))


def _adapt(candidate: Any) -> ExLlamaV2Filter:
    if isinstance(candidate, ExLlamaV2Filter):
        return candidate
    missing = [name for name in ("begin", "feed", "next") if not callable(getattr(candidate, name, None))]
    if missing:
        raise FilterError(f"not a filter: it has no method {', '.join(missing)}", (type(candidate).__name__,))
    return _Adapted(candidate)


def only(mask: TokenMask) -> int | None:
    """The only token of a mask, if there is just one."""
    tokens = few(mask)
    return tokens[0] if tokens is not None and len(tokens) == 1 else None
