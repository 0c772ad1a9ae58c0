"""Grammars in GBNF, and in the EBNF of vLLM and SGLang."""

from __future__ import annotations

import pytest

from constrain.engine import compile_lark, lark_of_gbnf
from constrain.errors import LarkError
from constrain.testing import byte_vocabulary


def accepts(grammar: str, text: str) -> bool:
    return compile_lark(lark_of_gbnf(grammar), byte_vocabulary()).accepts(text)


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
    [("start ::= [a]", "'root'"), ("root ::= [a", "not GBNF here"), ("root ::= missing", "missing")],
)
def test_mistakes(grammar: str, reason: str) -> None:
    with pytest.raises(LarkError, match=reason):
        accepts(grammar, "")
