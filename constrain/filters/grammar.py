"""A filter for grammars in Lark's notation or in GBNF."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from constrain.engine import compile_lark, grammar_cache
from constrain.engine.lark import NamedGrammar, as_lark
from constrain.filters.engine_filter import ExLlamaV2EngineFilter
from constrain.filters.vocabularies import vocabulary_of

if TYPE_CHECKING:
    from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2GrammarFilter(ExLlamaV2EngineFilter):
    """Restricts the output to the texts of a grammar.

    Args:
        model: the model whose tokens are filtered.
        tokenizer: its tokenizer.
        grammar: text of the grammar, in Lark's notation, or in GBNF, which has ``::=``.
        start: the rule to begin with.
        grammars: the grammars for ``@name`` in it; see :func:`~constrain.engine.compile_lark`.
        special_tokens: names of special tokens, by the names of the terminals that are declared for them.

    Raises:
        LarkError: the grammar does not compile.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: ExLlamaV2Tokenizer,
        grammar: str,
        start: str = "start",
        grammars: Mapping[str, NamedGrammar] | None = None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        compiled = grammar_cache.compile(
            compile_lark,
            as_lark(grammar),
            vocabulary_of(tokenizer),
            start=start,
            grammars=grammars or {},
            special_tokens=special_tokens or {},
        )
        super().__init__(model, tokenizer, compiled)
