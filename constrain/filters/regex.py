"""A filter for regular expressions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from constrain.engine import compile_regex, grammar_cache
from constrain.filters.engine_filter import ExLlamaV2EngineFilter
from constrain.filters.vocabularies import vocabulary_of

if TYPE_CHECKING:
    from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2RegexFilter(ExLlamaV2EngineFilter):
    """Restricts the output to texts that fully match a regular expression.

    Args:
        model: the model whose tokens are filtered.
        tokenizer: its tokenizer.
        pattern: the regular expression, as text or compiled; see :func:`constrain.engine.compile_regex`.

    Raises:
        RegexError: the pattern does not compile.
    """

    def __init__(self, model: Any, tokenizer: ExLlamaV2Tokenizer, pattern: str | re.Pattern[str]) -> None:
        super().__init__(model, tokenizer, grammar_cache.compile(compile_regex, pattern, vocabulary_of(tokenizer)))
