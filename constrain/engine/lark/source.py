"""Loading a grammar with lark's loader, and positions of errors in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from lark import Tree
from lark.exceptions import UnexpectedInput, VisitError
from lark.lexer import Pattern
from lark.load_grammar import GrammarBuilder, PrepareLiterals, TerminalTreeToPattern
from lark.visitors import Transformer_NonRecursive

from constrain.engine.lark.inline import InlineSchema, Insert, Reference, Substring, marker, position, take_inserts
from constrain.errors import LarkError, ResourceLimit

Node: TypeAlias = "Tree[Any]"

_FOREIGN = {
    "<": "Unexpected <; a special token stands as a word of its own, which is <, its name and >",
    "@": "Unexpected @; another grammar stands as a word of its own, which is @ and its name",
}


@dataclass(frozen=True)
class RuleSource:
    """A rule or template: ``tree`` is lark's, with literals as patterns."""

    parameters: tuple[str, ...]
    tree: Node


@dataclass(frozen=True)
class Source:
    """A loaded grammar.

    Attributes:
        text: the text of the grammar.
        rules: by name; imported ones have lark's mangled names.
        terminals: by name; ``None`` for those that are only declared.
        ignored: names of the ignored terminals.
        inserts: JSON Schemas, references to other grammars, and special tokens, by the names of the terminals that
            replace them.
    """

    text: str
    rules: dict[str, RuleSource]
    terminals: dict[str, Pattern | None]
    ignored: list[str]
    inserts: dict[str, Insert]

    def insert(self, name: str) -> Insert | None:
        """Return the extension that a terminal stands for, or, if it is ``%json`` or ``%regex``, is the name of."""
        if name in self.inserts:
            return self.inserts[name]
        pattern = self.terminals.get(name)
        whole = (each for stem, each in self.inserts.items() if pattern and pattern.value == marker(stem))
        return next((each for each in whole if isinstance(each, (InlineSchema, Substring))), None)

    def error(self, reason: str, *names: str) -> LarkError:
        """Return an error at the position of the first of ``names`` that occurs in the text."""
        return LarkError(reason, *place(self.text, *names))


def load(text: str, known: Collection[str] = ()) -> Source:
    """Load a grammar, which may refer to the ``known`` others.

    Raises:
        LarkError: lark refuses it, or it refers to an unknown grammar.
    """
    plain = take_inserts(text)
    for insert in plain.inserts.values():
        if isinstance(insert, Reference) and insert.name not in known:
            names = ", ".join(map(str, known)) or "none"
            reason = f"there is no grammar '{insert.name}' to stand for @{insert.name}; those given are: {names}"
            raise LarkError(reason, insert.line, insert.column)
    with lark_errors(text):
        builder = GrammarBuilder()
        builder.load_grammar(plain.text, "<string>")
        grammar = builder.build()
    terminals, rules = {}, {}
    for name, (tree, _) in grammar.term_defs:
        with lark_errors(text, name):
            terminals[name] = _pattern(name, tree)
    for name, parameters, tree, _ in grammar.rule_defs:
        with lark_errors(text, name):
            rules[name] = _rule(name, parameters, tree)
    return Source(text, rules, terminals, list(grammar.ignore), plain.inserts)


def place(text: str, *names: str) -> tuple[int | None, int | None]:
    """Find the definition or first use of the first of ``names`` that occurs in the text, as line and column."""
    for name in names:
        if name.startswith(("@", "<")):
            inserts = take_inserts(text).inserts.values()
            return next(((at.line, at.column) for at in inserts if at.shown == name), (None, None))
        offset = _offset(text, name)
        if offset is not None:
            return position(text, offset)
    return None, None


@contextmanager
def lark_errors(text: str, *names: str) -> Iterator[None]:
    """Turn any exception for a bad grammar into a ``LarkError`` with a position.

    Lark reports mistakes by its own exceptions, but also by assertions and by exceptions of its helpers.

    Args:
        text: the grammar.
        names: names to look for if the exception has no position.
    """
    try:
        yield
    except (LarkError, ResourceLimit, MemoryError):
        raise
    except VisitError as error:
        raise located(text, str(error.orig_exc) or f"malformed {error.rule}", *names) from error
    except UnexpectedInput as error:
        raise LarkError(_first_line(str(error)), error.line, error.column) from error
    except RecursionError as error:
        raise LarkError("the grammar is nested too deeply, or a template never stops calling itself") from error
    except OSError as error:
        module = (error.filename or "").removesuffix(".lark").replace("/", ".")
        raise LarkError(f"cannot import {module or error}: no such grammar", *place(text, module)) from error
    except Exception as error:
        raise located(text, str(error) or type(error).__name__, *names) from error


def located(text: str, message: str, *names: str) -> LarkError:
    """Return an error at the position that a message states, or of a name that it quotes; else of one of ``names``."""
    reason = _first_line(message)
    stated = re.search(r",? at line (\d+),? col(?:umn)? (\d+)(?: in <string>)?", reason)
    if stated:
        reason = reason.replace(stated.group(0), "").strip(" :")
        line, column = int(stated.group(1)), int(stated.group(2))
        return LarkError(_foreign(text, line, column) or reason, line, column)
    quoted = re.findall(r"'([^']+)'|\((\".*\"i?)\)", reason)
    words = re.findall(r"\w+", reason)
    defined = [word for word in words if re.search(rf"^(?:%\w+[ \t]+)?[?!]*{word}\b", text, re.MULTILINE)]
    return LarkError(reason, *place(text, *(a or b for a, b in quoted), *defined, *names))


@contextmanager
def errors_within(grammar: str) -> Iterator[None]:
    """Add the name of a grammar to a ``LarkError`` raised inside."""
    try:
        yield
    except LarkError as error:
        raise LarkError(error.reason, error.line, error.column, grammar) from error


def _pattern(name: str, tree: Node | None) -> Pattern | None:
    if tree is None:
        return None
    if not any(expansion.children for expansion in tree.find_data("expansion")):
        raise ValueError(f"terminal '{name}' is empty")
    pattern: Pattern = (PrepareLiterals() * TerminalTreeToPattern()).transform(_copy(tree))
    return pattern


def _rule(name: str, parameters: tuple[str, ...], tree: Node | None) -> RuleSource:
    if tree is None:
        raise ValueError(f"rule '{name}' is declared but never defined; only terminals can be declared")
    prepared: Node = PrepareLiterals().transform(_copy(tree))
    return RuleSource(tuple(parameters), prepared)


def _copy(tree: Node) -> Node:
    """Copy a tree, since lark changes trees in place, and those of terminals share parts."""
    copy: Node = Transformer_NonRecursive(visit_tokens=False).transform(tree)
    return copy


def _offset(text: str, name: str) -> int | None:
    word = re.escape(name)
    if not re.fullmatch(r"[\w.]+", name):
        found = text.find(name)
        return None if found < 0 else found
    short = name.split("__")[-1] if "__" in name.strip("_") else name
    module = name.strip("_").split("__")[0]
    for pattern in (
        rf"^[ \t]*(?:%(?:override|extend)[ \t]+)?[?!]*(?P<at>{word})(?=[ \t]*[.:{{])",
        rf"^[ \t]*%(?:import|declare|ignore)\b[^\n]*?(?P<at>\b{word}\b)",
        rf"(?P<at>(?<!\w){word}(?!\w))",
        rf"^[ \t]*%import[ \t]+(?P<at>\.?{re.escape(module)}\.(?:{re.escape(short)}\b)?)",
    ):
        match = re.search(pattern, text, re.MULTILINE)
        if match:
            return match.start("at")
    return None


def _foreign(text: str, line: int, column: int) -> str | None:
    """Explain a notation of other grammar languages, if there is one at the position of an error."""
    rest = "".join(text.split("\n")[line - 1 : line])[column - 1 :]
    return next((reason for start, reason in _FOREIGN.items() if rest.startswith(start)), None)


def _first_line(message: str) -> str:
    return message.strip().split("\n")[0]
