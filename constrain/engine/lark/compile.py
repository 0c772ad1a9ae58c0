"""Lark grammars over a vocabulary."""

from __future__ import annotations

from contextlib import suppress

import lark

from constrain.engine.grammar import CompiledGrammar, Limits
from constrain.engine.lark.lower import Lowering
from constrain.engine.lark.program import Program
from constrain.engine.lark.source import lark_errors, load
from constrain.engine.store import Store
from constrain.engine.vocabulary import Vocabulary
from constrain.errors import GrammarError


def compile_lark(
    text: str, vocab: Vocabulary, start: str = "start", *, limits: Limits = Limits(), store: Store | None = None
) -> CompiledGrammar:
    """The texts that a Lark grammar parses.

    The language is exactly that of ``lark.Lark(text, parser="earley", lexer="dynamic_complete")``: a terminal takes the
    text that Python's ``re.match`` prefers for it, or a shorter one that it would prefer if the text ended there, and
    those of ``%ignore`` take the longest they can before, between and after the others. Rules may be ambiguous,
    nullable and recursive in every way.

    Beside what Lark has, a rule may contain ``%json {...}``: a JSON Schema, for the documents that
    :func:`~constrain.engine.compile_json_schema` would write for it. Ignored text may stand around a document, not
    within. ``report`` tells of these schemas, with their places in the grammar as ``document``.

    Args:
        text: the grammar. ``%import`` finds lark's own modules, ``common``, ``python`` and ``unicode``.
        vocab: the vocabulary of the model.
        start: the rule that a whole text must match.
        limits: bounds on states, memory and time.
        store: where the grammar is kept in a form that need not be parsed, if it is.

    Raises:
        LarkError: the grammar is malformed, matches nothing, or uses what cannot be enforced exactly: terminals that
            look at the text before them (``(?<=``, ``\\b``, ``^``) or at what may follow them here (``(?!if)[a-z]+``
            where the next terminal may begin with ``f``), ignored text that looks around, terminals that may be empty
            or are only declared, and schemas that do not compile.
        ResourceLimit: a limit was reached.
    """
    program, symbol = _program(text, start, limits, store)
    with lark_errors(text):
        return program.compile(symbol, vocab)


def _program(text: str, start: str, limits: Limits, store: Store | None) -> tuple[Program, int]:
    """The program of a grammar, and its symbol for the start."""
    key = ["lark", lark.__version__, start, text]
    if store is not None and (kept := store.get(key)):
        with suppress(GrammarError, TypeError, ValueError):
            steps, symbol = kept
            return Program.of(steps, limits), int(symbol)
    lowering = Lowering(load(text), limits)
    symbol = lowering.symbol_of_rule(start)
    if store is not None:
        store.put(key, [lowering.program.steps, symbol])
    return lowering.program, symbol
