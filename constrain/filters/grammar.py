"""A filter for Lark grammars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrain.engine import compile_lark, grammar_cache
from constrain.filters.engine import ExLlamaV2EngineFilter, vocabulary_of

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2
    from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2GrammarFilter(ExLlamaV2EngineFilter):
    """Admits the texts that a context-free grammar derives.

    Args:
        model: the model whose tokens are filtered.
        tokenizer: its tokenizer.
        grammar: text of the grammar, in the notation of Lark.
        start: the rule to begin with.

    Raises:
        LarkError: the grammar does not compile.
    """

    def __init__(self, model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, grammar: str, start: str = "start") -> None:
        vocabulary = vocabulary_of(tokenizer)
        super().__init__(model, tokenizer, grammar_cache.compile(compile_lark, grammar, vocabulary, start=start))
