"""The filter protocol: the base class of all constraints on the next token."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from constrain.tokenizer import ExLlamaV2Tokenizer

#: ``(pass_tokens, end_tokens)``: the ids that may come next (``None``: any), and those of them that complete the
#: constraint. A list must be ascending and without repetition.
FilterResult: TypeAlias = tuple[Collection[int] | None, Collection[int]]


class ExLlamaV2Filter:
    """Base class of every filter.

    A filter belongs to one sequence: :meth:`begin` is called once, then for every token :meth:`get_next` before it is
    sampled, and :meth:`feed` after. A subclass implements ``begin``, ``feed`` and ``next``, and ``clone`` if it has
    state: there is no speculative decoding with a filter whose state cannot be copied.

    A filter may have a faster form than sets of ids: masking logits in place (:meth:`can_mask_logits`), or, in
    addition to that, ``fill_bitmask(bits, row) -> bool``, which writes one bit a token into row ``row`` of an int32
    array (bit ``i % 32`` of word ``i // 32``, 1 = allowed) and returns whether any token is excluded. The fastest form
    of a filter is used, independently of other filters of the sequence. With bitmasks, ``end_tokens`` (a collection
    of ids, optional) are the tokens that end the sequence.

    Attributes:
        model: the model whose tokens are filtered.
        tokenizer: its tokenizer.
        sequence_str: text of the sequence, for use by subclasses.
        background_result: a pending evaluation on a worker thread, or ``None``.
    """

    #: ``next`` may return ascending lists, which are cheaper than sets. Third-party filters check this attribute.
    allow_return_type_list: bool = True

    #: Defaults for subclasses that create instances without ``__init__``, for example in ``clone``.
    sequence_str: str = ""
    background_result: Future[Any] | None = None

    def __init__(self, model: Any, tokenizer: ExLlamaV2Tokenizer) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.sequence_str = ""
        self.background_result = None

    def clone(self, c: Self | None = None) -> Self:
        """Copy this filter, with its state, into ``c`` (default: a new instance) and return the copy.

        The copy has no background work pending. Subclasses call this first, then copy their own attributes.
        """
        if c is None:
            c = type(self).__new__(type(self))
        c.model = self.model
        c.tokenizer = self.tokenizer
        c.sequence_str = self.sequence_str
        c.background_result = None
        return c

    def begin(self, prefix_str: str | None) -> None:
        """Start a new sequence.

        Args:
            prefix_str: text of a removed prompt token that the next token regenerates (token healing), usually
                ``""``. The constraint holds for the text after it.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement begin()")

    def feed(self, token: torch.Tensor) -> None:
        """Accept a token that was appended to the sequence, the end-of-sequence token included.

        Args:
            token: int64 of shape (1, 1), on the CPU.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement feed()")

    def next(self) -> FilterResult:
        """Return the allowed next tokens, and those of them that complete the constraint."""
        raise NotImplementedError(f"{type(self).__name__} must implement next()")

    def use_background_worker(self) -> bool:
        """Whether to evaluate the filter on a worker thread, in parallel with the model's forward pass."""
        return False

    def can_mask_logits(self) -> bool:
        """Whether ``prepare_logit_mask`` and ``mask_logits`` may be used instead of ``next``."""
        return False

    def prepare_logit_mask(self) -> bool:
        """Do the expensive part of ``mask_logits`` ahead of it. Returns ``True``."""
        raise NotImplementedError(f"{type(self).__name__} must implement prepare_logit_mask()")

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Set the logits of excluded tokens to negative infinity.

        Other changes are a bias: they are added to the logits of the model. Changes must depend on the sequence alone,
        not on the logits: these may be zeros, and then the changes are applied to the model's logits on the GPU.

        Args:
            logits: float32 of shape (padded vocabulary,), on the CPU; may be changed.

        Returns:
            The masked logits: the same tensor, or another one of the same shape.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement mask_logits()")

    def background_next(self, pool: Executor) -> None:
        """Start ``next`` on a worker thread; ``get_next`` collects its result."""
        self._submit(pool, self.next)

    def background_prepare_logit_mask(self, pool: Executor) -> None:
        """Start ``prepare_logit_mask`` on a worker thread; ``get_next(mask=True)`` collects its result."""
        self._submit(pool, self.prepare_logit_mask)

    def background_drop(self) -> None:
        """Wait for pending background work, if any, and discard its result."""
        pending, self.background_result = self.background_result, None
        if pending is not None:
            pending.exception()

    def get_next(self, mask: bool = False) -> Any:
        """Return the result of pending background work, else of ``next`` (with ``mask``: ``prepare_logit_mask``)."""
        pending, self.background_result = self.background_result, None
        if pending is not None:
            return pending.result()
        return self.prepare_logit_mask() if mask else self.next()

    def _submit(self, pool: Executor, work: Any) -> None:
        if self.background_result is not None:
            raise RuntimeError(f"{type(self).__name__} has background work pending: collect or drop it first")
        self.background_result = pool.submit(work)
