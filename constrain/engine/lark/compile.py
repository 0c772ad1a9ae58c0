"""Lark grammars over a vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import lark

from constrain.arguments import check_type
from constrain.engine.grammar import CompiledGrammar, Limits
from constrain.engine.lark.compose import Composition, NamedGrammar, check_grammars, description
from constrain.engine.lark.lower import SpecialTokens
from constrain.engine.lark.program import Program
from constrain.engine.store import Store
from constrain.engine.vocabulary import Vocabulary, core_vocabulary
from constrain.errors import GrammarError, LarkError


def compile_lark(
    text: str,
    vocab: Vocabulary,
    start: str = "start",
    *,
    grammars: Mapping[str, NamedGrammar] | None = None,
    special_tokens: Mapping[str, str] | None = None,
    limits: Limits = Limits(),
    store: Store | None = None,
) -> CompiledGrammar:
    """The texts that a Lark grammar parses.

    The language is exactly that of ``lark.Lark(text, parser="earley", lexer="dynamic_complete")``: a terminal takes the
    text that Python's ``re.match`` prefers for it, or a shorter one that it would prefer if the text ended there, and
    those of ``%ignore`` take the longest they can before, between and after the others. Rules may be ambiguous,
    nullable and recursive in every way.

    Beside what Lark has, a rule may contain ``%json {...}``: a JSON Schema, for the documents that
    :func:`~constrain.engine.compile_json_schema` would write for it. Ignored text may stand around a document, not
    within. ``report`` tells of these schemas, with their places in the grammar as ``document``.

    ``@name`` stands in a rule for the texts of another grammar. They are the ones that it has by itself: its rules,
    terminals and ignored text are its own, it begins with its rule ``start``, and what its terminals look at ends where
    its text does. Ignored text of the grammar that refers to it may stand around. It may refer to others, also to
    itself and in circles; each is compiled once.

    ``<name>`` stands in a rule for the special token that the vocabulary calls so, as ``<|im_start|>``, and
    ``<[INST]>`` for one in square brackets: for that one token, never for a text that looks like it. It is a word like
    those of terminals: ignored text may stand around it, and what they look at ends before it. A token that ends texts
    may come last.

    Args:
        text: the grammar. ``%import`` finds lark's own modules, ``common``, ``python`` and ``unicode``.
        vocab: the vocabulary of the model.
        start: the rule that a whole text must match.
        grammars: those that ``@name`` stands for, by their names: the text of a Lark grammar, a JSON Schema (a ``dict``
            or ``bool``), or a compiled ``re.Pattern``, which is to match a whole text.
        special_tokens: names of special tokens, by those of terminals that the grammars ``%declare`` for them.
        limits: bounds on states, memory and time.
        store: where the grammar is kept in a form that need not be parsed, if it is.

    Raises:
        LarkError: the grammar is malformed, matches nothing, or uses what cannot be enforced exactly: terminals that
            look at the text before them (``(?<=``, ``\\b``, ``^``) or at what may follow them here (``(?!if)[a-z]+``
            where the next terminal may begin with ``f``), ignored text that looks around, terminals that may be empty
            or are only declared, special tokens that the vocabulary lacks, and schemas that do not compile.
        ResourceLimit: a limit was reached.
        ArgumentError: another argument is of the wrong type.
    """
    core_vocabulary(vocab)
    check_grammars(text, grammars)
    check_type("start", start, str, "the name of a rule", LarkError)
    check_type("special_tokens", special_tokens, (Mapping, type(None)), "names by names", LarkError)
    named, declared = grammars or {}, special_tokens or {}
    for name, token in declared.items():
        check_type(f"special_tokens[{name!r}]", token, str, "the name of a special token", LarkError)
    key = _key(text, start, named, declared) if store else None
    if store and key and (kept := store.get(key)):
        with suppress(GrammarError, TypeError, ValueError):
            steps, symbol = kept
            return Program.of(steps, limits).compile(int(symbol), vocab)
    composition = Composition(text, named, SpecialTokens(vocab, declared), limits)
    symbol = composition.write(start)
    grammar = composition.compile(symbol)
    if store and key:
        store.put(key, [composition.program.steps, symbol])
    return grammar


def _key(
    text: str, start: str, grammars: Mapping[str, NamedGrammar], special_tokens: Mapping[str, str]
) -> list[str] | None:
    """What tells the grammars of a store apart; ``None`` for what cannot be kept, and will be refused."""
    with suppress(TypeError, ValueError, RecursionError):
        return ["lark", lark.__version__, *description(text, start, grammars, special_tokens)]
    return None
