"""A filter for the start of the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from constrain.arguments import texts_of
from constrain.engine import compile_regex, grammar_cache
from constrain.errors import GrammarError
from constrain.filters.engine_filter import ExLlamaV2EngineFilter
from constrain.filters.patterns import alternatives, literal
from constrain.filters.vocabularies import vocabulary_of

if TYPE_CHECKING:
    import numpy as np
    import torch
    from typing_extensions import Self

    from constrain.filters.masks import TokenMask
    from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2PrefixFilter(ExLlamaV2EngineFilter):
    """Restricts the output to texts that start with one of several strings; any text may follow.

    The token that completes a string may extend beyond it. If one string is a prefix of another, the shorter suffices.

    Args:
        model: the model whose tokens are filtered.
        tokenizer: its tokenizer.
        prefix_strings: a string, or a sequence of alternatives.

    Raises:
        GrammarError: there is no string, or an element is not a string.
    """

    def __init__(self, model: Any, tokenizer: ExLlamaV2Tokenizer, prefix_strings: str | Sequence[str]) -> None:
        strings = (
            [prefix_strings]
            if isinstance(prefix_strings, str)
            else texts_of("prefix_strings", prefix_strings, GrammarError)
        )
        if not strings:
            raise GrammarError("prefix_strings must hold at least one string")
        pattern = alternatives(map(literal, strings)) + r"[\s\S]*"
        super().__init__(model, tokenizer, grammar_cache.compile(compile_regex, pattern, vocabulary_of(tokenizer)))
        self.prefix_strings = strings
        self.end_tokens = frozenset()
        self.satisfied = self.matcher.is_accepting()

    def clone(self, c: Self | None = None) -> Self:
        """Copy this filter with its state."""
        c = super().clone(c)
        c.prefix_strings = self.prefix_strings
        c.satisfied = self.satisfied
        return c

    def begin(self, prefix_str: str | None = "") -> None:
        """Start a new sequence; the strings follow ``prefix_str``."""
        super().begin(prefix_str)
        self.satisfied = not self._healing and self.matcher.is_accepting()

    def feed(self, token: torch.Tensor) -> None:
        """Accept a token; once a string is complete, all tokens are allowed."""
        if not self.satisfied:
            super().feed(token)
            self.satisfied = not self._healing and self.matcher.is_accepting()

    def feed_text(self, text: str) -> bool:
        """Accept a text; returns false if it differs from all strings."""
        allowed = super().feed_text(text)
        self.satisfied = self.matcher.is_accepting()
        return allowed

    def forced_tokens(self, limit: int = 64) -> list[int]:
        """Return the tokens of the forced text; none once a string is complete."""
        return [] if self.satisfied else super().forced_tokens(limit)

    def token_mask(self, words: int, budget: int | None = None) -> TokenMask | None:
        """Return the tokens that continue a string as a mask; ``None`` once one is complete."""
        return None if self.satisfied else super().token_mask(words, budget)

    def fill_bitmask(self, bits: np.ndarray | torch.Tensor, row: int = 0, budget: int | None = None) -> bool:
        """Write the allowed tokens into a row of a bitmask; writes nothing and returns false once one is complete."""
        return False if self.satisfied else super().fill_bitmask(bits, row, budget)
