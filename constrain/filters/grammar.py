"""A filter for Lark grammars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrain.engine.lark import compile_lark
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
        super().__init__(model, tokenizer, compile_lark(grammar, vocabulary_of(tokenizer), start=start))
