"""Compilation of Lark grammars."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import lark

from constrain.arguments import check_type
from constrain.engine.compiled_grammar import CompiledGrammar, Limits
from constrain.engine.json_schema import JsonLayout
from constrain.engine.lark.compose import Composition, NamedGrammar, check_grammars, description
from constrain.engine.lark.lower import DEFAULT_LAYOUT, SpecialTokens
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
    layout: JsonLayout = DEFAULT_LAYOUT,
    limits: Limits = Limits(),
    store: Store | None = None,
) -> CompiledGrammar:
    """Compile a Lark grammar.

    The language is exactly that of ``lark.Lark(text, parser="earley", lexer="dynamic_complete")``. A terminal matches
    the text that Python's ``re.match`` prefers for it, or a shorter one that it would prefer if the text ended there.
    Terminals of ``%ignore`` match as much as they can before, between and after the others. Rules may be ambiguous,
    nullable and recursive in any way.

    There are four extensions of the notation:

    ``%json {...}`` in a rule is a JSON Schema, compiled as by :func:`~constrain.engine.compile_json_schema`. Ignored
    text is allowed around a document, not within it. ``report`` covers these schemas, with their positions in the
    grammar as ``document``.

    ``%regex {...}`` in a rule is a part of a text, empty or not: ``{"substring_words": text}`` of whole words,
    ``{"substring_chars": text}`` of characters, ``{"substring_chunks": [...]}`` of successive texts of a list, joined.

    ``@name`` in a rule is another grammar, with its own rules, terminals and ignored text. It starts with its rule
    ``start``, and lookahead of its terminals ends where its text ends. Ignored text of the referring grammar is allowed
    around it. Grammars may refer to one another and to themselves; each is compiled once.

    ``<name>`` in a rule is the special token of this name in the vocabulary, such as ``<|im_start|>``; ``<[INST]>`` is
    one in square brackets. It matches that token only, never ordinary text that looks like it. Ignored text is allowed
    around it, and lookahead of terminals ends before it. An end-of-sequence token is allowed at the end of a text.

    A terminal may be the name of a ``%json`` or ``%regex``, as in ``QUOTE: %regex {...}``. None of these can be a part
    of a terminal.

    Args:
        text: the grammar. ``%import`` finds lark's own modules, ``common``, ``python`` and ``unicode``.
        vocab: the vocabulary of the model.
        start: the rule that a whole text must match.
        grammars: the grammars for ``@name``, by name: the text of a Lark grammar, a JSON Schema (a ``dict`` or
            ``bool``; a :class:`LaidOutSchema` says how its documents are written), or a compiled ``re.Pattern`` for the
            whole text. An :class:`InJsonString` has the texts of a grammar or a pattern as JSON strings have them.
        special_tokens: names of special tokens, by the names of the terminals that are declared (``%declare``) for
            them.
        layout: how the documents of schemas are written, of ``%json`` and of ``grammars``, unless these have a layout
            of their own; by default as :func:`~constrain.engine.compile_json_schema` has it, and integers have no
            fraction.
        limits: limits on states, memory and time.
        store: cache of parsed grammars in files, if any.

    Raises:
        LarkError: the grammar is malformed, has no text, or cannot be enforced exactly: a terminal looks at the text
            before it (``(?<=``, ``\\b``, ``^``) or at what may follow it (``(?!if)[a-z]+`` where the next terminal may
            begin with ``f``), ignored text looks around itself, a terminal may be empty or is only declared, the
            vocabulary lacks a special token, or a schema does not compile.
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
    check_type("layout", layout, JsonLayout, "a JsonLayout")
    key = _key(text, start, named, declared, layout) if store else None
    if store and key and (cached := store.get(key)):
        with suppress(GrammarError, TypeError, ValueError):
            steps, symbol = cached
            return Program.of(steps, limits).compile(int(symbol), vocab)
    composition = Composition(text, named, SpecialTokens(vocab, declared), layout, limits)
    symbol = composition.write(start)
    grammar = composition.compile(symbol)
    if store and key:
        store.put(key, [composition.program.steps, symbol])
    return grammar


def _key(
    text: str,
    start: str,
    grammars: Mapping[str, NamedGrammar],
    special_tokens: Mapping[str, str],
    layout: JsonLayout,
) -> list[str] | None:
    """Return the key of a grammar in a store; ``None`` for an argument of a wrong type, which is refused later."""
    with suppress(TypeError, ValueError, RecursionError):
        return ["lark", lark.__version__, *description(text, start, grammars, special_tokens, layout)]
    return None
