"""Parts of texts inside Lark grammars: ``%regex {...}``."""

from __future__ import annotations

import json
import random
from itertools import product

import pytest

from constrain.engine import CompiledGrammar, Vocabulary, compile_lark, lark_warnings
from constrain.errors import ResourceLimit


def compiled(spec: object, vocabulary: Vocabulary) -> CompiledGrammar:
    return compile_lark(f"start: %regex {json.dumps(spec)}", vocabulary)


@pytest.mark.parametrize(
    ("spec", "accepted", "refused"),
    [
        ({"substring_chunks": ["abc", "de", "fg"]}, ["", "abc", "de", "abcde", "defg"], ["ab", "cde", "abcfg", "fgde"]),
        ({"substring_chunks": ["", "a", "", "b"]}, ["", "a", "ab", "b"], ["ba"]),
        ({"substring_chunks": []}, [""], ["a"]),
        ({"substring_words": "foo bar. b\u00e4z"}, ["", "foo", "bar.", ". b\u00e4z", " "], ["fo", "oo bar", "b\u00e4"]),
        ({"substring_chars": "ab \u20acc"}, ["", "b \u20ac", "\u20acc"], ["ac", "\u20ac\u20ac"]),
    ],
)
def test_parts_of_texts(spec: object, accepted: list[str], refused: list[str], byte_vocab: Vocabulary) -> None:
    grammar = compiled(spec, byte_vocab)
    assert [text for text in accepted if not grammar.accepts(text)] == []
    assert [text for text in refused if grammar.accepts(text)] == []
    assert not grammar.accepts("\u20ac".encode()[:2])


@pytest.mark.seeds(20)
def test_random_chunks(seed: int, byte_vocab: Vocabulary) -> None:
    rng = random.Random(seed)
    chunks = ["".join(rng.choices("ab\u00e4", k=rng.randint(0, 3))) for _ in range(rng.randint(0, 5))]
    expected = {"".join(chunks[i:j]) for i in range(len(chunks) + 1) for j in range(i, len(chunks) + 1)}
    grammar = compiled({"substring_chunks": chunks}, byte_vocab)
    assert all(map(grammar.accepts, expected)), chunks
    for length in range(5):
        for letters in product("ab\u00e4", repeat=length):
            assert grammar.accepts("".join(letters)) == ("".join(letters) in expected), (chunks, letters)


def test_several_in_rules_terminals_and_other_grammars(byte_vocab: Vocabulary) -> None:
    text = r"""
start: "said" QUOTE ("and" QUOTE)* @more
QUOTE: %regex {"substring_words": "to be or not"}
ANSWER: %json {"enum": [1, "a"]}
%ignore " "
"""
    named = {"more": 'start: list{NAME}\nlist{x}: "(" x "," x ")"\nNAME: %regex {"substring_chars": "xyz"}'}
    grammar = compile_lark(text.replace("QUOTE (", "ANSWER QUOTE ("), byte_vocab, grammars=named)
    assert grammar.accepts("said 1 to be and or not (xy,yz)")
    assert grammar.accepts('said "a" and(,)')
    assert not grammar.accepts("said 1 be to (x,y)")
    assert not grammar.accepts("said 1 be (xz,y)")
    assert lark_warnings(text, named) == []


def test_long_texts(byte_vocab: Vocabulary) -> None:
    words = [f"w{number} " for number in range(20_000)]
    grammar = compiled({"substring_chunks": words}, byte_vocab)
    assert grammar.accepts("".join(words[5_000:5_100]))
    assert not grammar.accepts("w5 w7 ")
    with pytest.raises(ResourceLimit, match="source_bytes"):
        compiled({"substring_chunks": ["a" * 600_000] * 2}, byte_vocab)
