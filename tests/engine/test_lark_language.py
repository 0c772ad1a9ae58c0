"""Texts of Lark grammars, by example; the oracle is lark itself wherever it can be asked."""

from __future__ import annotations

from collections.abc import Callable

import lark
import pytest
from lark.exceptions import UnexpectedInput

from constrain.engine import CompiledGrammar, Matcher, Vocabulary, compile_lark

JSON = r"""
?start: value
?value: object | array | ESCAPED_STRING -> string | SIGNED_NUMBER -> number | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: ESCAPED_STRING ":" value
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
"""

CALCULATOR = r"""
?start: sum | NAME "=" sum -> assign_var
?sum: product | sum "+" product -> add | sum "-" product -> sub
?product: atom | product "*" atom -> mul | product "/" atom -> div
?atom: NUMBER -> number | "-" atom -> neg | NAME -> var | "(" sum ")"
%import common.CNAME -> NAME
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
"""

CONFIG = r"""
start: _NL? section+
section: "[" NAME "]" _NL item*
item: NAME "=" VALUE? _NL
NAME: /\w/+
VALUE: /./+
%import common.NEWLINE -> _NL
%import common.WS_INLINE
%ignore WS_INLINE
"""

CODE = r"""
start: (statement ";")*
statement: NAME "=" expression | "if" "(" expression ")" "{" start "}"
expression: expression OP expression | NAME | /[0-9]+/ | ESCAPED_STRING
OP: "+" | "-" | "=="
%import common.CNAME -> NAME
%import common (ESCAPED_STRING, WS, CPP_COMMENT, C_COMMENT)
%ignore WS
%ignore CPP_COMMENT
%ignore C_COMMENT
"""

LINES = r"""
start: (_NEWLINE | statement)*
statement: NAME "=" NAME _NEWLINE
_NEWLINE: ( /\r?\n[\t ]*/ | COMMENT )+
COMMENT: /#[^\n]*/
NAME: /[a-z]+/
%ignore /[\t \f]+/
%ignore /\\[\t \f]*\r?\n/
%ignore COMMENT
"""

EXAMPLES = {
    JSON: [
        '{"a": [1, -2.5e3, {"b" : null}], "c\\"": "\\\\"} ',
        "\n[ ]",
        '{"a" 1}',
        "[1,]",
        '"\\"',
        "",
        "[true, false",
        "01",
    ],
    CALCULATOR: ["a = 1+2*(3 - x)", "1 + ", "((1))", "a=b=c", "-  -3.5e-2 * x/y ", "(1", "1 2", "\n1"],
    CONFIG: ["[a]\nx=1\ny =2 3 \n\n[b]\n", "[a]x\n", "[é]\nß= ü\n", "[a]\n x\n", "[ a ]\nx=\n", "[a]\r\n[b]\n"],
    CODE: [
        "a = b; // x",
        '/* y */ if (a == "q//r") { b=1; } ; // c\n',
        "// a = b;",
        "a // x = b;\n",
        "a // x\n = b;",
        "a /* ; */ = b;",
        "a /* ; * / = b;",
        "a=b;//",
        "a = b + - c;",
    ],
    LINES: ["a = b\n", "a = b # c\n", "# c\na=b # d\n\n", "a # x\n=b\n", "a \\\n = b\n", "# x", "a=b#\n# x\n", "a=b"],
}

SHORT = {
    "leftmost alternative": ('start: A "c"\nA: /a|ab/', ["abc", "ac"]),
    "alternatives of strings are sorted": ('start: A "c"\nA: "a" | "ab"', ["abc", "ac"]),
    "lazy": ("start: A+\nA: /[ab]+?/", ["a", "abba", ""]),
    "lazy with an end": ('start: A "b"?\nA: /a.*?b/', ["ab", "axxb", "abb", "axb!b"]),
    "interior lookahead": ("start: A+\nA: /a(?=b)[a-z]/", ["ab", "aa", "abab"]),
    "interior lookbehind": ("start: A\nA: /[ab]+(?<=b)c/", ["abc", "bac", "ababc"]),
    "a word that is no keyword": (
        'start: NAME "=" NAME (";" NAME "=" NAME)*\nNAME: /(?!if)[a-z]+/\n%ignore " "',
        ["a=b", "if=b", "i=b", "a = ib; iff=x", "a=i;f=c", "a=fif"],
    ),
    "a word that is no whole keyword": (
        'start: "let" NAME "=" (NAME | "if" "(" NAME ")")\nNAME: /(?!(?:let|if)\\b)[a-z]+/\n%ignore /[ \\n]+/',
        ["let x = y", "let if = y", "let iff = letx", "let x = if(y)", "letx=if (iff)", "let x = if", "let i=if(if)"],
    ),
    "keywords end at a word boundary": (
        'start: (IF "(" N ")")+\nIF: /if\\b/\nN: /\\d+\\b/\n%ignore " "',
        ["if(1)", "if (12) if(3)", "if if", "if(1)if(2)"],
    ),
    "the end of the text": ('start: A* B\nA: "a"\nB: /b+$|c\\Z/', ["abb", "ac", "bc", "aab\n", "abbb", "acb"]),
    "a lookahead over several characters": (
        'start: A ("x" | "yb")\nA: /a+(?!b|zb)/',
        ["ax", "aayb", "aaxb", "ayb", "axbx"],
    ),
    "flags": ('start: "ab"i /c.d/is', ["aBC\nD", "ABcxd", "abcd"]),
    "verbose": ("start: /a [ ] b  # c\n/x", ["a b", "ab"]),
    "range": ('start: ("a".."c" | "α".."ω")+', ["abcω", "d", "é"]),
    "unicode": ('start: /[é-ü]+/ /\\w/ "🙂"', ["éüß🙂", "ée🙂", "é🙂", "aé🙂"]),
    "nullable start": ('start: a*\na: "x"?\n%ignore " "', ["", " ", " x x ", "y"]),
    "ignored text is taken greedily": ('start: "a" "xb"\n%ignore /x+/', ["axb", "axxb", "xaxb", "axbx"]),
    "one ignored text may follow another": ('start: "a" "b"\n%ignore /x/\n%ignore /y+/', ["axyyxb", "ayb", "xaby"]),
    "a terminal may begin like ignored text": (
        'start: "a" /[^b]+/ "b"\n%ignore /[ x]+/',
        ["a  b", "a yb", "axyxb", "a b"],
    ),
    "hidden left recursion": ('start: e? start "a" | "b"\ne: "c"?', ["baa", "cba", "ccbaa", "ab"]),
    "mutual left recursion": ('start: x "a" | "b"\nx: y "c" | start\ny: x | "d"', ["dca", "ba", "bcaa", "da", "bca"]),
    "cycle": ('start: start | x\nx: start | "a" | "b" x', ["a", "bba", "b"]),
    "ambiguity": ('start: start start | "a"', ["a", "aaaaa", ""]),
    "templates": (
        'start: sep{NAME, ","} | sep{sep{N, "-"}, ";"}\nsep{x, s}: x (s x)*\nNAME: /[a-z]/\nN: /[0-9]/',
        ["a,b", "1-2;3", "1,2", "a"],
    ),
    "a template as an argument": ('start: apply{twice}\napply{f}: f{"a"}\ntwice{x}: x x', ["aa", "a"]),
    "extend and override": (
        '%import common.DIGIT\n%override DIGIT: "1"\n%extend DIGIT: "x"\nstart: DIGIT+',
        ["1x1", "2"],
    ),
    "imported rules keep to themselves": ("%import common (INT, WS)\nstart: INT+\n%ignore WS", ["1 2", "12", "a"]),
    "unproductive rules": ('start: "a" | x\nx: "b" x', ["a", "b"]),
    "repetition": ('start: ("a" | "b" "c")~2..3', ["a", "aa", "bcabc", "aaaa"]),
    "long repetition": ('start: "a"~9..60 "b"', ["a" * n + "b" for n in (8, 9, 10, 59, 60, 61)]),
    "long repetition of nullable": ('start: ("a"?)~9..12 "b"', ["a" * n + "b" for n in (0, 1, 11, 12, 13)]),
    "long repetition inside recursion": (
        'start: ("(" start ")")~9..11 | "x"',
        ["(x)" * n for n in (8, 9, 11, 12)] + ["x"],
    ),
    "left recursion into a long repetition": (
        'start: start~9 "b" | "a"',
        ["a" * 9 + "b", "a" * 9 + "b" + "a" * 8 + "b", "a"],
    ),
}


def parses(parser: lark.Lark, text: str) -> bool:
    try:
        parser.parse(text)
    except UnexpectedInput:
        return False
    except RuntimeError as error:
        assert "multiple start symbol items" in str(error)  # its parser found several ways to complete the text
    return True


def accepts(grammar: CompiledGrammar, text: str) -> bool:
    """Byte by byte, so that every prefix of a text is looked at."""
    matcher = grammar.matcher()
    return all(matcher.accept_bytes(bytes([byte])) for byte in text.encode()) and matcher.is_accepting()


def compare(grammar: str, texts: list[str], vocabulary: Vocabulary) -> list[bool]:
    parser = lark.Lark(grammar, parser="earley", lexer="dynamic_complete", ambiguity="forest")
    engine = compile_lark(grammar, vocabulary)
    expected = [parses(parser, text) for text in texts]
    assert [accepts(engine, text) for text in texts] == expected
    return expected


@pytest.mark.parametrize("grammar", EXAMPLES, ids=["json", "calculator", "config", "code", "lines"])
def test_example_grammars(grammar: str, byte_vocab: Vocabulary) -> None:
    assert len(set(compare(grammar, EXAMPLES[grammar], byte_vocab))) == 2


@pytest.mark.parametrize("name", SHORT)
def test_rule_of_the_language(name: str, byte_vocab: Vocabulary) -> None:
    grammar, texts = SHORT[name]
    compare(grammar, texts, byte_vocab)


def test_preferred_match_decides(byte_vocab: Vocabulary) -> None:
    engine = compile_lark('start: A "c"\nA: /a|ab/', byte_vocab)
    assert not accepts(engine, "abc")
    assert accepts(engine, "ac")


def test_start_rule_can_be_named(byte_vocab: Vocabulary) -> None:
    engine = compile_lark('start: "a"\nother: "b"', byte_vocab, start="other")
    assert accepts(engine, "b") and not accepts(engine, "a")


def test_left_recursion_needs_no_stack(byte_vocab: Vocabulary) -> None:
    engine = compile_lark('start: start "," x | x\nx: x "." "a" | "a"', byte_vocab)
    assert accepts(engine, ",".join(["a.a"] * 10_000))


def test_right_recursion_needs_no_stack(byte_vocab: Vocabulary) -> None:
    engine = compile_lark('start: "a" start | "b"', byte_vocab)
    assert accepts(engine, "a" * 20_000 + "b")


def test_nesting_of_thousands(byte_vocab: Vocabulary) -> None:
    engine = compile_lark('start: "(" start ")" | "x"', byte_vocab)
    assert accepts(engine, "(" * 9_000 + "x" + ")" * 9_000)
    assert not accepts(engine, "(" * 9_000 + "x" + ")" * 8_999)


def test_levels_of_precedence(byte_vocab: Vocabulary) -> None:
    levels = "\n".join(f'r{i}: r{i + 1} ("{chr(97 + i)}" r{i + 1})*' for i in range(20))
    engine = compile_lark(f'start: r0\n{levels}\nr20: "(" r0 ")" | "1"', byte_vocab)
    assert accepts(engine, "1a1t(1b(1c1)t1)")
    assert not accepts(engine, "1a1t(1b(1c1)t1")
    assert not accepts(engine, "1u1")


def test_left_recursion_through_thousands_of_rules(byte_vocab: Vocabulary) -> None:
    chain = "\n".join(f'r{i}: r{i + 1} "a" | "x"' for i in range(2_000))
    engine = compile_lark(f'start: r0\n{chain}\nr2000: r0 "b" | "c"', byte_vocab)
    assert accepts(engine, "c" + "a" * 2_000 + "b" + "a" * 2_000)
    assert not accepts(engine, "c" + "a" * 1_999)


def test_repetition_is_counted_not_written_out(byte_vocab: Vocabulary) -> None:
    engine = compile_lark('start: ("a" | "b" "c")~0..10000', byte_vocab)
    assert accepts(engine, "a" * 10_000) and accepts(engine, "")
    assert not accepts(engine, "a" * 10_001)
    assert engine.core.states < 100


def test_nested_repetition_is_counted(byte_vocab: Vocabulary) -> None:
    engine = compile_lark('start: (("a"~900..1000 "b")~900..1000 "c")~900..1000', byte_vocab)
    assert not accepts(engine, ("a" * 899 + "b"))
    matcher = engine.matcher()
    assert matcher.accept_bytes(("a" * 1000 + "b" + "a" * 900 + "b").encode() * 450)
    assert not matcher.accept_bytes(b"ac")
    assert matcher.accept_bytes(b"c" + b"a" * 900)


def test_completion_is_a_text(byte_vocab: Vocabulary) -> None:
    engine = compile_lark(JSON, byte_vocab)
    matcher = engine.matcher()
    assert matcher.accept_bytes(b'{"a": [1, {"b')
    assert accepts(engine, '{"a": [1, {"b' + matcher.completion().decode())


def test_mask_where_a_terminal_ends_among_characters_that_it_allows(
    allowed: Callable[[Matcher, int], list[int]],
) -> None:
    vocabulary = Vocabulary.from_tokens([b"", b"a", b"bb", b"ba", *(bytes([i]) for i in range(256))], [0])
    matcher = compile_lark('start: T+\nT: /a[^a]/ | "b"', vocabulary).matcher()
    matcher.accept(1)
    assert {2, 3} <= set(allowed(matcher, vocabulary.size))
