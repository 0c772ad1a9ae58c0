"""Output formats: what a constraint of a request allows, as one grammar or several that refer to one another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from constrain.engine import (
    DUMPS_LAYOUT,
    CompiledGrammar,
    InJsonString,
    JsonLayout,
    LaidOutSchema,
    Vocabulary,
    compile_json_schema,
    compile_lark,
    compile_regex,
    grammar_cache,
)
from constrain.engine.lark import NamedGrammar
from constrain.engine.special import pieces
from constrain.errors import GrammarError, LarkError
from constrain.serve.errors import APIError, in_grammar

#: What the engine says of a grammar without texts.
_EMPTY = re.compile(r"grammar '(\w+)' matches no text")

#: A JSON Schema, a regular expression for whole texts, or the text of a Lark grammar.
Grammar: TypeAlias = "dict[str, Any] | bool | re.Pattern[str] | str"


@dataclass(frozen=True)
class OutputFormat:
    """A language for an answer.

    Attributes:
        grammar: the language.
        grammars: those that ``@name`` stands for in the text of a Lark grammar.
        pointer: JSON pointer to the field of the request that it comes from.
        pointers: pointers to the fields that ``grammars`` come from, if these have fields of their own.
        located: turns an error of a Lark grammar into one of what the grammar was translated from.
        layout: how JSON documents are written.
    """

    grammar: Grammar
    grammars: Mapping[str, NamedGrammar] = field(default_factory=dict)
    pointer: str = ""
    pointers: Mapping[str, str] = field(default_factory=dict)
    located: Callable[[LarkError], GrammarError] | None = None
    layout: JsonLayout = DUMPS_LAYOUT

    @property
    def is_json(self) -> bool:
        """Whether the answer is a JSON document."""
        return isinstance(self.grammar, (dict, bool))

    def compile(self, vocabulary: Vocabulary) -> CompiledGrammar:
        """Compile for a vocabulary; cached.

        Raises:
            APIError: the format cannot be enforced; with a pointer.
        """
        try:
            if isinstance(self.grammar, (dict, bool)):
                layout = asdict(self.layout)
                return grammar_cache.compile(compile_json_schema, self.grammar, vocabulary, **layout)
            if isinstance(self.grammar, re.Pattern):
                return grammar_cache.compile(compile_regex, self.grammar, vocabulary)
            return grammar_cache.compile(compile_lark, self.grammar, vocabulary, grammars=self.grammars)
        except GrammarError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: GrammarError) -> APIError:
        if not isinstance(error, LarkError):
            return in_grammar(error, self.pointer)
        if self.located:
            return in_grammar(self.located(error), self.pointer)
        named = re.match(r"@(\w+) ", error.reason)
        cause = error.__cause__ if isinstance(error.__cause__, GrammarError) else error
        if named and named[1] in self.pointers:
            return in_grammar(cause, self.pointers[named[1]])
        if (empty := _EMPTY.fullmatch(error.reason)) and empty[1] in self.pointers:
            return in_grammar(LarkError("no text satisfies the grammar"), self.pointers[empty[1]])
        if error.grammar is not None and error.grammar in self.pointers:
            return in_grammar(LarkError(error.reason, error.line, error.column), self.pointers[error.grammar])
        return in_grammar(error, self.pointer)


class GrammarText:
    """Writes expressions of a Lark grammar, and collects the grammars that they refer to.

    Attributes:
        grammars: the grammars, by name.
        pointers: JSON pointers to the fields of the request that they come from, by name, where these are known.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.grammars: dict[str, NamedGrammar] = {}
        self.pointers: dict[str, str] = {}
        self._names: dict[re.Pattern[str] | InJsonString | tuple[str, JsonLayout], str] = {}

    def literal(self, text: str) -> str:
        """Return the expression of a text, in which names of special tokens are these tokens."""
        found = (
            f"<{each.text}>" if each.special else json.dumps(each.text, ensure_ascii=False)
            for each in pieces(text, self._vocabulary.special_tokens)
            if each.text
        )
        # Lark knows "<|name|>" as the notation of the special token <|name|>, and <[NAME]> as that of [NAME].
        return " ".join(each.replace("<<", "<").replace(">>", ">") if each[0] == "<" else each for each in found)

    def refer(
        self, grammar: Grammar | InJsonString, pointer: str | None = None, layout: JsonLayout = DUMPS_LAYOUT
    ) -> str:
        """Return the expression of another grammar.

        Args:
            grammar: the grammar.
            pointer: JSON pointer to the field of the request that it comes from, if it is known.
            layout: how its JSON documents are written.
        """
        # The texts of schemas are compared: as values, 1 equals true, and the order of members does not count.
        key = grammar if isinstance(grammar, (re.Pattern, InJsonString)) else (json.dumps(grammar), layout)
        if known := self._names.get(key):
            return f"@{known}"
        name = self._names[key] = f"call{len(self.grammars)}"
        self.grammars[name] = LaidOutSchema(grammar, layout) if isinstance(grammar, (dict, bool)) else grammar
        if pointer is not None:
            self.pointers[name] = pointer
        return f"@{name}"

    def insert(self, format: OutputFormat) -> str:
        """Return the expression of an output format."""
        self.grammars.update(format.grammars)
        return self.refer(format.grammar, format.pointer, format.layout)

    def quote(self, format: OutputFormat) -> str:
        """Return the expression of the texts of a format, no JSON, between the quotes of a JSON string."""
        assert isinstance(format.grammar, (str, re.Pattern))
        return self.refer(InJsonString(format.grammar), format.pointer)

    def free_text(self, excluded: Iterable[str] = (), counts: str = "") -> str:
        """Return the expression of any text, empty or not, in which no text of ``excluded`` occurs.

        ``counts`` are bounds on its characters, as a regular expression writes them.
        """
        barred = "|".join(map(re.escape, filter(None, excluded)))
        character = f"(?s:(?!{barred}).)" if barred else "(?s:.)"
        return self.refer(re.compile(character + counts)) if counts else f"{self.refer(re.compile(character + '+'))}?"

    def format(self, start: str, pointer: str = "") -> OutputFormat:
        """Return the format of the rule ``start``."""
        return OutputFormat(f"start: {start}", self.grammars, pointer, self.pointers)


def alternatives(texts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches one of several texts."""
    return re.compile("|".join(map(re.escape, texts)))


def any_of(options: Iterable[str]) -> str:
    """Return the expression of alternatives, which may be empty."""
    return "(" + " | ".join(options) + ")"
