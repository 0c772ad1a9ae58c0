"""The forms in which a filter may speak, and how it is asked in each."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
import torch

from constrain.engine.advance import Advance
from constrain.engine.bitmask import packed
from constrain.errors import FilterError
from constrain.filters.base import ExLlamaV2Filter
from constrain.filters.masks import RowMask, TokenMask, row
from constrain.filters.time_limit import OwnThreads, call_within

#: What it costs, roughly, to hand work to another thread: a bitmask that was filled faster last time is not worth it.
HANDOFF_SECONDS = 1e-4
#: Seconds in which a call returns that has nothing left to do.
_AT_ONCE = 0.05
#: Where filters of others run: one that hangs must not take a thread from the rest.
_OWN_THREADS = OwnThreads()


class Member(ABC):
    """A filter, and the form in which it is asked."""

    #: what is asked, in the words of an error message
    method: str

    def __init__(self, target: ExLlamaV2Filter, name: str, time_limit: float | None = None) -> None:
        self.filter = target
        self.name = name
        self.in_background = target.use_background_worker()
        self.ends: Collection[int] = ()
        self._time_limit = time_limit
        self._started = 0.0

    @abstractmethod
    def start(self, pool: Executor, ahead: Sequence[int], budget: int | None) -> None:
        """Start the evaluation on another thread."""

    @abstractmethod
    def evaluate(self, logits: torch.Tensor | None, budget: int | None) -> TokenMask | None:
        """Mask ``logits`` in place, or return the allowed tokens; ``None`` adds no mask.

        Only a filter that masks in place needs ``logits``.
        """

    def promise(self, advance: Advance, token: int | None, budget: int | None) -> bool:
        """Have the filter hear of a token, or of none, and find what may come behind it, together with others.

        The next :meth:`feed` is of that token; what becomes of it shows in :meth:`settle`.

        Returns:
            Whether the filter can be told in this way.
        """
        return False

    @property
    def ready(self) -> bool:
        """Whether what was started in the background is done, or has had its time."""
        pending = self.filter.background_result
        return pending is None or pending.done() or self._time_left() <= 0

    def settle(self) -> None:
        """Wait for what was promised, if anything was."""
        return

    def feed(self, token: int) -> None:
        self.filter.feed(torch.tensor([[token]]))

    def feed_text(self, text: str) -> bool:
        feed = getattr(self.filter, "feed_text", None)
        return feed is not None and bool(feed(text))

    def forced(self, limit: int) -> list[int]:
        forced = getattr(self.filter, "forced_tokens", None)
        return [] if forced is None else list(forced(limit))

    def probe(self) -> Packed | None:
        """A copy that may go its own way, if there can be one."""
        return None

    def drop(self) -> None:
        """Forget what ``start`` started."""
        with suppress(FilterError):
            self._in_time(self.filter.background_drop)

    def _in_time(self, call: Callable[..., Any], *args: Any) -> Any:
        if self._time_limit is None:
            return call(*args)
        pending = self.filter.background_result is not None
        try:
            return call_within(max(_AT_ONCE, self._time_left()) if pending else self._time_limit, call, *args)
        except TimeoutError:
            self.filter.background_result = None
            raise FilterError(f"{self.method} did not return within {self._time_limit} seconds") from None

    def _time_left(self) -> float:
        """Seconds that what was started in the background may still take."""
        return math.inf if self._time_limit is None else self._started + self._time_limit - perf_counter()


class Packed(Member):
    method = "fill_bitmask()"

    def __init__(self, target: Any, name: str, words: int) -> None:
        super().__init__(target, name)
        self.ends = getattr(target, "end_tokens", ())
        self._words = words
        self._budgeted = hasattr(target, "min_tokens")
        # What a subclass does in its own way cannot be left to what it inherits.
        self._names_masks = _defines_together(type(target), "token_mask", "fill_bitmask")
        self._promises = self._names_masks and _defines_together(type(target), "token_mask", "feed", "lone_matcher")
        self._advance: Advance | None = None
        self._place = 0
        self._promised: int | None = None
        self._last_seconds = math.inf
        self._pending: Future[list[TokenMask | None]] | None = None
        self._rows: list[TokenMask | None] = []
        self._ahead: list[int] = []

    def promise(self, advance: Advance, token: int | None, budget: int | None) -> bool:
        if self._advance is not None:
            return True
        matcher = self.filter.lone_matcher() if self._promises else None  # type: ignore[attr-defined]
        place = None if matcher is None else advance.add(matcher, token, budget if self._budgeted else None)
        if place is None:
            return False
        self._advance, self._place = advance, place
        return True

    @property
    def ready(self) -> bool:
        if self._advance is not None:
            return self._advance.done(self._place)
        return self._pending is None or self._pending.done()

    def settle(self) -> None:
        advance, self._advance = self._advance, None
        token, self._promised = self._promised, None
        if advance is None:
            return
        taken, mask = advance.result(self._place)
        if taken:
            self._rows.clear()
            self._rows.append(mask)
        elif token is not None:
            super().feed(token)

    def start(self, pool: Executor, ahead: Sequence[int], budget: int | None) -> None:
        if self._advance is not None and not ahead:
            return
        self.settle()
        self._ahead, self._rows = list(ahead), []
        if ahead or self._last_seconds >= HANDOFF_SECONDS:
            self._pending = pool.submit(self._look_ahead, list(ahead), budget)

    def evaluate(self, logits: torch.Tensor | None, budget: int | None) -> TokenMask | None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._rows = pending.result()
        return self._rows[0] if self._rows else self._fill(budget)

    def feed(self, token: int) -> None:
        if self._ahead[:1] == [token]:
            self._rows, self._ahead = self._rows[1:], self._ahead[1:]
        else:
            self._rows.clear()
            self._ahead.clear()
        if self._advance is not None:
            self._promised = token
        else:
            super().feed(token)

    def feed_text(self, text: str) -> bool:
        self.settle()
        return super().feed_text(text)

    def forced(self, limit: int) -> list[int]:
        self.settle()
        return super().forced(limit)

    def probe(self) -> Packed | None:
        self.settle()
        # The base class cannot know what a subclass would have to copy.
        if type(self.filter).clone is ExLlamaV2Filter.clone:
            return None
        return Packed(self.filter.clone(), self.name, self._words)

    def drop(self) -> None:
        with suppress(Exception):  # nobody is going to ask what comes behind the token
            self.settle()
        pending, self._pending = self._pending, None
        self._rows, self._ahead = [], []
        if pending is not None:
            pending.exception()

    def _look_ahead(self, ahead: list[int], budget: int | None) -> list[TokenMask | None]:
        """Masks for the next token and for those behind each of ``ahead``, as far as they are allowed."""
        rows = [self._fill(budget)]
        probe = self.probe() if ahead else None
        for token in ahead:
            mask = rows[-1]
            if probe is None or (mask is not None and not row(mask, self._words)[token >> 5] >> (token & 31) & 1):
                break
            probe.feed(token)
            budget = None if budget is None else budget - 1
            rows.append(probe._fill(budget))
        return rows

    def _fill(self, budget: int | None) -> TokenMask | None:
        begin = perf_counter()
        given = {"budget": budget} if self._budgeted and budget is not None else {}
        try:
            if self._names_masks:
                return self.filter.token_mask(self._words, **given)  # type: ignore[attr-defined, no-any-return]
            bits = np.zeros((1, self._words), dtype=np.int32)
            restricted: bool = self.filter.fill_bitmask(bits, 0, **given)  # type: ignore[attr-defined]
            return RowMask(bits[0]) if restricted else None
        finally:
            self._last_seconds = perf_counter() - begin


class Masking(Member):
    method = "mask_logits()"

    def start(self, pool: Executor, ahead: Sequence[int], budget: int | None) -> None:
        self._started = perf_counter()
        self.filter.background_prepare_logit_mask(_OWN_THREADS)

    def evaluate(self, logits: torch.Tensor | None, budget: int | None) -> None:
        assert logits is not None
        ready = self._in_time(self.filter.get_next, True)
        if ready is not True:
            raise FilterError(f"prepare_logit_mask() must return True, not {ready!r}")
        masked = self._in_time(self.filter.mask_logits, logits)
        if not isinstance(masked, torch.Tensor) or masked.shape != logits.shape:
            shape = tuple(masked.shape) if isinstance(masked, torch.Tensor) else type(masked).__name__
            raise FilterError(f"mask_logits() must return a tensor of shape {tuple(logits.shape)}, not {shape}")
        if masked is not logits:
            logits.copy_(masked)


class Listing(Member):
    method = "next()"

    def __init__(self, target: ExLlamaV2Filter, name: str, words: int, time_limit: float | None) -> None:
        super().__init__(target, name, time_limit)
        self._words = words

    def start(self, pool: Executor, ahead: Sequence[int], budget: int | None) -> None:
        self._started = perf_counter()
        self.filter.background_next(_OWN_THREADS)

    def evaluate(self, logits: torch.Tensor | None, budget: int | None) -> TokenMask | None:
        result = self._in_time(self.filter.get_next)
        if not isinstance(result, tuple) or len(result) != 2:
            raise FilterError(f"next() must return a pair of collections of ids, not {type(result).__name__}")
        allowed, self.ends = result
        if allowed is None:
            return None
        for ids in result:
            if not isinstance(ids, (set, frozenset, list, tuple)):
                raise FilterError(f"next() must return sets or lists of ids, not {type(ids).__name__}")
        return RowMask(pack(allowed, self._words))


def make_member(target: ExLlamaV2Filter, name: str, masks: bool, words: int, time_limit: float | None) -> Member:
    if callable(getattr(target, "fill_bitmask", None)) and target.can_mask_logits():
        return Packed(target, name, words)
    return Masking(target, name, time_limit) if masks else Listing(target, name, words, time_limit)


def pack(ids: Collection[int], words: int) -> np.ndarray:
    """Return a packed row with the bits ``ids`` set."""
    index = np.fromiter(ids, dtype=np.int64, count=len(ids))
    width = words * 32
    if index.size and not 0 <= index.min() <= index.max() < width:
        outside = next(i for i in ids if not 0 <= i < width)
        raise FilterError(f"next() returned token id {outside}, outside the {width} of the model")
    return packed(index, words)


def _defines_together(cls: type, *names: str) -> bool:
    """Whether one class in the ancestry of another is where all of these methods come from."""
    definers = {next((each for each in cls.__mro__ if name in vars(each)), None) for name in names}
    return len(definers) == 1 and None not in definers
