"""Any filter as a constraint.

A filter says what it allows in one of three forms: a packed bitmask (``fill_bitmask``), a change of the logits in place
(``mask_logits``), or a collection of ids (``next``). :func:`adapt` chooses the fastest form that a filter offers::

    fill_bitmask   ->  BitmaskAdapter  ->  mask
    mask_logits    ->  LogitsAdapter   ->  mask, bias
    next           ->  IdsAdapter      ->  mask, end tokens
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from constrain.engine.bitmask import pack_ids, packed
from constrain.errors import DeadEnd, FilterError
from constrain.filters.masks import RowMask, TokenMask
from constrain.filters.offers import Form, Offers, offers_of
from constrain.filters.time_limit import THREADS, OutOfTime, call_within

if TYPE_CHECKING:
    from typing_extensions import Self

    from constrain.engine import Matcher
    from constrain.tokenizer import ExLlamaV2Tokenizer

#: Last tokens of a sequence that an error message shows.
_TAIL_TOKENS = 24


class Answer(NamedTuple):
    """What a filter says of the next token.

    Attributes:
        mask: the allowed tokens; ``None`` for all.
        end_tokens: those that complete the constraint, if the mask allows them.
        bias: numbers to add to the logits.
    """

    mask: TokenMask | None = None
    end_tokens: Collection[int] = ()
    bias: torch.Tensor | None = None


def adapt(target: Any, tokenizer: ExLlamaV2Tokenizer, width: int, time_limit: float | None = None) -> FilterAdapter:
    """Make a constraint of a filter.

    Args:
        target: a filter, or an object that only has ``begin``, ``feed`` and ``next``.
        tokenizer: for the text of error messages.
        width: number of logits.
        time_limit: seconds that a filter that is not built in may take for a token; ``None``: any time.

    Raises:
        FilterError: a method is missing that every filter has.
    """
    offers = offers_of(target)
    form = offers.form if "can_mask_logits" in offers.methods and target.can_mask_logits() else "ids"
    return _ADAPTERS[form](target, offers, tokenizer, width, time_limit if offers.is_third_party else None)


class FilterAdapter(ABC):
    """A filter as a :class:`~constrain.filters.constraint.Constraint`.

    Every failure of the filter becomes a :class:`FilterError` that names the filter and the end of the text.

    Attributes:
        filter: the filter.
        name: of its class.
        in_background: whether it is worth a worker thread.
    """

    #: what is asked, in the words of an error message
    asks: ClassVar[str]

    def __init__(
        self, target: Any, offers: Offers, tokenizer: ExLlamaV2Tokenizer, width: int, time_limit: float | None
    ) -> None:
        self.filter = target
        self.name = type(target).__name__
        self._offers = offers
        self._tokenizer = tokenizer
        self._width = width
        self._words = (width + 31) // 32
        self._time_limit = time_limit
        self._tail: deque[int] = deque(maxlen=_TAIL_TOKENS)
        self._last = Answer()
        self._noted: Answer | None = None  # the next answer, where a native batch has found it
        wants = "use_background_worker" in offers.methods and bool(target.use_background_worker())
        self.in_background = wants
        self._starts_background = wants and offers.has_background

    @property
    def end_tokens(self) -> Collection[int]:
        return () if self._last.mask is None else self._last.end_tokens

    @property
    def bias(self) -> torch.Tensor | None:
        return self._last.bias

    @property
    def matchers(self) -> Sequence[Matcher] | None:
        return None

    @property
    def is_third_party(self) -> bool:
        return self._offers.is_third_party

    def begin(self, prefix: str = "") -> None:
        self.close()
        self._tail.clear()
        self._last, self._noted = Answer(), None
        self._guarded("begin", self.filter.begin, prefix)

    def begin_within(self, text: str) -> bool:
        self.begin()
        if not text or "feed_text" not in self._offers.methods:
            return not text
        return bool(self._guarded("feed_text", self.filter.feed_text, text))

    def mask(self, budget: int | None = None) -> TokenMask | None:
        mask = self.evaluate(budget)
        if mask is not None and mask.count == 0:
            raise self.dead_end()
        return mask

    def evaluate(self, budget: int | None) -> TokenMask | None:
        """Return the allowed tokens, be it none; ``None`` for all."""
        noted, self._noted = self._noted, None
        self._last = self._guarded(self.asks, self._call, self._ask, budget) if noted is None else noted
        return self._last.mask

    def accept(self, token: int) -> None:
        self._noted = None
        self._guarded("feed", self.filter.feed, torch.tensor([[token]]))
        self._tail.append(token)

    def accepted(self, token: int, masks: Sequence[TokenMask | None] | None = None) -> None:
        self._tail.append(token)
        self._noted = None

    def forced_tokens(self, limit: int) -> Sequence[int]:
        if "forced_tokens" not in self._offers.methods:
            return ()
        return list(self._guarded("forced_tokens", self.filter.forced_tokens, limit))

    def fork(self) -> Self | None:
        if not self._offers.can_be_copied:
            return None
        fork = copy(self)
        fork.filter = self._guarded("clone", self.filter.clone)
        fork._tail = self._tail.copy()
        return fork

    def min_tokens(self) -> int | None:
        if "min_tokens" not in self._offers.methods:
            return None
        return int(self._guarded("min_tokens", self.filter.min_tokens))

    def close(self) -> None:
        if self._is_pending and "background_drop" in self._offers.methods:
            with suppress(Exception):  # nobody is going to ask for the result
                self._call(self.filter.background_drop)

    def dead_end(self) -> DeadEnd:
        """The error for a filter that allows no token."""
        return DeadEnd("no token is allowed", (self.name,), self.tail(), self.state())

    def state(self) -> str | None:
        """What the filter expects next, in words, if it can tell."""
        with suppress(Exception):  # there is an error to report already
            return str(self.filter.expected())
        return None

    def tail(self) -> str:
        """The end of the text."""
        return str(self._tokenizer.decode(torch.tensor(list(self._tail), dtype=torch.long)))

    @abstractmethod
    def _ask(self, budget: int | None) -> Answer:
        """Ask the filter; changes nothing of this object, since it may be abandoned."""

    def _call(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call the filter within its time limit."""
        if self._time_limit is None:
            return call(*args)
        try:
            return call_within(self._time_limit, call, *args)
        except OutOfTime:
            if self._is_pending:
                self.filter.background_result = None
            raise FilterError(f"{self.asks} did not return within {self._time_limit} seconds") from None

    @property
    def _is_pending(self) -> bool:
        """Whether the filter has started work in the background."""
        return getattr(self.filter, "background_result", None) is not None

    def _collect(self, masks: bool) -> Any:
        """The result of ``next``, or of ``prepare_logit_mask``, which the filter may have started on its own."""
        if self._starts_background and not self._is_pending:
            start = self.filter.background_prepare_logit_mask if masks else self.filter.background_next
            start(THREADS)
        if "get_next" in self._offers.methods:
            return self.filter.get_next(True) if masks else self.filter.get_next()
        return self.filter.prepare_logit_mask() if masks else self.filter.next()

    def _guarded(self, what: str, call: Callable[..., Any], *args: Any) -> Any:
        """Call the filter; its exception becomes an error that names it."""
        try:
            return call(*args)
        except Exception as error:
            reason = (
                error.reason if isinstance(error, FilterError) else f"{what} raised {type(error).__name__}: {error}"
            )
            raise FilterError(reason, (self.name,), self.tail(), self.state()) from error


class BitmaskAdapter(FilterAdapter):
    """A filter that fills bitmasks."""

    asks = "fill_bitmask()"

    def __init__(self, target: Any, *rest: Any) -> None:
        super().__init__(target, *rest)
        self._end_tokens: Collection[int] = getattr(target, "end_tokens", ())

    @property
    def matchers(self) -> Sequence[Matcher] | None:
        matcher = self.filter.lone_matcher() if self._offers.has_matcher else None
        return None if matcher is None else (matcher,)

    def accepted(self, token: int, masks: Sequence[TokenMask | None] | None = None) -> None:
        super().accepted(token)
        if masks is not None:
            (mask,) = masks
            self._last = self._noted = Answer(mask, self._end_tokens)

    def _ask(self, budget: int | None) -> Answer:
        given = {} if budget is None or not self._offers.takes_budget else {"budget": budget}
        if self._offers.has_masks:
            return Answer(self.filter.token_mask(self._words, **given), self._end_tokens)
        bits = np.zeros((1, self._words), dtype=np.int32)
        is_restricted = self.filter.fill_bitmask(bits, 0, **given)
        return Answer(RowMask(bits[0]) if is_restricted else None, self._end_tokens)


class LogitsAdapter(FilterAdapter):
    """A filter that changes logits in place.

    It is given zeros: the tokens whose logits become -inf are excluded, other changes are added to the logits.
    """

    asks = "mask_logits()"

    def _ask(self, budget: int | None) -> Answer:
        is_ready = self._collect(True)
        if is_ready is not True:
            raise FilterError(f"prepare_logit_mask() must return True, not {is_ready!r}")
        shape = (self._width,)
        changed = self.filter.mask_logits(torch.zeros(shape, dtype=torch.float32))
        if not isinstance(changed, torch.Tensor) or changed.shape != shape:
            found = tuple(changed.shape) if isinstance(changed, torch.Tensor) else type(changed).__name__
            raise FilterError(f"mask_logits() must return a tensor of shape {shape}, not {found}")
        return self._split(changed.detach().float().cpu().numpy())

    def _split(self, changed: npt.NDArray[np.float32]) -> Answer:
        """Tell the mask from the bias."""
        if not changed.any():
            return Answer()
        allowed = changed != -np.inf
        bias = np.where(allowed, changed, np.float32(0))
        has_bias = bool(bias.any())
        if has_bias and np.isnan(bias).any():
            raise FilterError("mask_logits() must not make NaN of logits that are 0")
        mask = None if allowed.all() else RowMask(self._packed(allowed))
        return Answer(mask, bias=torch.from_numpy(bias) if has_bias else None)

    def _packed(self, flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        """A packed row with the bits of the flags that are set."""
        bits = np.zeros(4 * self._words, dtype=np.uint8)
        bits[: (self._width + 7) // 8] = np.packbits(flags, bitorder="little")
        return bits.view(np.int32)


class IdsAdapter(FilterAdapter):
    """A filter that returns collections of ids."""

    asks = "next()"

    def __init__(self, target: Any, *rest: Any) -> None:
        super().__init__(target, *rest)
        self._asked_in = _packer.step
        self._shared_in: int | None = None  # the step in which the next result may have been packed already

    def begin(self, prefix: str = "") -> None:
        super().begin(prefix)
        self._asked_in = _packer.step

    def evaluate(self, budget: int | None) -> TokenMask | None:
        step = _packer.step
        # The filter may have changed what it returned when it was asked before in this step.
        self._shared_in = None if step == self._asked_in else step
        self._asked_in = step
        return super().evaluate(budget)

    def _ask(self, budget: int | None) -> Answer:
        result = self._collect(False)
        if not isinstance(result, tuple) or len(result) != 2:
            raise FilterError(f"next() must return a pair of collections of ids, not {type(result).__name__}")
        allowed, end_tokens = result
        if allowed is None:
            return Answer()
        for ids in result:
            if not _is_ids(ids):
                raise FilterError(f"next() must return sets or lists of ids, not {type(ids).__name__}")
        return Answer(_packer.pack(allowed, self._words, self._shared_in), end_tokens)


_ADAPTERS: dict[Form, type[FilterAdapter]] = {"bitmask": BitmaskAdapter, "logits": LogitsAdapter, "ids": IdsAdapter}


class IdPacker:
    """Packs collections of ids; one that many sequences return in the same step is packed once.

    Filters may change a collection from step to step. Without :meth:`new_step`, nothing is cached.
    """

    def __init__(self) -> None:
        # Number and masks of the step, read and replaced together; masks by identity, length and words of a row.
        self._current: tuple[int, dict[tuple[int, int, int], tuple[Collection[int], RowMask]]] = (0, {})

    @property
    def step(self) -> int:
        """Number of the step."""
        return self._current[0]

    def new_step(self) -> None:
        """Forget all collections."""
        self._current = (self.step + 1, {})

    def pack(self, ids: Collection[int], words: int, step: int | None) -> RowMask:
        """Pack a collection.

        Args:
            ids: the ids.
            words: of the packed row.
            step: a step in which they have not changed since they were packed last, if they were.
        """
        (current, masks), key = self._current, (id(ids), len(ids), words)
        if step == current and key in masks:
            return masks[key][1]
        mask = RowMask(pack(ids, words))
        if step == current or key in masks:
            masks[key] = ids, mask  # with the ids, so that no other collection gets their key
        return mask


_packer = IdPacker()


def new_step() -> None:
    """Begin a step of all sequences: collections of ids are packed again when filters next return them."""
    _packer.new_step()


def pack(ids: Collection[int], words: int) -> npt.NDArray[np.int32]:
    """Return a packed row with the bits of some ids.

    Raises:
        FilterError: an id is outside the row.
    """
    bits = pack_ids(ids, words)
    if bits is not None:
        return bits
    # Other numbers than ``int``, or an error to describe.
    index = np.fromiter(ids, dtype=np.int64, count=len(ids))
    width = words * 32
    if index.size and not 0 <= index.min() <= index.max() < width:
        outside = next(i for i in ids if not 0 <= i < width)
        raise FilterError(f"next() returned token id {outside}, outside the {width} of the model")
    return packed(index, words)


def _is_ids(ids: Any) -> bool:
    if isinstance(ids, np.ndarray):
        return ids.ndim == 1 and ids.dtype.kind in "iu"
    return isinstance(ids, (set, frozenset, list, tuple))
