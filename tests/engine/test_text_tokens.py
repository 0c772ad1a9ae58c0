"""Tokens that hold keys and texts, whole or in part: masks against every token tried by itself."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import CompiledGrammar, Matcher, Vocabulary, compile_json_schema

Allowed = Callable[[Matcher, int], list[int]]

SCHEMAS: list[Any] = [
    {"type": "object"},
    {"type": "object", "properties": {"a": {"type": "integer"}, "ab": {}}, "required": ["ab"]},
    {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3},
    {"type": "object", "additionalProperties": {"enum": [1, "a"]}, "minProperties": 2, "required": ["é"]},
    {"type": "object", "properties": {"é": {}, "aéb": {}}, "patternProperties": {"^[^é]*$": {}},
     "additionalProperties": False},
    {"type": "object", "propertyNames": {"anyOf": [{"pattern": "^[^é]*$"}, {"enum": ["éa"]}]}},
    {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "^[^é]*b$": {"type": "string"}}},
    {"type": "object", "patternProperties": {"^[^\"\\n]*$": {"type": "integer"}}},
    {"type": "object", "propertyNames": {"pattern": "^[a-z]*$"}, "additionalProperties": {"type": "object"}},
]  # fmt: skip
KEYS = ["", "a", "ab", "b", "é", "aé", "a\\n", '\\"', 'a\\"b', "\\\\", "c c"]
VALUES = ["1", '"a"', "{}", '{"a":1}']


def vocabulary_of_keys(rng: random.Random) -> Vocabulary:
    """All bytes, and pieces of objects cut at random."""
    tokens = {bytes([byte]) for byte in range(256)}
    while len(tokens) < 500:
        members = [f'"{rng.choice(KEYS)}":{rng.choice(["", " "])}{rng.choice(VALUES)}' for _ in range(3)]
        text = ("{" + rng.choice([",", ", "]).join(members) + "}").encode()
        begin = rng.randrange(len(text))
        tokens.add(text[begin : begin + rng.randint(2, 12)])
    return Vocabulary.from_tokens([b"", *sorted(tokens)], [0])


# Characters beyond ASCII that some places of a text refuse and others do not, and characters that few may follow.
PATTERNS = [
    "^[^:]+:[0-9a-f]+$", "^[^:]+:.+$", "^([^:]+:[a-f]+|[a-f]{9}|)$", "^.*é.*$", r"^[^é\n]+\.\w+$", r"\w", "^[^é]+=.+$",
    r"^(.{1,3}:)*[^\u2028]+$", r"^[^\u2028é]+(:[^é]*|=.*)$", r"^.[^é]*:[^\u2029]*$",
]  # fmt: skip
TEXTS = ["a", "é", "\u2028", "\u2029", "ab:", "f", ":", "c0", "=", "x=", ".", "\\n", "\\u00e9", "日本", "ß"]


def vocabulary_of_texts(rng: random.Random) -> Vocabulary:
    """All bytes, and pieces of strings cut at random, between the bytes of a character as well."""
    tokens = {bytes([byte]) for byte in range(256)}
    while len(tokens) < 500:
        text = ("".join(rng.choices(TEXTS, k=8)) + '", "').encode()
        begin = rng.randrange(len(text))
        tokens.add(text[begin : begin + rng.randint(2, 14)])
    return Vocabulary.from_tokens([b"", *sorted(tokens)], [0])


def compare_walks(
    rng: random.Random, grammar: CompiledGrammar, start: bytes, allowed: Allowed, tally: Counter[str], what: str
) -> None:
    vocabulary = grammar.vocabulary
    for _ in range(6):
        matcher = grammar.matcher()
        assert matcher.accept_bytes(start)
        for _ in range(12):
            accepted = [token for token in range(vocabulary.size) if matcher.clone().accept(token)]
            assert allowed(matcher, vocabulary.size) == accepted
            tally[f"masks of {what} compared with tokens"] += 1
            if accepted == [0]:
                break
            lengths = [len(vocabulary.token_bytes(token)) ** 3 for token in accepted]
            assert matcher.accept(rng.choices(accepted, lengths)[0])


@pytest.mark.seeds(2)
@pytest.mark.parametrize("schema", SCHEMAS, ids=itertools.count())
def test_keys(schema: Any, seed: int, allowed: Allowed, tally: Counter[str]) -> None:
    rng = random.Random(seed)
    compare_walks(rng, compile_json_schema(schema, vocabulary_of_keys(rng)), b'{"', allowed, tally, "keys")


@pytest.mark.seeds(1)
@pytest.mark.parametrize("length", [{}, {"maxLength": 12}, {"minLength": 3, "maxLength": 40}], ids=itertools.count())
@pytest.mark.parametrize("pattern", PATTERNS, ids=itertools.count())
def test_strings(pattern: str, length: dict[str, int], seed: int, allowed: Allowed, tally: Counter[str]) -> None:
    rng = random.Random(seed)
    schema = {"type": "string", "pattern": pattern, **length}
    compare_walks(rng, compile_json_schema(schema, vocabulary_of_texts(rng)), b'"', allowed, tally, "strings")
