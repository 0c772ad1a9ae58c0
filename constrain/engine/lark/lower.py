"""From a grammar's text to the rules of the engine."""

from __future__ import annotations

import re
from typing import Protocol

from lark import Tree
from lark.grammar import Terminal
from lark.lexer import Pattern
from lark.utils import get_regexp_width

from constrain._core import CfgBuilder
from constrain.engine.lark.context import looks_outside
from constrain.engine.lark.source import RuleSource, Source, lark_errors, load
from constrain.errors import GrammarError, LarkError, RegexError

_MAX_INSTANCES = 10_000
"""Templates with different arguments that one grammar may use; a template that calls itself with ever new ones ends here."""

_MAX_REPEAT = 2**32 - 2
_UNBOUNDED = 2**32 - 1


def lower(text: str, start: str = "start") -> CfgBuilder:
    """Compiles a Lark grammar into a builder of the engine's rules, of which ``build`` was already seen to succeed.

    Args:
        text: the grammar.
        start: name of the rule that a whole text must match.

    Raises:
        LarkError: the grammar is malformed, or uses something that cannot be enforced exactly.
        ResourceLimit: the grammar is too large.
    """
    return _Lowering(load(text)).run(start)
