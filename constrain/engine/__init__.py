"""The grammar engine: compiles constraints, and computes token masks. The loop of passes is :mod:`constrain.runtime`.

A JSON Schema becomes the mask of the next token in these steps::

    compile_json_schema     json_schema.py -> csrc/engine/schema/    keywords -> rules of a CompiledGrammar
    Matcher.accept, .mask   csrc/engine/matcher/                     the text so far -> its parse state -> its mask
    MaskBuilder::mask       csrc/engine/masks/                       parse state, trie of the vocabulary -> bitmask

It needs neither torch nor a model.
"""

from __future__ import annotations

from constrain._core import Matcher
from constrain.engine.alternatives import Alternatives, TokenNode, TokenTree
from constrain.engine.bitmask import allocate_bitmask, fill_bitmasks
from constrain.engine.cache import GrammarCache, grammar_cache
from constrain.engine.compiled_grammar import CompiledGrammar, Limits, Report, ReportEntry
from constrain.engine.explain import Explanation, TokenExplanation
from constrain.engine.grammars import lark_of_calls, lark_of_sql
from constrain.engine.json_schema import DUMPS_LAYOUT, JsonLayout, LaidOutSchema, compile_json_schema
from constrain.engine.lark import InJsonString, compile_lark, lark_of_gbnf, lark_warnings
from constrain.engine.profile import MaskCost, MaskTimes, SchemaProfile, profile_schema
from constrain.engine.regex import compile_choices, compile_regex
from constrain.engine.structural_tags import TranslatedTag, compile_structural_tag, lark_of_structural_tag
from constrain.engine.vocabulary import Vocabulary

__all__ = [
    "DUMPS_LAYOUT",
    "Alternatives",
    "CompiledGrammar",
    "Explanation",
    "GrammarCache",
    "InJsonString",
    "JsonLayout",
    "LaidOutSchema",
    "Limits",
    "MaskCost",
    "MaskTimes",
    "Matcher",
    "Report",
    "ReportEntry",
    "SchemaProfile",
    "TokenExplanation",
    "TokenNode",
    "TokenTree",
    "TranslatedTag",
    "Vocabulary",
    "allocate_bitmask",
    "compile_choices",
    "compile_json_schema",
    "compile_lark",
    "compile_regex",
    "compile_structural_tag",
    "fill_bitmasks",
    "grammar_cache",
    "lark_of_calls",
    "lark_of_gbnf",
    "lark_of_sql",
    "lark_of_structural_tag",
    "lark_warnings",
    "profile_schema",
]
