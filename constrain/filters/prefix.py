"""A filter for the beginning of the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from constrain.arguments import texts_of
from constrain.engine import compile_regex, grammar_cache
from constrain.errors import GrammarError
from constrain.filters.engine import ExLlamaV2EngineFilter, vocabulary_of
from constrain.filters.patterns import alternatives, literal

if TYPE_CHECKING:
    import numpy as np
    import torch
    from typing_extensions import Self

    from constrain.filters.masks import TokenMask
    from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2PrefixFilter(ExLlamaV2EngineFilter):
    """Admits texts that begin with one of several strings; anything may follow.

    The token that completes a string may go on beyond it. Where one string begins another, the shorter is enough.

    Args:
        model: the model whose tokens are filtered.
        tokenizer: its tokenizer.
        prefix_strings: a string, or several of which one must come first.

    Raises:
        GrammarError: there is no string, or something else than strings.
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
        """Copy this filter; the copy continues from the same place in the strings."""
        c = super().clone(c)
        c.prefix_strings = self.prefix_strings
        c.satisfied = self.satisfied
        return c

    def begin(self, prefix_str: str | None = "") -> None:
        """Start anew; the strings follow ``prefix_str``."""
        super().begin(prefix_str)
        self.satisfied = not self._healing and self.matcher.is_accepting()

    def feed(self, token: torch.Tensor) -> None:
        """Accept a token; once a string is complete, the filter excludes nothing more."""
        if not self.satisfied:
            super().feed(token)
            self.satisfied = not self._healing and self.matcher.is_accepting()

    def feed_text(self, text: str) -> bool:
        """Accept a text; returns false where it departs from all the strings."""
        allowed = super().feed_text(text)
        self.satisfied = self.matcher.is_accepting()
        return allowed

    def forced_tokens(self, limit: int = 64) -> list[int]:
        """Return tokens that must come next; none once satisfied."""
        return [] if self.satisfied else super().forced_tokens(limit)

    def token_mask(self, words: int, budget: int | None = None) -> TokenMask | None:
        """Return the tokens that continue a string as a mask; ``None`` where one is complete."""
        return None if self.satisfied else super().token_mask(words, budget)

    def fill_bitmask(self, bits: np.ndarray | torch.Tensor, row: int = 0, budget: int | None = None) -> bool:
        """Write the allowed tokens into a row of a bitmask; returns false, and writes nothing, once satisfied."""
        return False if self.satisfied else super().fill_bitmask(bits, row, budget)
