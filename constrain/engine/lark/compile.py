"""Lark grammars over a vocabulary."""

from __future__ import annotations

from constrain.engine.grammar import CompiledGrammar, Limits
from constrain.engine.lark.lower import Lowering
from constrain.engine.lark.source import lark_errors, load
from constrain.engine.vocabulary import Vocabulary


def compile_lark(text: str, vocab: Vocabulary, start: str = "start", *, limits: Limits = Limits()) -> CompiledGrammar:
    """The texts that a Lark grammar parses.

    The language is exactly that of ``lark.Lark(text, parser="earley", lexer="dynamic_complete")``: a terminal takes the
    text that Python's ``re.match`` prefers for it, or a shorter one that it would prefer if the text ended there, and
    those of ``%ignore`` take the longest they can before, between and after the others. Rules may be ambiguous,
    nullable and recursive in every way.

    Args:
        text: the grammar. ``%import`` finds lark's own modules, ``common``, ``python`` and ``unicode``.
        vocab: the vocabulary of the model.
        start: the rule that a whole text must match.
        limits: bounds on states, memory and nesting.

    Raises:
        LarkError: the grammar is malformed, matches nothing, or uses what cannot be enforced exactly: terminals that
            look at text around them (``(?=``, ``\\b``, ``$`` at an edge), may be empty, or are only declared.
        ResourceLimit: a limit was reached.
    """
    source = load(text)
    lowering = Lowering(source)
    symbol = lowering.symbol_of_rule(start)
    with lark_errors(text):
        core = lowering.builder.compile(symbol, vocab.core, limits.core())
    return CompiledGrammar(core, vocab)
