"""Grammars of the texts of JSON strings: those of a grammar, with the escapes that JSON requires and no others."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from constrain.engine import GrammarCache, InJsonString, Vocabulary, compile_lark, compile_regex
from constrain.errors import LarkError

SQL = r"""
start: "SELECT" _column ("," _column)* ("\n" comment)?
_column: NAME | STRING | /\\[a-z"]/i
comment: "--" /.+/ | %regex {"substring_chars": "\"a\\\tb"}
NAME: /[a-z]\w*/
STRING: /"(?:[^"\\]|\\.)*"/ | /'[^']+'/
%ignore /[ \t]/
"""
PATTERNS = [
    r'[^a"]+', r".*", r"(?s).*", r'"\\?"', r"(?!\\)[\s\S]{1,3}", r"(?i)[a-z\n]+\\N", r"^(?P<a>[\x00-\x1f]|\\n)+$",
    r"(?i:n\n)?[\W]*", r"\A(?:\\|n)*?\Z|^(?:x|^n)$", r"[\\-a]{2,}", r"(?:a(?=\n)|\n(?=\")|\"(?!\"))*n?",
    r"[^\n](?a:\w)?\S+", r'[^"]+(?<!\\)"(?<=")', r".+(?<!é)(?<= )n",
]  # fmt: skip
ALPHABET = 'anN "\\\n\r\t\x00\x1f\x7fé\U0001f600'


def text_of(rng: random.Random) -> str:
    return "".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 5)))


def quoted(grammar: str | re.Pattern[str], vocabulary: Vocabulary) -> Any:
    return compile_lark('start: "\\"" @x "\\""', vocabulary, grammars={"x": InJsonString(grammar)})


@pytest.mark.parametrize("pattern", PATTERNS)
def test_texts_of_patterns(pattern: str, byte_vocab: Vocabulary) -> None:
    plain, rng = compile_regex(pattern, byte_vocab), random.Random(pattern)
    grammar = quoted(re.compile(pattern), byte_vocab)
    for text in ("", "n", *(text_of(rng) for _ in range(300))):
        assert grammar.accepts(json.dumps(text, ensure_ascii=False)) == plain.accepts(text), text
        written = f'"{text_of(rng)}"'
        if grammar.accepts(written):
            content = json.loads(written)
            assert plain.accepts(content) and json.dumps(content, ensure_ascii=False) == written


def test_texts_with_quoted_texts(byte_vocab: Vocabulary) -> None:
    text = '%import common.ESCAPED_STRING\nstart: ESCAPED_STRING ("," ESCAPED_STRING)*'
    plain, grammar = compile_lark(text, byte_vocab), quoted(text, byte_vocab)
    rng, pieces = random.Random(1), ['"', "\\", ",", "a", "\t", "n"]
    for _ in range(2000):
        content = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 9)))
        content = f'"{content}"' if rng.random() < 0.8 else content
        assert grammar.accepts(json.dumps(content)) == plain.accepts(content), content


def test_texts_of_a_grammar(byte_vocab: Vocabulary) -> None:
    plain, grammar = compile_lark(SQL, byte_vocab), quoted(SQL, byte_vocab)
    rng, pieces = (
        random.Random(1),
        ["SELECT", "a1", '"x\\"y"', "'\t'", ",", "\n", "--", '"a\\', "\tb", "\\N", " ", "\\"],
    )
    found = 0
    for _ in range(3000):
        text = "SELECT" + "".join(rng.choice(pieces) for _ in range(rng.randint(0, 5)))
        found += plain.accepts(text)
        assert grammar.accepts(json.dumps(text, ensure_ascii=False)) == plain.accepts(text), text
    assert found > 50
    assert not grammar.accepts("\"SELECT a1, 'x\ny'\"")


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('start: "a"\n | %json {}', "line 2, column 4: %json cannot be a part of the text of a JSON string"),
        ('start: "a" <|x|>', "line 1, column 12: <|x|> cannot be a part of the text of a JSON string"),
        ('start: "a" @y', "@y cannot be a part of the text of a JSON string"),
        ("start: A\nA: /a(?<=a)b/", "line 2, column 1: terminal 'A' cannot be used: lookbehind for more"),
        ("start: A\nA: /\\n(?<=\\n)b/", "lookbehind for more than one character, or for one that is escaped"),
        ("start: A\nA: /ab(?<!ab)c/", "lookbehind for more than one character"),
        (re.compile(r"a\bb"), r"\\b or \\B within a text cannot be enforced"),
        (re.compile(r"(^a)+"), r"within a text cannot be enforced"),
        (re.compile("(?:a|" * 400 + "b" + ")c" * 400), "nested too deeply"),
        (re.compile(r"(a)\1"), "a backreference cannot be enforced"),
    ],
)
def test_what_cannot_be_enforced_is_refused(grammar: Any, reason: str, byte_vocab: Vocabulary) -> None:
    with pytest.raises(LarkError, match=reason.replace("|", r"\|")):
        compile_lark("start: @x", byte_vocab, grammars={"x": InJsonString(grammar), "y": True})


def test_cached_in_a_file(tmp_path: Path, byte_vocab: Vocabulary) -> None:
    for grammar in ('start: "\\n"', re.compile("\n"), InJsonString('start: "\\n"'), InJsonString(re.compile("\n"))):
        for _ in range(2):  # the second one is read from the file
            cache = GrammarCache(directory=tmp_path)
            compiled = cache.compile(compile_lark, "start: @x", byte_vocab, grammars={"x": grammar})
            assert compiled.accepts("\\n") == isinstance(grammar, InJsonString) != compiled.accepts("\n")
            assert cache.compile(compile_lark, "start: @x", byte_vocab, grammars={"x": grammar}) is compiled
    assert len(list(tmp_path.iterdir())) == 4
