"""The engine's builder of context-free grammars: it may be fed from a damaged file, and takes nothing on trust."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from constrain import _core
from constrain.engine import Limits, Vocabulary
from constrain.engine.compiled_grammar import core_limits
from constrain.errors import GrammarError


@pytest.fixture
def builder() -> _core.CfgBuilder:
    """Symbol 0 is a terminal, symbol 1 a rule without a definition, expression 0 the terminal."""
    builder = _core.CfgBuilder(core_limits(Limits()), lambda uri: None)
    assert builder.symbol(builder.terminal("a", "A")) == 0
    assert builder.nonterminal() == 1
    return builder


@pytest.mark.parametrize(
    "misuse, message",
    [
        (lambda b: b.symbol(2), "no symbol 2"),
        (lambda b: b.sequence([0, 1]), "no expression 1"),
        (lambda b: b.choice([7]), "no expression 7"),
        (lambda b: b.repeat(1, 0, 1), "no expression 1"),
        (lambda b: b.repeat(0, 2, 1), "at least 2 and at most 1"),
        (lambda b: b.define(2, 0), "no symbol 2"),
        (lambda b: b.define(0, 0), "a terminal has no other definition"),
        (lambda b: b.define(1, 3), "no expression 3"),
        (lambda b: b.terminal("a", "A", 1), "no grammar 1"),
        (lambda b: b.ignore("a", "A", 2), "no grammar 2"),
        (lambda b: b.json_schema(True, "any", False, True, "J", 1), "no grammar 1"),
        (lambda b: b.regex("a", "", "A", 1), "no grammar 1"),
        (lambda b: b.start(1, 0), "no grammar 1"),
        (lambda b: b.start(b.scope("x"), 9), "no symbol 9"),
        (lambda b: b.start(0, 1), "when the grammar is built"),
        (lambda b: b.text(1, 0, "@x"), "no grammar 1"),
        (lambda b: b.text(b.scope("x"), 7, "@x"), "no grammar 7"),
        (lambda b: b.text(0, 0, "@x"), "not stand within"),
    ],
)
def test_unknown_symbols_are_refused(
    builder: _core.CfgBuilder, misuse: Callable[[_core.CfgBuilder], Any], message: str
) -> None:
    with pytest.raises(GrammarError, match=message):
        misuse(builder)


@pytest.mark.parametrize("start, message", [(0, "a terminal"), (1, "matches no text"), (9, "no symbol 9")])
def test_the_start_is_a_rule_with_words(
    builder: _core.CfgBuilder, byte_vocab: Vocabulary, start: int, message: str
) -> None:
    with pytest.raises(GrammarError, match=message):
        builder.compile(start, byte_vocab.core)


def test_a_grammar_is_built_once(builder: _core.CfgBuilder, byte_vocab: Vocabulary) -> None:
    builder.define(1, 0)
    builder.compile(1, byte_vocab.core)
    with pytest.raises(GrammarError, match="only once"):
        builder.compile(1, byte_vocab.core)
