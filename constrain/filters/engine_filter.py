"""Filter of a compiled grammar: the base class of the JSON Schema, regular expression and Lark filters.

The masks are computed by its :class:`constrain.engine.Matcher`, in ``csrc/engine``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from constrain.arguments import check_type
from constrain.engine import CompiledGrammar, allocate_bitmask
from constrain.engine.bitmask import packed, unpacked
from constrain.engine.explain.expected import expected, listed
from constrain.errors import BudgetError, FilterError, VocabularyError
from constrain.filters.base import ExLlamaV2Filter, FilterResult
from constrain.filters.masks import RowMask, TokenMask
from constrain.filters.vocabularies import is_same_vocabulary, vocabulary_of

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from constrain.engine import Matcher
    from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2EngineFilter(ExLlamaV2Filter):
    """A filter that restricts the output to the texts of a compiled grammar.

    End-of-sequence tokens are allowed where the text is complete, and end the sequence.

    Attributes:
        argument: the argument that the filter was made for, by which messages call it; ``""``: by its class.
        grammar: the compiled grammar, which filters and threads may share.
        matcher: the matcher of the sequence.
        end_tokens: the end-of-sequence ids.

    Raises:
        ArgumentError: ``grammar`` is not a compiled grammar.
        VocabularyError: it was compiled for the vocabulary of another model.
    """

    argument: str = ""

    def __init__(self, model: Any, tokenizer: ExLlamaV2Tokenizer, grammar: CompiledGrammar) -> None:
        super().__init__(model, tokenizer)
        check_type("grammar", grammar, CompiledGrammar, "a compiled grammar")
        self.grammar = grammar
        self.matcher = grammar.matcher()
        self.vocabulary = vocabulary_of(tokenizer)
        if not is_same_vocabulary(grammar.vocabulary, self.vocabulary):
            raise VocabularyError(
                f"the grammar is compiled for {grammar.vocabulary}, but the model has {self.vocabulary}; "
                "compile it for Vocabulary.from_tokenizer(tokenizer)"
            )
        self.end_tokens = frozenset(self.vocabulary.eos_token_ids)
        self._healing = b""
        self._rejected: int | None = None

    def clone(self, c: Self | None = None) -> Self:
        """Copy this filter; the copy has its own state, and shares the compiled grammar."""
        c = super().clone(c)
        c.argument = self.argument
        c.grammar = self.grammar
        c.matcher = self.matcher.clone()
        c.vocabulary = self.vocabulary
        c.end_tokens = self.end_tokens
        c._healing = self._healing
        c._rejected = self._rejected
        return c

    @cached_property
    def _bits(self) -> npt.NDArray[np.int32]:
        """The mask of this filter where it is asked for ids or logits."""
        return allocate_bitmask(1, self.vocabulary.size)

    def use_background_worker(self) -> bool:
        """Always true: the engine releases the interpreter's lock while it computes a mask."""
        return True

    def can_mask_logits(self) -> bool:
        """Always true."""
        return True

    def begin(self, prefix_str: str | None = "") -> None:
        """Start at the beginning of the grammar, which holds for the text after ``prefix_str``."""
        self.matcher.reset()
        self._healing = (prefix_str or "").encode()
        self._rejected = None

    def feed(self, token: torch.Tensor) -> None:
        """Accept a token.

        A token that the grammar excludes, such as a stop token or one that a hook has chosen, is an error only if the
        filter is asked for the tokens after it.
        """
        token_id = int(token)
        accepted = self._accept_healing(token_id) if self._healing else self.matcher.accept(token_id)
        if not accepted:
            self._rejected = token_id

    def fill_bitmask(self, bits: np.ndarray | torch.Tensor, row: int = 0, budget: int | None = None) -> bool:
        """Write the allowed tokens into a row of a bitmask (see :func:`constrain.engine.allocate_bitmask`).

        Args:
            bits, row: the bitmask, and the index of the row.
            budget: remaining tokens, the end-of-sequence token included; only tokens are allowed after which the text
                can be completed within it.

        Returns:
            Whether any token is excluded.

        Raises:
            FilterError: a token of the sequence lies outside the grammar.
            BudgetError: the budget is less than :meth:`min_tokens`.
        """
        if self._rejected is not None:
            raise FilterError(f"token {self._rejected} was put into the sequence although the constraint excludes it")
        if self._healing:
            self._fill_healing(np.asarray(bits)[row], budget)
            return True
        return bool(self.matcher.fill_bitmask(bits, row, budget))

    def token_mask(self, words: int, budget: int | None = None) -> TokenMask | None:
        """Return the allowed tokens as a mask; ``None`` if none is excluded.

        Args:
            words: number of words of a packed row.
            budget: see :meth:`fill_bitmask`.
        """
        if self._rejected is not None or self._healing:
            bits = np.zeros((1, words), dtype=np.int32)
            self.fill_bitmask(bits, 0, budget)
            return RowMask(bits[0])
        return self.matcher.mask(budget)

    def lone_matcher(self) -> Matcher | None:
        """Return the matcher, if :meth:`feed` and :meth:`token_mask` are its ``accept`` and ``mask`` at present.

        ``None`` after a token outside the grammar, and during token healing.
        """
        return self.matcher if self._rejected is None and not self._healing else None

    def min_tokens(self) -> int:
        """Return the minimum number of tokens that complete the text, the end-of-sequence token included.

        A token that regenerates the healed text does not count. If there is none, each byte of that text counts as one.
        """
        needed = self.matcher.min_tokens()
        return needed + len(self._healing) if self._healing and self._healing not in self._tokens() else needed

    def forced_tokens(self, limit: int = 64) -> list[int]:
        """Return the tokens, at most ``limit``, of the forced text."""
        return [] if self._healing or self._rejected is not None else self.matcher.forced_tokens(limit)

    def expected(self) -> str:
        """Describe what is allowed next."""
        return listed(expected(self.matcher))

    def feed_text(self, text: str) -> bool:
        """Accept a text that need not end at a token boundary; returns false if it is not allowed."""
        return self.matcher.accept_bytes(text.encode())

    def next(self) -> FilterResult:
        """Return the allowed ids, ascending, and the end-of-sequence ids among them; ``None`` if all are allowed."""
        if not self.fill_bitmask(self._bits):
            return None, set()
        allowed: list[int] = unpacked(self._bits[0]).tolist()
        return allowed, self.end_tokens.intersection(allowed)

    def prepare_logit_mask(self) -> bool:
        """Compute the mask that ``mask_logits`` applies."""
        if not self.fill_bitmask(self._bits):
            self._bits.fill(-1)
        return True

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply the mask that ``prepare_logit_mask`` computed, in place."""
        import torch

        from constrain.kernels import apply_bitmask

        apply_bitmask(logits.unsqueeze(0), torch.from_numpy(self._bits))
        return logits

    def _accept_healing(self, token_id: int) -> bool:
        token = self.vocabulary.token_bytes(token_id)
        rest = self._after_healing(token)
        if rest is None:
            return False
        self._healing = self._healing[len(token) :]
        return not rest or self.matcher.accept_bytes(rest)

    def _fill_healing(self, row: Any, budget: int | None) -> None:
        """Allow the tokens whose text is a prefix of the healed text, or extends it by text that the grammar allows."""
        if budget is not None and budget < (needed := self.min_tokens()):
            raise BudgetError(budget, needed)
        allowed = [token_id for token_id, token in enumerate(self._tokens()) if self._may_heal(token, budget)]
        row[:] = packed(allowed, row.size)

    def _tokens(self) -> Iterator[bytes]:
        return (self.vocabulary.token_bytes(token_id) for token_id in range(self.vocabulary.size))

    def _may_heal(self, token: bytes, budget: int | None) -> bool:
        rest = self._after_healing(token)
        if rest is None:
            return False
        ahead = self.matcher.clone()
        if rest and not ahead.accept_bytes(rest):
            return False
        if budget is None or token == self._healing:
            return True
        left = max(0, len(self._healing) - len(token))  # bytes, each of them a token at worst
        return left + ahead.min_tokens() < budget

    def _after_healing(self, token: bytes) -> bytes | None:
        """Return the bytes of a token after the healed text; ``None`` if it differs from that text."""
        if token and self._healing.startswith(token):
            return b""
        return token[len(self._healing) :] if token.startswith(self._healing) else None
