"""The front end for Lark grammars.

The language of a grammar is that of ``lark.Lark(text, parser="earley", lexer="dynamic_complete")``. Lark's own loader
reads the grammar, so imports, templates and literals have the meaning that they have in Lark.
"""

from __future__ import annotations

from constrain.engine.lark.compile import compile_lark
from constrain.engine.lark.compose import NamedGrammar
from constrain.engine.lark.gbnf import as_lark, lark_of_gbnf
from constrain.engine.lark.json_string import InJsonString
from constrain.engine.lark.lint import lark_warnings

__all__ = ["InJsonString", "NamedGrammar", "as_lark", "compile_lark", "lark_of_gbnf", "lark_warnings"]
