"""Lark grammars: what texts they describe, in the terms of the engine.

The language of a grammar is the one that ``lark.Lark(text, parser="earley", lexer="dynamic_complete")`` parses. The
text is read by lark's own loader, so that imports, templates and literals mean what they mean there.
"""

from __future__ import annotations

from constrain.engine.lark.compile import compile_lark
from constrain.engine.lark.compose import NamedGrammar
from constrain.engine.lark.lint import lark_warnings

__all__ = ["NamedGrammar", "compile_lark", "lark_warnings"]
