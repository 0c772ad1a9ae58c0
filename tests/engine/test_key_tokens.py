"""Tokens that hold keys, whole or in part, and what follows them: masks against every token tried by itself."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from constrain.engine import Matcher, Vocabulary, compile_json_schema

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


@pytest.mark.seeds(2)
@pytest.mark.parametrize("schema", SCHEMAS, ids=itertools.count())
def test_masks_tell_which_tokens_are_accepted(schema: Any, seed: int, allowed: Allowed, tally: Counter[str]) -> None:
    rng = random.Random(seed)
    vocabulary = vocabulary_of_keys(rng)
    grammar = compile_json_schema(schema, vocabulary)
    for _ in range(6):
        matcher = grammar.matcher()
        assert matcher.accept_bytes(b'{"')
        for _ in range(12):
            accepted = [token for token in range(vocabulary.size) if matcher.clone().accept(token)]
            assert allowed(matcher, vocabulary.size) == accepted
            tally["masks of keys compared with tokens"] += 1
            if accepted == [0]:
                break
            lengths = [len(vocabulary.token_bytes(token)) ** 3 for token in accepted]
            assert matcher.accept(rng.choices(accepted, lengths)[0])
