"""Compilation of constraints as inference servers hand them to a back end: a kind, and a text."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Literal, TypeAlias, get_args

from constrain.engine import (
    CompiledGrammar,
    JsonLayout,
    Vocabulary,
    compile_choices,
    compile_json_schema,
    compile_lark,
    compile_regex,
    compile_structural_tag,
    grammar_cache,
)
from constrain.engine.json_schema import WhitespacePolicy
from constrain.engine.lark import as_lark
from constrain.errors import GrammarError

ConstraintKind: TypeAlias = Literal["json", "json_object", "regex", "choice", "grammar", "structural_tag"]


def compile_constraint(
    kind: ConstraintKind, text: str, vocab: Vocabulary, *, whitespace: WhitespacePolicy = "bounded"
) -> CompiledGrammar:
    """Compile a constraint; cached.

    Args:
        kind: what the text is.
        text: the JSON text of a schema, of a list of choices or of a structural tag, a regular expression, or a grammar
            in Lark's notation or in GBNF, which has ``::=``. Without meaning for ``"json_object"``.
        vocab: the vocabulary of the model.
        whitespace: of the documents of ``"json"``, ``"json_object"`` and ``"structural_tag"``, and of ``%json`` in a
            ``"grammar"``, as for :func:`~constrain.engine.compile_json_schema`. Members are written in the order of the
            schema, except those of ``%json``; integers have no fraction.

    Raises:
        GrammarError: the constraint is malformed, or cannot be enforced.
    """
    layout = JsonLayout(whitespace, "schema", "plain")
    if kind in ("json", "json_object"):
        schema = {"type": "object"} if kind == "json_object" else _parsed(text)
        return grammar_cache.compile(compile_json_schema, schema, vocab, **asdict(layout))
    if kind == "regex":
        return grammar_cache.compile(compile_regex, text, vocab)
    if kind == "choice":
        return grammar_cache.compile(compile_choices, _parsed(text), vocab)
    if kind == "grammar":
        return grammar_cache.compile(
            compile_lark, as_lark(text), vocab, layout=JsonLayout(whitespace, integers="plain")
        )
    if kind == "structural_tag":
        return grammar_cache.compile(compile_structural_tag, _parsed(text), vocab, layout=layout)
    raise GrammarError(f"there is no kind of constraint {kind!r}; there are {', '.join(get_args(ConstraintKind))}")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise GrammarError(f"the constraint is not JSON: {error}") from error
