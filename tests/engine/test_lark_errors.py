"""Grammars that are refused, with the place and the reason."""

from __future__ import annotations

import pytest

from constrain.engine import Vocabulary, compile_lark, lark_warnings
from constrain.errors import LarkError, ResourceLimit

REFUSED = [
    # what lark itself refuses
    ("start: b", 1, 8, "used but not defined"),
    ('start: "a" "b\n', 1, 12, "Unexpected input"),
    ('start: "a" | (', 1, 15, "Expecting a value"),
    ('start: "a"\nstart: "b"', 1, 1, "defined more than once"),
    ('start: "x" ""', 1, 12, "Empty terminals are not allowed"),
    ("start: A\nA: B\nB: A", 2, 1, "Recursion in terminal"),
    ('start: A\nA: a\na: "x"', 3, 1, "Rules aren't allowed inside terminals"),
    ('start: A\nA: "a" -> b', 2, 1, "Aliasing not allowed in terminals"),
    ("start: A\nA: ", 2, 1, "empty"),
    ('start: A B\nA: "a"~2..1\nB: "b"', 2, 5, "Bad Range"),
    ('start: "b"\n  | "a".."bc"', 1, 1, "malformed range"),
    ('start: a{b}\na{x,y}: x y\nb:"b"', 2, 1, "Wrong number of template arguments"),
    ('%override start: "a"', 1, 11, "Cannot override a nonexisting rule"),
    ('%ignore WS\nstart: "a"', 1, 9, "marked to ignore but were not defined"),
    ("start: A\n%import nope.A", 2, 9, "cannot import nope"),
    ("start: A\n%import common.NOPE -> A", 2, 24, "used but not defined"),
    # what other notations have, and Lark has not
    ('start: "a" <tool>', 1, 12, "no special token '<tool>'"),
    ('start: "a" @ other', 1, 12, "which is @ and its name"),
    # JSON Schemas
    ('start: "a"\n  | %json', 2, 10, "no JSON Schema after %json"),
    ('start: %json {"type":\n "string",}', 2, 11, "no JSON Schema after %json"),
    ("start: %json {} %json NaN", 1, 23, "JSON has no NaN"),
    ("start: %json" + '{"not":' * 200_000, 1, 13, "nested too deeply"),
    ('start: "a"\n  | %json {"type": "strin"} "b"', 2, 5, "# (type): there is no type 'strin'"),
    ("start: %json {\n} | %json false", 2, 5, "no value satisfies this schema"),
    ('start: A\nA: "a" | %json {}', 2, 10, "belongs in rules"),
    ('start: "a"\n%ignore %json {}', 2, 9, "belongs in rules"),
    ("start: %json {\n\n} & a", 3, 3, "Unexpected input"),
    ('start: "a" %json {"type": "string"}\n%ignore /x("y"z)?/', 1, 12, "ignored text before terminal '%json'"),
    ('start: A %json {}\nA: /a(?!")/', 2, 1, "which may begin with '\"'"),
    # %regex
    ('start: "a"\n  | %regex', 2, 11, "no JSON object after %regex"),
    ('start: %regex {"pattern": "a"}', 1, 8, "one of the keys substring_chunks"),
    ('start: %regex {"substring_words": "a", "substring_chars": "a"}', 1, 8, "one of the keys"),
    ('start: "a"\n  | %regex {"substring_words": ["a"]}', 2, 5, "must be a text"),
    ('start: %regex {"substring_chunks": "a"}', 1, 8, "must be a list of texts"),
    ('start: %regex {"substring_chunks": ["a", 1]}', 1, 8, "must be a list of texts"),
    (r'start: %regex {"substring_chars": "a\ud800"}', 1, 8, "half of a surrogate pair"),
    ('start: A\nA: "a" %regex {"substring_chars": "b"}', 2, 8, "%regex belongs in rules"),
    ('start: "a"\n%ignore %regex {"substring_chars": "b"}', 2, 9, "%regex belongs in rules"),
    # regular expressions
    ("start: A\nA: /(/", 2, 1, "unterminated subpattern"),
    ('start: "b" /[b-a]/', 1, 12, "bad character range"),
    ("start: A\nA: /a/l", 2, 1, "bad regular expression"),
    ("start: A\nA: /a*/", 2, 1, "can match the empty text"),
    ('start: "a"\n%ignore / */', 2, 9, "can match the empty text"),
    ("start: A\nA: /(a)\\1/", 2, 1, "regular expression (a)\\1"),
    ('start: A "b"\nA: /a(?=b)/', 2, 1, "matches only before some text"),
    ("start: A+\nA: /(?!if)[a-z]+/", 2, 1, "may begin with 'f'"),
    ('start: A "é"?\nA: /x(?!é)/', 2, 1, "may begin with what it looks for"),
    ("start: A B?\nA: /a$|b/\nB: /b/", 2, 1, "may begin with 'b'"),
    ('start: "a"\n%ignore /x(?!y)/', 2, 9, "lookahead that can see text after"),
    ('start: "a"\n%ignore /x$/', 2, 9, "text after the terminal"),
    ("start: A\nA: /(?<=x)a/", 2, 1, "lookbehind that can see text before"),
    ("start: A\nA: /\\bif/", 2, 1, "word boundary"),
    ("start: A\nA: /^if/m", 2, 1, "text before the terminal"),
    ("start: A\nA: /\\Aif/", 2, 1, "text around the terminal"),
    # what lark takes, but nothing can be generated from
    ("start: A\n%declare A", 2, 10, "declared but has no pattern"),
    ("start: x\n%declare x", 2, 10, "declared but never defined"),
    ("start: A~3..1\nA: /a/", 1, 9, "bad repetition"),
    ('start: "a" start', 1, 1, "matches no text"),
    ('start: a{"x"}\na{x}: a{a{x}} | x', 2, 1, "without end"),
    ('start: "y" T\nT: "y"\n%ignore /x(yyz)?/', 1, 8, "ignored text before terminal"),
]


@pytest.mark.parametrize(("grammar", "line", "column", "reason"), REFUSED)
def test_refused_with_place_and_reason(
    grammar: str, line: int, column: int, reason: str, byte_vocab: Vocabulary
) -> None:
    with pytest.raises(LarkError) as caught:
        compile_lark(grammar, byte_vocab)
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == (line, column)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("grammar", ["", 'other: "a"', 'start{x}: x\nother: start{"a"}'])
def test_start_rule_is_missing(grammar: str, byte_vocab: Vocabulary) -> None:
    with pytest.raises(LarkError, match="no rule 'start' to start with"):
        compile_lark(grammar, byte_vocab)


def test_nesting_beyond_the_interpreter(byte_vocab: Vocabulary) -> None:
    with pytest.raises(LarkError, match="nested too deeply"):
        compile_lark("start: " + "(" * 5_000 + '"a"' + ")" * 5_000, byte_vocab)


def test_rules_that_begin_with_too_many_others(byte_vocab: Vocabulary) -> None:
    chain = "\n".join(f'r{i}: r{i + 1} "x" "y" "z" r{i + 1} "a" "b" "c" r{i + 1} "d"' for i in range(600))
    with pytest.raises(ResourceLimit, match="max_nesting=512"):
        compile_lark(f'start: r0\n{chain}\nr600: "e"', byte_vocab)


def test_body_that_explodes(byte_vocab: Vocabulary) -> None:
    with pytest.raises(ResourceLimit, match="max_states"):
        compile_lark("start: (a | b)* a (a | b) (a | b) " + "(a | b) " * 16 + '\na: "a"~2..3\nb: "b"', byte_vocab)


def test_warnings_name_terminals_that_overlap() -> None:
    warnings = lark_warnings('start: ("if" NAME | INT)+\nNAME: /[a-z]+/\nINT: /[0-9]+/')
    assert warnings == ["line 1, column 9: terminals \"if\" and NAME can both match 'if'"]


def test_warnings_name_terminals_that_begin_like_ignored_text() -> None:
    warnings = lark_warnings('start: "<" TEXT ">"\nTEXT: /[^<>]+/\n%import common.WS\n%ignore WS')
    assert warnings == ["line 2, column 1: terminal TEXT can begin with text that WS ignores"]


def test_no_warnings_for_terminals_that_exclude_each_other() -> None:
    assert lark_warnings('start: (NAME INT)+\nNAME: /[a-z]+/\nINT: /[0-9]+/\n%ignore " "') == []
