"""Random grammars: the texts that the engine accepts are those that lark parses, and masks lead to nothing else."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from dataclasses import dataclass

import lark
import pytest
from lark.exceptions import UnexpectedInput

from constrain.engine import CompiledGrammar, Vocabulary, allocate_bitmask
from constrain.engine.lark import NamedGrammar, compile_lark
from constrain.errors import LarkError, ResourceLimit

ALPHABET = "ab1"
TEXTS = ["".join(letters) for n in range(5) for letters in itertools.product(ALPHABET, repeat=n)]
TOKENS = [text.encode() for text in TEXTS if 1 <= len(text) <= 3] + [b"a", b""]
EOS = len(TOKENS) - 1
BYTES = [bytes([byte]) for byte in range(256)]  # so that there is a token for each, as models have
VOCABULARY = Vocabulary.from_tokens(TOKENS + BYTES, eos_ids=[EOS])

GRAMMARS: dict[str, NamedGrammar] = {
    "some": 'start: "1"~0..2',
    "list": 'start: item ("1" @list)?\nitem: "a"\n%ignore "b"',
    "word": re.compile("a|ab|ba"),
}
INSERTS = {  # lark has neither schemas nor other grammars, but terminals for these
    '%json {"enum": [1, 11]}': "/11|1/",
    "@some": "(/11|1/)?",
    "@list": "/b*ab*(1b*ab*)*/",
    "@word": "/ab|a|ba/",
}

LONGEST = 40
"""Longest text that is parsed with Lark, whose parse forests may take gigabytes for longer ones."""


@dataclass
class Writer:
    """Writes random grammars: nullable, ambiguous, recursive in every way, with overlapping and ignored terminals."""

    random: random.Random

    def grammar(self) -> str:
        rules = ["start", *(f"r{i}" for i in range(self.random.randint(0, 3)))]
        terminals = [f"T{i}" for i in range(self.random.randint(1, 3))]
        terminal = self.random.choice(terminals)
        symbols = [*rules, *terminals, f'"{self.random.choice(ALPHABET)}"', f"pair{{{terminal}}}", f"{terminal}~9..11"]
        symbols += [self.random.choice(list(INSERTS))] * self.random.randint(0, 1)
        lines = [f"{rule}: {self.alternatives(symbols)}" for rule in rules]
        lines += [f"{terminal}: {self.terminal()}" for terminal in terminals]
        lines += ["pair{x}: x x | pair{x} x"] * any("pair{" in line for line in lines)
        for _ in range(self.random.choice([0, 0, 1, 2])):
            lines.append("%ignore " + self.terminal())
        return "\n".join(lines)

    def alternatives(self, symbols: list[str]) -> str:
        parts = (
            self.expression(symbols, 2) if self.random.random() < 0.92 else "" for _ in range(self.random.randint(1, 3))
        )
        return "\n  | ".join(parts)

    def expression(self, symbols: list[str], depth: int) -> str:
        kind = self.random.random()
        if depth == 0 or kind < 0.4:
            return self.random.choice(symbols)
        parts = [self.expression(symbols, depth - 1) for _ in range(self.random.randint(2, 3))]
        if kind < 0.6:
            return " ".join(parts)
        if kind < 0.75:
            return f"({' | '.join(parts)})"
        if kind < 0.8:
            return f"[{parts[0]}]"
        return f"({parts[0]}){self.random.choice(['*', '+', '?', '~2', '~1..3', '~0..2'])}"

    def terminal(self) -> str:
        kind = self.random.random()
        first, second, third = (self.random.choice(ALPHABET) for _ in range(3))
        if kind < 0.3:
            return f'"{first}"'
        if kind < 0.4:
            return f'"{first}" | "{second}{third}"'
        return f"/{self.regex(2)}/"

    def regex(self, depth: int) -> str:
        kind = self.random.random()
        if depth == 0 or kind < 0.35:
            return self.random.choice(["a", "b", "1", "[ab]", "[b1]", "ab", "[^a]"])
        left, right = self.regex(depth - 1), self.regex(depth - 1)
        if kind < 0.55:
            return f"(?:{left}|{right})"
        if kind < 0.75:
            return left + right
        return f"(?:{left}){self.random.choice(['*', '+', '?', '*?', '+?', '??', '{1,2}', '{2}'])}"


class Oracle:
    """Lark itself."""

    def __init__(self, grammar: str) -> None:
        for insert, plain in INSERTS.items():
            grammar = grammar.replace(insert, plain)
        self.parser = lark.Lark(grammar, parser="earley", lexer="dynamic_complete", ambiguity="forest")

    def accepts(self, text: str) -> bool:
        try:
            self.parser.parse(text)
        except UnexpectedInput:
            return False
        except RuntimeError as error:
            assert "multiple start symbol items" in str(error)  # its parser found several ways to complete the text
        return True


def random_case(seed: int) -> tuple[str, Oracle] | None:
    """A grammar that lark takes."""
    grammar = Writer(random.Random(seed)).grammar()
    try:
        return grammar, Oracle(grammar)
    except lark.exceptions.LarkError:
        return None  # a terminal may be empty, or alternatives collide


def compiled(grammar: str) -> CompiledGrammar | None:
    """The grammar for the engine; None where it has no texts, or text that only an unsupported lexer could ignore."""
    try:
        return compile_lark(grammar, VOCABULARY, grammars=GRAMMARS)
    except LarkError as error:
        assert "matches no text" in str(error) or "ignored text before" in str(error)
        return None


def check_texts(grammar: str, engine: CompiledGrammar, oracle: Oracle) -> set[str]:
    members = {text for text in TEXTS if oracle.accepts(text)}
    for text in TEXTS:
        matcher = engine.matcher()
        viable = not text or matcher.accept_bytes(text.encode())
        assert (viable and matcher.is_accepting()) == (text in members), (grammar, text)
    return members


def check_masks(grammar: str, engine: CompiledGrammar, oracle: Oracle, members: set[str], seed: int) -> None:
    """Walks along allowed tokens. Every allowed token can be completed to a text that lark parses; every token that is
    not allowed begins no short text that it parses."""
    choice = random.Random(seed)
    matcher, text = engine.matcher(), ""
    bits = allocate_bitmask(1, VOCABULARY.size)
    while len(text) < 6:
        matcher.fill_bitmask(bits)
        allowed = {i for i in range(len(TOKENS)) if bits[0, i // 32] >> (i % 32) & 1}
        assert (EOS in allowed) == matcher.is_accepting(), (grammar, text)
        for token, piece in enumerate(TOKENS[:EOS]):
            longer = text + piece.decode()
            if token in allowed:
                ahead = matcher.clone()
                assert ahead.accept(token), (grammar, longer)
                whole = longer + ahead.completion().decode() if choice.random() < 0.2 else ""
                assert not whole or len(whole) > LONGEST or oracle.accepts(whole), (grammar, longer)
            else:
                assert not any(member.startswith(longer) for member in members), (grammar, longer)
        if not allowed - {EOS}:
            return
        token = choice.choice(sorted(allowed - {EOS}))
        matcher.accept(token)
        text += TOKENS[token].decode()


def check(seed: int) -> str:
    """Compares one random grammar; says what it was good for."""
    case = random_case(seed)
    if case is None:
        return "not a grammar for lark"
    grammar, oracle = case
    engine = compiled(grammar)
    if engine is None:
        return "without texts, or unsupported"
    members = check_texts(grammar, engine, oracle)
    try:
        check_masks(grammar, engine, oracle, members, seed)
    except ResourceLimit:
        return "beyond a limit"  # a token can be read in millions of ways
    return "compared"


@pytest.mark.seeds(4)
def test_random_grammars_against_lark(seed: int, tally: Counter[str]) -> None:
    outcomes = [check(30 * seed + i) for i in range(30)]
    tally["random grammars compared with lark"] += outcomes.count("compared")
    assert outcomes.count("compared") >= 10 and outcomes.count("beyond a limit") <= 3
