"""Adapters from filters to the constraint protocol of the runtime.

A filter returns the allowed tokens in one of three forms: a packed bitmask (``fill_bitmask``), a change of the logits
in place (``mask_logits``), or a collection of ids (``next``). :func:`adapt` chooses the fastest form of a filter::

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

from constrain.errors import DeadEnd, FilterError
from constrain.filters.capabilities import Capabilities, Form, capabilities_of
from constrain.filters.id_masks import first_of, mask_of_ids
from constrain.filters.masks import RowMask, TokenMask
from constrain.filters.naming import name_of
from constrain.filters.time_limit import THREADS, OutOfTime, call_within

if TYPE_CHECKING:
    from typing_extensions import Self

    from constrain.engine import Matcher
    from constrain.tokenizer import ExLlamaV2Tokenizer

#: Last tokens of a sequence that an error message shows.
_TAIL_TOKENS = 24


class Evaluation(NamedTuple):
    """The result of a filter for the next token.

    Attributes:
        mask: the allowed tokens; ``None`` for all.
        end_tokens: tokens that complete the constraint, if the mask allows them.
        bias: values to add to the logits.
    """

    mask: TokenMask | None = None
    end_tokens: Collection[int] = ()
    bias: torch.Tensor | None = None


def adapt(target: Any, tokenizer: ExLlamaV2Tokenizer, width: int, time_limit: float | None = None) -> FilterAdapter:
    """Wrap a filter in the adapter for its fastest form.

    Args:
        target: a filter, or an object that only has ``begin``, ``feed`` and ``next``.
        tokenizer: the tokenizer, for error messages.
        width: number of logits.
        time_limit: seconds that a third-party filter may take for a token; ``None``: no limit.

    Raises:
        FilterError: a required method is missing, one that is asked for the form raises an exception, or the target is
            a class.
    """
    capabilities = capabilities_of(target)
    form = capabilities.form if _answer(target, capabilities, "can_mask_logits") else "ids"
    return _ADAPTERS[form](target, capabilities, tokenizer, width, time_limit if capabilities.is_third_party else None)


def _answer(target: Any, capabilities: Capabilities, question: str) -> bool:
    """Return the answer of a filter to a question about itself; false if it does not have that method."""
    try:
        return question in capabilities.methods and bool(getattr(target, question)())
    except Exception as error:
        raise FilterError(f"{question}() raised {type(error).__name__}: {error}", (type(target).__name__,)) from error


class FilterAdapter(ABC):
    """A filter as a :class:`~constrain.filters.constraint.Constraint`.

    An exception of the filter becomes a :class:`FilterError` that names the filter and shows the end of the output.

    Attributes:
        filter: the filter.
        name: what messages call it.
        in_background: whether it is evaluated on a worker thread.
    """

    #: method of the filter that is evaluated, for error messages
    method: ClassVar[str]

    def __init__(
        self,
        target: Any,
        capabilities: Capabilities,
        tokenizer: ExLlamaV2Tokenizer,
        width: int,
        time_limit: float | None,
    ) -> None:
        self.filter = target
        self.name = name_of(target)
        self._capabilities = capabilities
        self._tokenizer = tokenizer
        self._width = width
        self._words = (width + 31) // 32
        self._time_limit = time_limit
        self._tail: deque[int] = deque(maxlen=_TAIL_TOKENS)
        self._last = Evaluation()
        self._precomputed: Evaluation | None = None  # result for the next token, from a native batch
        self.in_background = _answer(target, capabilities, "use_background_worker")
        self._starts_background = self.in_background and capabilities.has_background

    @property
    def filters(self) -> Sequence[Any]:
        return (self.filter,)

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
        return self._capabilities.is_third_party

    def begin(self, prefix: str = "") -> None:
        self.close()
        self._tail.clear()
        self._last, self._precomputed = Evaluation(), None
        self._guarded("begin", self._invoke, "begin", prefix)

    def begin_within(self, text: str) -> bool:
        self.begin()
        if not text or "feed_text" not in self._capabilities.methods:
            return not text
        return bool(self._guarded("feed_text", self._invoke, "feed_text", text))

    def mask(self, budget: int | None = None) -> TokenMask | None:
        mask = self.evaluate(budget)
        if mask is not None and mask.count == 0:
            raise self.dead_end()
        return mask

    def evaluate(self, budget: int | None) -> TokenMask | None:
        """Return the mask, also one that allows no token; ``None`` for all tokens."""
        precomputed, self._precomputed = self._precomputed, None
        self._last = self._guarded(self.method, self._call, self._ask, budget) if precomputed is None else precomputed
        return self._last.mask

    def accept(self, token: int) -> None:
        self._precomputed = None
        self._guarded("feed", self._invoke, "feed", torch.tensor([[token]]))
        self._tail.append(token)

    def accepted(self, token: int, masks: Sequence[TokenMask | None] | None = None) -> None:
        self._tail.append(token)
        self._precomputed = None

    def forced_tokens(self, limit: int) -> Sequence[int]:
        if "forced_tokens" not in self._capabilities.methods:
            return ()
        forced: list[int] = self._guarded("forced_tokens", lambda: list(map(int, self.filter.forced_tokens(limit))))
        return forced

    def fork(self) -> Self:
        if not self._capabilities.can_be_copied:
            raise FilterError("has no clone() of its own, so that it can follow a single sequence only", (self.name,))
        fork = copy(self)
        fork.filter = self._guarded("clone", self._clone)
        fork._tail = self._tail.copy()
        return fork

    def min_tokens(self) -> int | None:
        if "min_tokens" not in self._capabilities.methods:
            return None
        needed: int = self._guarded("min_tokens", lambda: int(self.filter.min_tokens()))
        return needed

    def close(self) -> None:
        if self._is_pending and "background_drop" in self._capabilities.methods:
            with suppress(Exception):  # the result is not used, so its errors do not matter
                self._call(self.filter.background_drop)

    def dead_end(self) -> DeadEnd:
        """The error for a filter that allows no token."""
        return DeadEnd("no token is allowed", (self.name,), self.tail(), self.state())

    def state(self) -> str | None:
        """Return the filter's description of what it expects next, if it has one."""
        with suppress(Exception):  # called while another error is reported
            return str(self.filter.expected())
        return None

    def tail(self) -> str:
        """Return the end of the output."""
        return str(self._tokenizer.decode(torch.tensor(list(self._tail), dtype=torch.long)))

    @abstractmethod
    def _ask(self, budget: int | None) -> Evaluation:
        """Evaluate the filter. Must not change this object, since a call that exceeds the time limit is abandoned."""

    def _invoke(self, method: str, *args: Any) -> Any:
        """Call a method of the filter; looking it up may raise an exception too."""
        return getattr(self.filter, method)(*args)

    def _clone(self) -> Any:
        clone = self.filter.clone()
        try:
            capabilities_of(clone)
        except FilterError as error:
            raise FilterError(f"clone() must return a filter, not {clone!r:.60}") from error
        return clone

    def _call(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call the filter within its time limit."""
        if self._time_limit is None:
            return call(*args)
        try:
            return call_within(self._time_limit, call, *args)
        except OutOfTime:
            if self._is_pending:
                self.filter.background_result = None
            raise FilterError(f"{self.method} did not return within {self._time_limit} seconds") from None

    @property
    def _is_pending(self) -> bool:
        """Whether the filter has started work in the background."""
        return getattr(self.filter, "background_result", None) is not None

    def _collect(self, masks: bool) -> Any:
        """Return the result of ``next`` or ``prepare_logit_mask``, which may have been started in the background."""
        if self._starts_background and not self._is_pending:
            start = self.filter.background_prepare_logit_mask if masks else self.filter.background_next
            start(THREADS)
        if "get_next" in self._capabilities.methods:
            return self.filter.get_next(True) if masks else self.filter.get_next()
        return self.filter.prepare_logit_mask() if masks else self.filter.next()

    def _guarded(self, what: str, call: Callable[..., Any], *args: Any) -> Any:
        """Call the filter; an exception becomes a :class:`FilterError` that names it."""
        try:
            return call(*args)
        except Exception as error:
            reason = (
                error.reason if isinstance(error, FilterError) else f"{what} raised {type(error).__name__}: {error}"
            )
            raise FilterError(reason, (self.name,), self.tail(), self.state()) from error


class BitmaskAdapter(FilterAdapter):
    """A filter that fills bitmasks."""

    method = "fill_bitmask()"

    def __init__(self, target: Any, *rest: Any) -> None:
        super().__init__(target, *rest)
        self._end_tokens: Collection[int] = getattr(target, "end_tokens", ())

    @property
    def matchers(self) -> Sequence[Matcher] | None:
        matcher = self.filter.lone_matcher() if self._capabilities.has_matcher else None
        return None if matcher is None else (matcher,)

    def accepted(self, token: int, masks: Sequence[TokenMask | None] | None = None) -> None:
        super().accepted(token)
        if masks is not None:
            (mask,) = masks
            self._last = self._precomputed = Evaluation(mask, self._end_tokens)

    def _ask(self, budget: int | None) -> Evaluation:
        given = {} if budget is None or not self._capabilities.takes_budget else {"budget": budget}
        if self._capabilities.has_masks:
            return Evaluation(self.filter.token_mask(self._words, **given), self._end_tokens)
        bits = np.zeros((1, self._words), dtype=np.int32)
        is_restricted = self.filter.fill_bitmask(bits, 0, **given)
        return Evaluation(RowMask(bits[0]) if is_restricted else None, self._end_tokens)


class LogitsAdapter(FilterAdapter):
    """A filter that changes logits in place.

    It is given zeros: the tokens whose logits become -inf are excluded, other changes are added to the logits.
    """

    method = "mask_logits()"

    def _ask(self, budget: int | None) -> Evaluation:
        is_ready = self._collect(True)
        if is_ready is not True:
            raise FilterError(f"prepare_logit_mask() must return True, not {is_ready!r}")
        shape = (self._width,)
        changed = self.filter.mask_logits(torch.zeros(shape, dtype=torch.float32))
        if not isinstance(changed, torch.Tensor) or changed.shape != shape:
            found = tuple(changed.shape) if isinstance(changed, torch.Tensor) else type(changed).__name__
            raise FilterError(f"mask_logits() must return a tensor of shape {shape}, not {found}")
        return self._split(changed.detach().float().cpu().numpy())

    def _split(self, changed: npt.NDArray[np.float32]) -> Evaluation:
        """Split changed zeros into mask and bias."""
        if not changed.any():
            return Evaluation()
        allowed = changed != -np.inf
        bias = np.where(allowed, changed, np.float32(0))
        has_bias = bool(bias.any())
        if has_bias and np.isnan(bias).any():
            raise FilterError("mask_logits() must not make NaN of logits that are 0")
        mask = None if allowed.all() else RowMask(self._packed(allowed))
        return Evaluation(mask, bias=torch.from_numpy(bias) if has_bias else None)

    def _packed(self, flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        """Pack flags into a row of bits."""
        bits = np.zeros(4 * self._words, dtype=np.uint8)
        bits[: (self._width + 7) // 8] = np.packbits(flags, bitorder="little")
        return bits.view(np.int32)


class IdsAdapter(FilterAdapter):
    """A filter that returns collections of ids."""

    method = "next()"

    def __init__(self, target: Any, *rest: Any) -> None:
        super().__init__(target, *rest)
        self._num_ids = min(self._tokenizer.get_vocab_size(), self._width)

    def _ask(self, budget: int | None) -> Evaluation:
        if budget is not None and self._capabilities.next_takes_budget:
            result = self.filter.next(budget=budget)
        else:
            result = self._collect(False)
        if not isinstance(result, tuple) or len(result) != 2:
            raise FilterError(f"next() must return a pair of collections of ids, not {type(result).__name__}")
        allowed, end_tokens = result
        if allowed is None:
            return Evaluation()
        for ids in result:
            if not _is_ids(ids):
                raise FilterError(f"next() must return sets or lists of ids, not {type(ids).__name__}")
        if len(end_tokens):
            mask_of_ids(end_tokens, self._words)  # refuses those that are no ids
        return Evaluation(self._known(mask_of_ids(allowed, self._words)), end_tokens)

    def _known(self, mask: RowMask) -> RowMask:
        """Refuse a mask that has no other tokens than the padding of the vocabulary, which are never sampled."""
        if 0 < mask.count <= 32 * self._words - self._num_ids and (first := first_of(mask)) >= self._num_ids:
            raise FilterError(f"next() returned token id {first}, outside the {self._num_ids} of the tokenizer")
        return mask


_ADAPTERS: dict[Form, type[FilterAdapter]] = {"bitmask": BitmaskAdapter, "logits": LogitsAdapter, "ids": IdsAdapter}


def _is_ids(ids: Any) -> bool:
    if isinstance(ids, np.ndarray):
        return ids.ndim == 1 and ids.dtype.kind in "iu"
    return isinstance(ids, (set, frozenset, list, tuple))
