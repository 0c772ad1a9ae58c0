"""Warnings about ambiguous terminals of well-formed grammars."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

from interegular import Comparator
from lark.grammar import Symbol
from lark.lexer import Pattern

from constrain.engine.lark.compose import NamedGrammar, check_grammars
from constrain.engine.lark.source import Source, errors_within, load, place

_MAX_TERMINALS = 64
"""Maximum number of terminals compared; each pair takes a product of two automata."""

_EXAMPLE_SECONDS = 0.2


def lark_warnings(text: str, grammars: Mapping[str, NamedGrammar] | None = None) -> list[str]:
    """Find terminals of a Lark grammar that overlap with one another or with ignored text.

    If two terminals that match the same text are both allowed next, the text has several parses. If a terminal can
    begin with ignored text, that text may belong to either. Terminals are compared if ``interegular`` can parse their
    patterns.

    Args:
        text: the grammar.
        grammars: the grammars for ``@name``, as for :func:`compile_lark`. Each is checked on its own.

    Returns:
        One sentence for each finding, which begins with the line and column of the terminal, after the name of the
        grammar if it is one of ``grammars``.

    Raises:
        LarkError: a grammar is malformed.
    """
    check_grammars(text, grammars)
    named = grammars or {}
    found = _warnings(text, named)
    for name, grammar in named.items():
        if isinstance(grammar, str):
            with errors_within(name):
                found += [f"grammar '{name}', {warning}" for warning in _warnings(grammar, named)]
    return found


def _warnings(text: str, known: Collection[str]) -> list[str]:
    source = load(text, known)
    regexes = {name: pattern.to_regexp() for name, pattern in islice(_used(source), _MAX_TERMINALS)}
    ignored = {name: pattern.to_regexp() for name in source.ignored if (pattern := source.terminals[name])}
    with _silence("interegular"):
        return [*_overlaps(text, regexes), *_ignorable(text, regexes, ignored)]


def _used(source: Source) -> Iterator[tuple[str, Pattern]]:
    """Yield the terminals that rules use, in the order of the grammar, each under one name."""
    seen = set()
    for rule in source.rules.values():
        for value in rule.tree.iter_subtrees_topdown():  # type: ignore[no-untyped-call]
            if value.data != "value":
                continue
            (child,) = value.children
            pattern: Any = None
            if isinstance(child, Symbol):
                pattern = None if source.insert(str(child.name)) else source.terminals.get(child.name)
            elif child.data == "pattern":
                pattern = child.children[0]
            if pattern is not None and pattern.to_regexp() not in seen:
                seen.add(pattern.to_regexp())
                yield str(child.name) if isinstance(child, Symbol) else pattern.raw or pattern.to_regexp(), pattern


def _overlaps(text: str, regexes: dict[str, str]) -> Iterator[str]:
    comparator = Comparator.from_regexes(regexes)
    for a, b in comparator.check():
        try:
            example = comparator.get_example_overlap(a, b, _EXAMPLE_SECONDS).full_text
        except ValueError:
            yield f"{_where(text, a)}terminals {a} and {b} can match the same text"
        else:
            yield f"{_where(text, a)}terminals {a} and {b} can both match {example!r}"


def _ignorable(text: str, regexes: dict[str, str], ignored: dict[str, str]) -> Iterator[str]:
    for skipped, regex in ignored.items():
        for name, other in regexes.items():
            if list(Comparator.from_regexes({name: other, "": rf"(?:{regex})(?:.|\n)*"}).check()):
                yield f"{_where(text, name)}terminal {name} can begin with text that {skipped} ignores"


def _where(text: str, name: str) -> str:
    line, column = place(text, name)
    return f"line {line}, column {column}: " if line else ""


@contextmanager
def _silence(logger: str) -> Iterator[None]:
    """Disable a logger; interegular logs every pattern that it cannot parse."""
    target = logging.getLogger(logger)
    before, target.disabled = target.disabled, True
    try:
        yield
    finally:
        target.disabled = before
