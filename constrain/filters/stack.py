"""Several filters as one: the only place that knows all the forms in which a filter may speak.

A filter says what it allows in one of three forms: a packed bitmask (``fill_bitmask``), a change of the logits in place
(``mask_logits``), or a collection of ids (``next``). :class:`FilterStack` decides once, for the whole stack, which form
it asks each of its filters for, turns bitmasks and ids into one packed row, and applies that row and the masks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from constrain.errors import DeadEnd, FilterError
from constrain.filters.base import ExLlamaV2Filter
from constrain.kernels import apply_bitmask

if TYPE_CHECKING:
    from constrain.tokenizer import ExLlamaV2Tokenizer

_TAIL_TOKENS = 24
#: What it costs, roughly, to hand work to another thread: a bitmask that was filled faster last time is not worth it.
HANDOFF_SECONDS = 1e-4
_PROTOCOL = tuple(name for name, member in vars(ExLlamaV2Filter).items() if callable(member) and name[0] != "_")


class FilterStack:
    """The filters of one sequence, intersected.

    Every failure of a filter becomes a :class:`FilterError` that names the filter and the end of the text; the stack
    (and the filters) can be used again after :meth:`drop` and :meth:`begin`.

    Args:
        filters: filters, or objects that only have ``begin``, ``feed`` and ``next``.
        tokenizer: for the end-of-sequence id, and the text of error messages.
        width: number of logits; rounded up to a multiple of 32.

    Raises:
        FilterError: an object lacks a method that every filter has.
    """

    def __init__(self, filters: Sequence[Any], tokenizer: ExLlamaV2Tokenizer, width: int) -> None:
        self._tokenizer = tokenizer
        self._fed: list[int] = []
        self._ends: set[int] = set()
        words = (width + 31) // 32
        adapted = [_adapt(candidate) for candidate in filters]
        masks = all(f.can_mask_logits() for f in adapted)
        self._members = [_member(f, type(f0).__name__, masks, words) for f, f0 in zip(adapted, filters, strict=True)]

    def begin(self, prefix: str = "") -> None:
        """Start a new sequence; ``prefix`` is prompt text that the next token generates anew."""
        self._fed.clear()
        for member in self._members:
            self._blame(member, "begin", member.filter.begin, prefix)

    def feed(self, token: torch.Tensor) -> None:
        """Tell every filter of a token (int64, shape (1, 1), on the CPU) that became part of the sequence."""
        for member in self._members:
            self._blame(member, "feed", member.filter.feed, token)
        self._fed.append(int(token))

    def start(self, pool: Executor) -> None:
        """Start the evaluation of those filters that want to be evaluated in the background; ``apply`` collects it."""
        for member in self._members:
            if member.in_background:
                self._blame(member, "background work", member.start, pool)

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
        self._ends = set()
        rows: list[tuple[_Member, np.ndarray]] = []
        for member in self._members:
            row = self._blame(member, member.method, member.evaluate, logits)
            if row is not None:
                rows.append((member, row))
                self._ends.update(member.ends)
        eos = self._tokenizer.eos_token_id if prefer_eos else None
        if not rows:
            self._finish_masked(logits, eos)
            return None
        bits = rows[0][1] if len(rows) == 1 else np.bitwise_and.reduce([row for _, row in rows])
        if eos is not None and bits[eos >> 5] >> (eos & 31) & 1:
            bits = _pack((eos,), bits.size)
        set_words = np.flatnonzero(bits)
        if not set_words.size:
            raise self._dead_end(rows)
        apply_bitmask(logits.unsqueeze(0), torch.from_numpy(bits).unsqueeze(0))
        return _only_bit(bits, set_words)

    def ends(self, token_id: int) -> bool:
        """Whether a token allowed by the last ``apply`` completes a constraint, so that the sequence ends after it."""
        return token_id in self._ends

    def _finish_masked(self, logits: torch.Tensor, eos: int | None) -> None:
        """Check, and narrow to the end of the sequence, what filters that mask in place have left."""
        if not any(isinstance(member, _Masking) for member in self._members):
            return
        if not float(logits.max()) > -float("inf"):
            raise self._dead_end([])
        if eos is not None and float(logits[eos]) > -float("inf"):
            kept = logits[eos].clone()
            logits.fill_(-float("inf"))
            logits[eos] = kept

    def _blame(self, member: _Member, what: str, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except Exception as error:
            told = error.reason if isinstance(error, FilterError) else f"{what} raised {type(error).__name__}: {error}"
            raise FilterError(told, (member.name,), self._tail()) from error

    def _dead_end(self, rows: list[tuple[_Member, np.ndarray]]) -> DeadEnd:
        alone = [member.name for member, row in rows if not row.any()]
        if alone:
            return DeadEnd("no token is allowed", (alone[0],), self._tail())
        names = tuple(member.name for member in self._members)
        reason = "no token is allowed by all of them" if len(names) > 1 else "no token is allowed"
        return DeadEnd(reason, names, self._tail())

    def _tail(self) -> str:
        return str(self._tokenizer.decode(torch.tensor(self._fed[-_TAIL_TOKENS:], dtype=torch.long)))


class _Member(ABC):
    """A filter, and the form in which it is asked."""

    #: what is asked, in the words of an error message
    method: str

    def __init__(self, target: ExLlamaV2Filter, name: str) -> None:
        self.filter = target
        self.name = name
        self.in_background = target.use_background_worker()
        self.ends: Collection[int] = ()

    @abstractmethod
    def start(self, pool: Executor) -> None:
        """Start the evaluation on another thread."""

    @abstractmethod
    def evaluate(self, logits: torch.Tensor) -> np.ndarray | None:
        """Mask ``logits`` in place, or return the allowed tokens as a packed row; ``None`` adds no row."""

    def drop(self) -> None:
        """Forget what ``start`` started."""
        self.filter.background_drop()


class _Packed(_Member):
    method = "fill_bitmask()"

    def __init__(self, target: Any, name: str, words: int) -> None:
        super().__init__(target, name)
        self.ends = getattr(target, "end_tokens", ())
        self._bits = np.zeros((1, words), dtype=np.int32)
        self._fill_bitmask = target.fill_bitmask
        self._last_seconds = math.inf
        self._pending: Future[bool] | None = None

    def start(self, pool: Executor) -> None:
        if self._last_seconds >= HANDOFF_SECONDS:
            self._pending = pool.submit(self._fill)

    def evaluate(self, logits: torch.Tensor) -> np.ndarray | None:
        pending, self._pending = self._pending, None
        restricted = pending.result() if pending is not None else self._fill()
        return self._bits[0] if restricted else None

    def _fill(self) -> bool:
        begin = perf_counter()
        restricted: bool = self._fill_bitmask(self._bits, 0)
        self._last_seconds = perf_counter() - begin
        return restricted

    def drop(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.exception()


class _Masking(_Member):
    method = "mask_logits()"

    def start(self, pool: Executor) -> None:
        self.filter.background_prepare_logit_mask(pool)

    def evaluate(self, logits: torch.Tensor) -> None:
        ready = self.filter.get_next(mask=True)
        if ready is not True:
            raise FilterError(f"prepare_logit_mask() must return True, not {ready!r}")
        masked = self.filter.mask_logits(logits)
        if not isinstance(masked, torch.Tensor) or masked.shape != logits.shape:
            shape = tuple(masked.shape) if isinstance(masked, torch.Tensor) else type(masked).__name__
            raise FilterError(f"mask_logits() must return a tensor of shape {tuple(logits.shape)}, not {shape}")
        if masked is not logits:
            logits.copy_(masked)


class _Listing(_Member):
    method = "next()"

    def __init__(self, target: ExLlamaV2Filter, name: str, words: int) -> None:
        super().__init__(target, name)
        self._words = words

    def start(self, pool: Executor) -> None:
        self.filter.background_next(pool)

    def evaluate(self, logits: torch.Tensor) -> np.ndarray | None:
        result = self.filter.get_next()
        if not isinstance(result, tuple) or len(result) != 2:
            raise FilterError(f"next() must return a pair of collections of ids, not {type(result).__name__}")
        allowed, self.ends = result
        if allowed is None:
            return None
        for ids in result:
            if not isinstance(ids, (set, frozenset, list, tuple)):
                raise FilterError(f"next() must return sets or lists of ids, not {type(ids).__name__}")
        return _pack(allowed, self._words)


def _member(target: ExLlamaV2Filter, name: str, masks: bool, words: int) -> _Member:
    if callable(getattr(target, "fill_bitmask", None)) and target.can_mask_logits():
        return _Packed(target, name, words)
    return _Masking(target, name) if masks else _Listing(target, name, words)


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


def _pack(ids: Collection[int], words: int) -> np.ndarray:
    """Return a packed row with the bits ``ids`` set."""
    index = np.fromiter(ids, dtype=np.int64, count=len(ids))
    width = words * 32
    if index.size and not 0 <= index.min() <= index.max() < width:
        outside = next(i for i in ids if not 0 <= i < width)
        raise FilterError(f"next() returned token id {outside}, outside the {width} of the model")
    flags = np.zeros(width, dtype=np.uint8)
    flags[index] = 1
    return np.packbits(flags, bitorder="little").view(np.int32)


def _only_bit(bits: np.ndarray, set_words: np.ndarray) -> int | None:
    """Return the position of the only bit set, given the indices of the words that are not zero."""
    if set_words.size != 1:
        return None
    word = int(bits[set_words[0]]) & 0xFFFFFFFF
    return int(set_words[0]) * 32 + word.bit_length() - 1 if word & (word - 1) == 0 else None
