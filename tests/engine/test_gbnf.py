"""Grammars in GBNF, and in the EBNF of vLLM and SGLang."""

from __future__ import annotations

import pytest

from constrain.engine import compile_lark, lark_of_gbnf
from constrain.engine.lark import as_lark
from constrain.errors import LarkError
from constrain.testing import byte_vocabulary


def accepts(grammar: str, text: str) -> bool:
    return compile_lark(lark_of_gbnf(grammar), byte_vocabulary()).accepts(text)


@pytest.mark.parametrize(
    "grammar",
    [
        'start: name " ::= " name\nname: /[a-z]+/',
        'start: "a"\n// rules of GBNF have ::=',
        "%import common.INT\nstart: INT",
    ],
)
def test_grammars_of_lark_that_mention_the_sign_of_gbnf(grammar: str) -> None:
    assert as_lark(grammar) is grammar


@pytest.mark.parametrize(
    "grammar", ['root ::= "a"', '# x\n  root::= "a"', 'a-1 ::= "b"\nroot\n  ::= "a"', "root ::= [a"]
)
def test_grammars_in_gbnf_are_recognised(grammar: str) -> None:
    if grammar.endswith("[a"):
        with pytest.raises(LarkError, match="not GBNF here"):
            as_lark(grammar)
    else:
        assert as_lark(grammar) == lark_of_gbnf(grammar)


ARITHMETIC = r"""
# an expression
root  ::= term (op term)*
op    ::= " "? [-+*/] " "?
term  ::= number | "(" root ")"
number ::= [0-9]{1,3} ("." [0-9]+)?
"""


@pytest.mark.parametrize("text", ["1", "12 + 3", "(1-2)*3.25", "((7))"])
def test_texts_of_a_grammar(text: str) -> None:
    assert accepts(ARITHMETIC, text)


@pytest.mark.parametrize("text", ["", "1234", "1 +", "(1", "a", "1  + 2"])
def test_other_texts(text: str) -> None:
    assert not accepts(ARITHMETIC, text)


@pytest.mark.parametrize(
    ("grammar", "accepted", "refused"),
    [
        (r'root ::= "a\n\"\\\x41é"', 'a\n"\\Aé', "a"),
        (r"root ::= [^a-z\]]", "A", "]"),
        (r"root ::= [a\-z]{2}", "-z", "bb"),
        ('root ::= "a"{2,}', "aaaa", "a"),
        ('root ::= "a"{2}', "aa", "aaa"),
        ('root ::= . "x"?', "\n", ""),
        ('root ::= "" "a"', "a", ""),
        ('root ::= a-b Ab\na-b ::= "1"\nAb ::= "2"', "12", "21"),
        ('root ::= "a" |\n  "b"', "b", "ab"),
    ],
)
def test_notation(grammar: str, accepted: str, refused: str) -> None:
    assert accepts(grammar, accepted) and not accepts(grammar, refused)


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ("start ::= [a]", "'root'"),
        ("root ::= [a", "line 1, column 10: not GBNF here"),
        ('root ::= "a"\n  | missing', "line 2, column 5: there is no rule 'missing'; the grammar has root"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1: there is a rule 'root' already"),
        ('root ::= "a"{2,1}', "line 1, column 14: the bounds 2 and 1 are in the wrong order"),
        ("root ::= [z-a]", r"line 1, column 10: '\[z-a\]' cannot be used"),
        ("root ::= []", "line 1, column 10"),
        (r'root ::= "a" "\uD800"', r"line 1, column 14: .*uD800 is no character"),
        (r'root ::= "\U00110000"', r"line 1, column 10: .*U00110000 is no character"),
    ],
)
def test_mistakes(grammar: str, reason: str) -> None:
    with pytest.raises(LarkError, match=reason):
        accepts(grammar, "")


@pytest.mark.parametrize("depth", [200, 1000, 5000])
def test_deep_grammars_are_mistakes(depth: int) -> None:
    with pytest.raises(LarkError, match="nested too deeply"):
        lark_of_gbnf(f"root ::= {'(' * depth}[a-z]{')' * depth}")
