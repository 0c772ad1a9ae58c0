"""Grammars that refer to others by name: ``@name``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from constrain.arguments import check_type
from constrain.engine.compiled_grammar import CompiledGrammar, Limits
from constrain.engine.json_schema import JsonLayout, LaidOutSchema
from constrain.engine.lark.inline import Reference
from constrain.engine.lark.json_string import InJsonString, escaped_pattern
from constrain.engine.lark.lower import Lowering, SpecialTokens
from constrain.engine.lark.program import Program
from constrain.engine.lark.source import errors_within, load, located
from constrain.engine.regex import flag_letters
from constrain.errors import GrammarError, LarkError, ResourceLimit

NamedGrammar: TypeAlias = "str | dict[str, Any] | bool | LaidOutSchema | re.Pattern[str] | InJsonString"
"""The text of a Lark grammar, a JSON Schema, alone or with a layout, or a regular expression for whole texts; or one of
the first and the last as texts of JSON strings.
"""


# Messages of the engine are the only place where it names the grammar at fault. If their wording changed, errors would
# lack line and column, but still have the message.
_EMPTY = re.compile(r"grammar '(\w+)' matches no text")
_WITHIN = re.compile(r"in grammar '(\w+)': ")


@dataclass(frozen=True)
class _Place:
    """Position of a reference; all ``None`` if there is no reference to the grammar."""

    line: int | None = None
    column: int | None = None
    grammar: str | None = None


class Composition:
    """Translates a grammar, and the grammars that it may refer to, into one program.

    Args:
        text: the main grammar.
        grammars: the others by name, which may refer to one another. All are checked, even those without references.
        tokens: the special tokens that grammars may name.
        layout: how the documents of schemas are written that come without a layout.
        limits: limits on states, memory and time.

    Attributes:
        program: the steps so far.
    """

    def __init__(
        self,
        text: str,
        grammars: Mapping[str, NamedGrammar],
        tokens: SpecialTokens,
        layout: JsonLayout,
        limits: Limits,
    ) -> None:
        self.program = Program(limits)
        self._text = text
        self._grammars = grammars
        self._tokens = tokens
        self._layout = layout
        self._scopes: dict[str, int] = {}
        self._places: dict[str, _Place] = {}
        self._pending: list[str] = []

    def write(self, start: str) -> int:
        """Translate all grammars, and return the symbol of a rule of the main one.

        Raises:
            LarkError: a grammar is malformed, or has something that cannot be enforced.
        """
        symbol = self._lower(self._text, None, 0, start)
        self._write_pending()
        for name in self._grammars:
            self._scope(name)
            self._write_pending()
        return symbol

    def compile(self, start: int) -> CompiledGrammar:
        """Compile the program with a start symbol.

        Raises:
            LarkError: the language is empty, or a construct is not allowed in its place.
        """
        try:
            return self.program.compile(start, self._tokens.vocab)
        except ResourceLimit:
            raise
        except GrammarError as error:
            raise self._located(str(error)) from error

    def _write_pending(self) -> None:
        while self._pending:
            self._write(self._pending.pop())

    def _scope(self, name: str) -> int:
        if name not in self._scopes:
            self._scopes[name] = self.program.call("scope", name)
            self._pending.append(name)
        return self._scopes[name]

    def _write(self, name: str) -> None:
        grammar, scope = self._grammars[name], self._scopes[name]
        text = grammar.grammar if isinstance(grammar, InJsonString) else grammar
        if isinstance(text, str):
            with errors_within(name):
                symbol = self._lower(text, name, scope, "start", isinstance(grammar, InJsonString))
        else:
            symbol = self._word(name, grammar, scope)
        self.program.call("start", scope, symbol)

    def _lower(self, text: str, name: str | None, scope: int, start: str, in_string: bool = False) -> int:
        def scope_of(reference: Reference) -> int:
            self._places.setdefault(reference.name, _Place(reference.line, reference.column, name))
            return self._scope(reference.name)

        source = load(text, self._grammars)
        return Lowering(
            source, self.program, scope, name, scope_of, self._tokens, self._layout, in_string
        ).symbol_of_rule(start)

    def _word(self, name: str, grammar: Any, scope: int) -> int:
        """Add a JSON Schema or a regular expression, and return its symbol."""
        wanted = "a Lark grammar as a str, a JSON Schema as a dict or bool, or a compiled re.Pattern"
        known = (dict, bool, LaidOutSchema, re.Pattern, InJsonString)
        check_type(f"@{name}", grammar, known, wanted, partial(self._refused, name))
        try:
            if isinstance(grammar, (re.Pattern, InJsonString)):
                symbol = self.program.call("regex", *_pattern_and_flags(grammar), f"@{name}", scope)
            else:
                laid_out = grammar if isinstance(grammar, LaidOutSchema) else LaidOutSchema(grammar, self._layout)
                policies = laid_out.layout.policies
                symbol = self.program.call("json_schema", laid_out.schema, *policies, f"@{name}", scope)
        except ResourceLimit:
            raise
        except GrammarError as error:
            raise self._refused(name, f"@{name} cannot be used: {error}") from error
        return int(symbol)

    def _refused(self, name: str, reason: str) -> LarkError:
        """Return an error at the first reference to a grammar."""
        at = self._places.get(name, _Place())
        return LarkError(reason, at.line, at.column, at.grammar)

    def _located(self, message: str) -> LarkError:
        if whole := _EMPTY.fullmatch(message):
            return self._refused(whole[1], message)
        if not (inside := _WITHIN.match(message)):
            return located(self._text, message)
        grammar = self._grammars[inside[1]]
        text = grammar.grammar if isinstance(grammar, InJsonString) else grammar
        error = located(str(text), message[inside.end() :])
        return LarkError(error.reason, error.line, error.column, inside[1])


def _pattern_and_flags(grammar: re.Pattern[str] | InJsonString) -> tuple[str, str]:
    if isinstance(grammar, re.Pattern):
        return grammar.pattern, flag_letters(grammar)
    pattern: Any = grammar.grammar
    flag_letters(pattern)  # refuses what no pattern of a grammar may be
    return escaped_pattern(pattern.pattern, pattern.flags & ~re.UNICODE, is_whole=True), ""


def check_grammars(text: str, grammars: Mapping[str, NamedGrammar] | None) -> None:
    """Check the types of a grammar and of named grammars.

    Raises:
        LarkError: the grammar is not a ``str``, or the others are not grammars by name.
    """
    check_type("a grammar", text, str, "a str", LarkError)
    check_type("grammars", grammars, (Mapping, type(None)), "grammars by name", LarkError)
    for name in grammars or ():
        if not isinstance(name, str) or not re.fullmatch(r"\w+", name):
            raise LarkError(f"{name!r} cannot name a grammar; letters, digits and _ can")


def description(
    text: str,
    start: str,
    grammars: Mapping[str, NamedGrammar],
    special_tokens: Mapping[str, str],
    layout: JsonLayout,
) -> list[str]:
    """Describe a composition by strings; equal descriptions compile to the same program.

    Raises:
        TypeError, ValueError, RecursionError: a grammar has a type that cannot be compiled.
    """
    named = [[name, *_parts(grammar)] for name, grammar in sorted(grammars.items())]
    return [start, text, json.dumps(named), json.dumps(sorted(special_tokens.items())), json.dumps(layout.policies)]


def _parts(grammar: NamedGrammar) -> list[Any]:
    if isinstance(grammar, re.Pattern):
        return ["regex", grammar.pattern, grammar.flags]
    if isinstance(grammar, LaidOutSchema):
        return ["schema", grammar.schema, *grammar.layout.policies]
    if isinstance(grammar, InJsonString):
        return ["string", *_parts(grammar.grammar)]
    return ["", grammar]
