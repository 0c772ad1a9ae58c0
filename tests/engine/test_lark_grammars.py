"""Lark grammars that refer to others by name."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import lark
import pytest
from lark.exceptions import UnexpectedInput

from constrain.engine import CompiledGrammar, GrammarCache, JsonLayout, Limits, Vocabulary, compile_lark, lark_warnings
from constrain.engine.lark.compose import Composition
from constrain.engine.lark.lower import SpecialTokens
from constrain.errors import LarkError

CALLS = """
start: name "(" @args ")" (";" @call)?
name: NAME
NAME: /[a-z]+/
%ignore " "
"""
ARGUMENTS = """
start: [item ("," item)*]
item: NAME "=" (@value | @call)
NAME: /[A-Z]+/
%ignore "\\n"
"""
GRAMMARS: dict[str, Any] = {
    "call": CALLS,
    "args": ARGUMENTS,
    "value": {"enum": [12, "x", None]},
    "name": re.compile("f|fg", re.IGNORECASE),
}


def assert_same_texts(grammar: CompiledGrammar, by_hand: str, alphabet: str, length: int) -> None:
    """The texts are those that lark parses with a grammar in one piece."""
    parser = lark.Lark(by_hand, parser="earley", lexer="dynamic_complete")
    members = 0
    for letters in itertools.chain.from_iterable(itertools.product(alphabet, repeat=n) for n in range(length + 1)):
        text = "".join(letters)
        try:
            parser.parse(text)
            expected = True
        except UnexpectedInput:
            expected = False
        assert grammar.accepts(text) == expected, text
        members += expected
    assert members >= 5


def test_names_and_ignored_text_are_a_grammars_own(byte_vocab: Vocabulary) -> None:
    inner = 'start: item ("," @list)?\nitem: A\nA: "b"\n%ignore "_"'
    outer = 'start: item @list "." item?\nitem: A\nA: "a"\n%ignore " "'
    by_hand = """
        start: _s item _s list _s "." _s (item _s)?
        item: "a"
        list: _u "b" _u ("," _u list _u)?
        _s: " "*
        _u: "_"*
    """
    assert_same_texts(compile_lark(outer, byte_vocab, grammars={"list": inner}), by_hand, "ab,. _", 5)


def test_grammars_begin_with_one_another(byte_vocab: Vocabulary) -> None:
    grammars: dict[str, Any] = {"a": 'start: @b "x" | "y"', "b": 'start: @a? "z" | @b "w"'}
    by_hand = 'start: a\na: b "x" | "y"\nb: a? "z" | b "w"'
    assert_same_texts(compile_lark("start: @a", byte_vocab, grammars=grammars), by_hand, "wxyz", 5)


def test_ignored_text_where_grammars_begin_with_one_another(byte_vocab: Vocabulary) -> None:
    grammars: dict[str, Any] = {"a": 'start: @b "x" | "y"\n%ignore "_"', "b": 'start: @a? "z" | @b "w"\n%ignore "."'}
    by_hand = """
        start: a
        a: _u b _u "x" _u | _u "y" _u
        b: _d (a _d)? "z" _d | _d b _d "w" _d
        _u: "_"*
        _d: "."*
    """
    assert_same_texts(compile_lark("start: @a", byte_vocab, grammars=grammars), by_hand, "wxyz_.", 4)


def test_empty_texts(byte_vocab: Vocabulary) -> None:
    grammars: dict[str, Any] = {
        "blank": 'start:\n%ignore "_"',
        "none": "start: ",
        "maybe": re.compile("(ab)?"),
        "all": "start: @none @maybe",
    }
    grammar = compile_lark('start: @none @blank "-" @all\n%ignore " "', byte_vocab, grammars=grammars)
    by_hand = 'start: _s ("_"+ _s)? "-" _s ("ab" _s)?\n_s: " "*'
    assert_same_texts(grammar, by_hand, "ab-_ ", 5)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("f()", True),
        ('do( \nA =12\n,B="x")', False),  # white space is ignored by the outer grammar only
        ('do( A=12,\nB="x" )', True),
        ("do(A=go(\n)\n)", True),
        ("do(A=go ( B=null ) ; f(),C=g() ) ; f()", True),
        ("do(A=1)", False),
        ("Do()", False),
        ("do()FG", True),
        ("do() fg ", True),
        ("do() fgf", False),
    ],
)
def test_grammars_of_all_kinds(text: str, accepted: bool, byte_vocab: Vocabulary) -> None:
    grammar = compile_lark('start: @call @name?\n%ignore " "', byte_vocab, grammars=GRAMMARS)
    assert grammar.accepts(text) == accepted


def test_terminals_look_no_further_than_their_grammar(byte_vocab: Vocabulary) -> None:
    words = {"word": "start: WORD\nWORD: /(?!if)[a-z]+/"}
    assert compile_lark("start: @word", byte_vocab, grammars=words).accepts("i")
    grammar = compile_lark('start: @word "f"', byte_vocab, grammars=words)
    assert grammar.accepts("if") and not grammar.accepts("iff")


def test_flags_of_patterns(byte_vocab: Vocabulary) -> None:
    pattern = re.compile("(?a) \\w .  # one and one", re.VERBOSE | re.DOTALL | re.IGNORECASE)
    grammar = compile_lark("start: @pair", byte_vocab, grammars={"pair": pattern})
    assert grammar.accepts("a\n") and not grammar.accepts("é.")


def test_completion_forced_text_and_explanation(byte_vocab: Vocabulary) -> None:
    grammar = compile_lark('start: "<" @call ">"', byte_vocab, grammars=GRAMMARS)
    matcher = grammar.matcher()
    matcher.accept_bytes(b"<f(A=")
    assert matcher.completion() in (b"12)>", b'"x")>')
    matcher.accept_bytes(b'"')
    assert matcher.forced_bytes() == b'x"' and not matcher.accept_bytes(b"y")
    assert "column 5" in str(grammar.explain("<f(A:"))


def test_reports_name_the_grammar(byte_vocab: Vocabulary) -> None:
    grammars: dict[str, Any] = {"n": {"maximum": 1}, "m": 'start: %json {"maximum": 3, "type": "integer"}'}
    report = compile_lark("start: @n @m", byte_vocab, grammars=grammars).report
    assert {entry.document for entry in report.enforced} == {"@n", "%json at line 1, column 8 of @m"}


def test_many_references_to_one_grammar_cost_one(byte_vocab: Vocabulary) -> None:
    grammars: dict[str, Any] = {"all": True, "some": 'start: @all "." @all', "unused": re.compile("a")}
    tokens = SpecialTokens(byte_vocab, {})
    composition = Composition('start: @all @some | "a" @some | @all~3', grammars, tokens, JsonLayout(), Limits())
    composition.write("start")
    steps = Counter(name for name, *_ in composition.program.steps)
    assert (steps["scope"], steps["json_schema"], steps["regex"]) == (3, 1, 1)


REFUSED: list[tuple[str, dict[str, Any], str | None, int | None, int | None, str]] = [
    ('start: "a"\n  | "b" @x "c"', {"y": "start: /a/"}, None, 2, 9, "there is no grammar 'x'"),
    ("start: @x", {"x": 'start:\n   @y "b"'}, "x", 2, 4, "there is no grammar 'y'"),
    ("start: A // @x\n  | @x\nA: /@x/", {"x": 'start: "b" @x'}, None, 2, 5, "grammar 'x' matches no text"),
    ("start: @x", {"x": '\nstart: "x" @y', "y": 'start: @x "y"'}, "x", 2, 12, "grammar 'y' matches no text"),
    ('start: "a" @x | "b"', {"x": re.compile("(?!)")}, None, 1, 12, "grammar 'x' matches no text"),
    ("start: @x", {"x": 'start: "a"\n  | b'}, "x", 2, 5, "used but not defined"),
    ("start: @x", {"x": 'begin: "a"'}, "x", None, None, "there is no rule 'start'"),
    ("start: @x", {"x": 'start: A "b"\n\nA: /a(?!b)/'}, "x", 3, 1, "which may begin with 'b'"),
    ("start: @x", {"x": 'start: @y "a"\n%ignore /x("y"z)?/', "y": 'start: /"y/'}, "x", 1, 8, "ignored text before"),
    ('start: "-" @x "="', {"x": {"type": "strin"}}, None, 1, 12, "there is no type 'strin'"),
    ('start: "-" @x "="', {"x": re.compile(r"(a)\1")}, None, 1, 12, "backreferences"),
    ("start: @x", {"x": re.compile("a", re.ASCII)}, None, 1, 8, "(?a)"),
    ("start: @x", {"x": re.compile(b"a")}, None, 1, 8, "bytes"),
    ("start: @x", {"x": 5}, None, 1, 8, "@x must be a Lark grammar as a str, a JSON Schema"),
    ('start: "a"', {"x": "start: ("}, "x", 1, 9, "Unclosed parenthesis"),
    ('start: "a"', {"x": 'start: @x "b"'}, "x", 1, 8, "grammar 'x' matches no text"),
    ('start: "a"', {"x": {"type": []}}, None, None, None, "type"),
    ('start: "a"', {"x y": True}, None, None, None, "cannot name a grammar"),
    ("start: A\nA: @x", {"x": True}, None, 2, 4, "belongs in rules"),
    ('start: "a"\n%ignore @x', {"x": True}, None, 2, 9, "belongs in rules"),
    ('start: @x @x "b\n', {"x": True}, None, 1, 14, "Unexpected input"),  # places are those of the text as it is
]


@pytest.mark.parametrize(("text", "grammars", "name", "line", "column", "reason"), REFUSED)
def test_refused_with_the_place(
    text: str,
    grammars: dict[str, Any],
    name: str | None,
    line: int | None,
    column: int | None,
    reason: str,
    byte_vocab: Vocabulary,
) -> None:
    with pytest.raises(LarkError) as caught:
        compile_lark(text, byte_vocab, grammars=grammars)
    assert reason in caught.value.reason
    assert (caught.value.grammar, caught.value.line, caught.value.column) == (name, line, column)


def test_message_names_the_grammar() -> None:
    assert str(LarkError("why", 3, 4, "money")) == "grammar 'money', line 3, column 4: why"


def test_warnings_of_all_grammars() -> None:
    overlap = "start: A | B\nA: /[a-z]+/\nB: /[x-z]/"
    inside, whole = lark_warnings(overlap + "\n  | @x", {"x": "\n" + overlap, "y": True}), lark_warnings(overlap)
    assert inside == [*whole, "grammar 'x', " + whole[0].replace("line 2", "line 3")] and len(whole) == 1
    with pytest.raises(LarkError, match="there is no grammar 'x'"):
        lark_warnings("start: @x")


def test_cache_key_has_the_grammars(byte_vocab: Vocabulary) -> None:
    cache = GrammarCache()
    choice = {"enum": ["a"]}
    grammars: dict[str, Any] = {"x": choice, "y": re.compile("b")}
    first = cache.compile(compile_lark, "start: @x @y", byte_vocab, grammars=grammars)
    assert cache.compile(compile_lark, "start: @x @y", byte_vocab, grammars={**grammars}) is first
    choice["enum"].append("b")
    second = cache.compile(compile_lark, "start: @x @y", byte_vocab, grammars=grammars)
    assert second.accepts('"b"b') and not first.accepts('"b"b')
    grammars["y"] = re.compile("b", re.IGNORECASE)
    assert cache.compile(compile_lark, "start: @x @y", byte_vocab, grammars=grammars).accepts('"a"B')


def test_cached_in_files(tmp_path: Path, byte_vocab: Vocabulary) -> None:
    for expected in (1, 1, 2):
        grammars = {**GRAMMARS, "name": re.compile("f|fg")} if expected == 2 else GRAMMARS
        grammar = GrammarCache(directory=tmp_path).compile(
            compile_lark, "start: @call @name", byte_vocab, grammars=grammars
        )
        assert grammar.accepts('go(A="x")fg') and grammar.accepts("go()F") == (expected == 1)
        assert len(list(tmp_path.iterdir())) == expected
