"""A filter for a choice between given texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from constrain.arguments import texts_of
from constrain.engine import compile_choices, compile_regex, grammar_cache
from constrain.engine.bitmask import unpacked
from constrain.errors import GrammarError
from constrain.filters.base import FilterResult
from constrain.filters.engine_filter import ExLlamaV2EngineFilter
from constrain.filters.patterns import alternatives, any_case
from constrain.filters.vocabularies import vocabulary_of

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2SelectFilter(ExLlamaV2EngineFilter):
    """Restricts the output to one of several options, and ends the sequence with the token that completes it.

    If an option is a prefix of another, a token that ends exactly after it completes the shorter one.

    Args:
        model: the model whose tokens are filtered.
        tokenizer: its tokenizer.
        options: the texts to choose from; not empty.
        case_insensitive: allow both cases of every letter.

    Raises:
        GrammarError: there is no option, or one is empty or not a ``str``.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: ExLlamaV2Tokenizer,
        options: Sequence[str],
        case_insensitive: bool = False,
    ) -> None:
        texts = texts_of("options", options, GrammarError)
        if not texts or not all(texts):
            raise GrammarError(f"options must be a list of non-empty texts, not {texts!r}")
        vocabulary = vocabulary_of(tokenizer)
        if case_insensitive:
            grammar = grammar_cache.compile(compile_regex, alternatives(map(any_case, texts)), vocabulary)
        else:
            grammar = grammar_cache.compile(compile_choices, texts, vocabulary)
        super().__init__(model, tokenizer, grammar)
        self.options = [text.lower() for text in texts] if case_insensitive else texts
        self.case_insensitive = case_insensitive
        self.complete = False

    def clone(self, c: Self | None = None) -> Self:
        """Copy this filter with its state."""
        c = super().clone(c)
        c.options = self.options
        c.case_insensitive = self.case_insensitive
        c.complete = self.complete
        return c

    def use_background_worker(self) -> bool:
        """Always false: few tokens are allowed, so a thread costs more time than it saves."""
        return False

    def can_mask_logits(self) -> bool:
        """Always false: only the form with sets has the tokens that complete an option."""
        return False

    def begin(self, prefix_str: str | None = "") -> None:
        """Start a new sequence; the options follow ``prefix_str``."""
        super().begin(prefix_str)
        self.complete = False

    def feed(self, token: torch.Tensor) -> None:
        """Accept a token."""
        if not self.complete:
            super().feed(token)
            self.complete = not self._healing and self.matcher.is_accepting()

    def feed_text(self, text: str) -> bool:
        """Accept a text; returns false if it differs from all options."""
        allowed = super().feed_text(text)
        self.complete = self.matcher.is_accepting()
        return allowed

    def forced_tokens(self, limit: int = 64) -> list[int]:
        """Return no tokens: the token that completes an option ends the sequence, which forced tokens would not do."""
        return []

    def next(self, budget: int | None = None) -> FilterResult:
        """Return the tokens that continue an option, and those that complete one.

        After a complete option, only end-of-sequence tokens are allowed.

        Args:
            budget: see :meth:`fill_bitmask`; the end-of-sequence token counts although no option needs it.

        Raises:
            BudgetError: the budget is less than :meth:`min_tokens`.
        """
        if self.complete:
            return set(self.end_tokens), set(self.end_tokens)
        self.fill_bitmask(self._bits, 0, budget)
        allowed: list[int] = unpacked(self._bits[0]).tolist()
        return allowed, {token_id for token_id in allowed if self._completes(token_id)}

    def _completes(self, token_id: int) -> bool:
        fork = self.matcher.clone()
        if not self._healing:
            return bool(fork.accept(token_id) and fork.is_accepting())
        rest = self._after_healing(self.vocabulary.token_bytes(token_id))
        return bool(rest and fork.accept_bytes(rest) and fork.is_accepting())
