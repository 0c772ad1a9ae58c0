"""Conversion of constraint options into filters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from constrain.arguments import texts_of
from constrain.engine import compile_choices, grammar_cache
from constrain.engine.lark import NamedGrammar
from constrain.errors import GrammarError
from constrain.extract import Target
from constrain.filters import (
    ExLlamaV2EngineFilter,
    ExLlamaV2GrammarFilter,
    ExLlamaV2JSONSchemaFilter,
    ExLlamaV2PrefixFilter,
    ExLlamaV2RegexFilter,
)
from constrain.filters.vocabularies import vocabulary_of
from constrain.model import ExLlamaV2
from constrain.tokenizer import ExLlamaV2Tokenizer


def make_filters(
    model: ExLlamaV2,
    tokenizer: ExLlamaV2Tokenizer,
    *,
    json_schema: Any = None,
    regex: str | re.Pattern[str] | None = None,
    grammar: str | None = None,
    grammars: Mapping[str, NamedGrammar] | None = None,
    choices: Sequence[str] | None = None,
    prefix: str | Sequence[str] | None = None,
) -> list[ExLlamaV2EngineFilter]:
    """Create a filter for each given constraint; arguments and errors as for :meth:`LLM.generate`."""
    if grammars and grammar is None:
        raise GrammarError("grammars are those that @name stands for in grammar, which is missing")
    made: dict[str, ExLlamaV2EngineFilter] = {}
    if json_schema is not None:
        made["json_schema"] = ExLlamaV2JSONSchemaFilter(model, tokenizer, Target.of(json_schema).schema)
    if regex is not None:
        made["regex"] = ExLlamaV2RegexFilter(model, tokenizer, regex)
    if grammar is not None:
        made["grammar"] = ExLlamaV2GrammarFilter(model, tokenizer, grammar, grammars=grammars)
    if choices is not None:
        compiled = grammar_cache.compile(
            compile_choices, texts_of("choices", choices, GrammarError), vocabulary_of(tokenizer)
        )
        made["choices"] = ExLlamaV2EngineFilter(model, tokenizer, compiled)
    if prefix is not None:
        made["prefix"] = ExLlamaV2PrefixFilter(model, tokenizer, prefix)
    for argument, each in made.items():
        each.argument = argument
    return [*made.values()]
