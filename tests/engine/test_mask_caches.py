"""Masks are the same whatever was computed before, in whatever order and by however many threads."""

from __future__ import annotations

import itertools
import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from constrain.demo import model_dir
from constrain.engine import (
    CompiledGrammar,
    Vocabulary,
    allocate_bitmask,
    compile_json_schema,
    compile_lark,
    compile_regex,
)
from constrain.errors import LarkError

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"items": {"enum": ["a", "ab"]}}},
    "required": ["name"],
}
CASES: list[tuple[Any, list[str]]] = [
    (PERSON, ['{"age": 3, "name": "Ada", "x": [1, {"y": null}], "name2": "n"}', '{"tags": ["a", "ab"], "name": "B"}']),
    (
        {**PERSON, "additionalProperties": False},
        ['{"name": "Ada", "tags": ["ab"], "age": -12}', '{"age": 1, "name": ""}'],
    ),
    (
        {"patternProperties": {"^[a-z]+$": {"type": "string"}, "^.{1,9}$": {"minLength": 2}}, "maxProperties": 3},
        ['{"abc": "text", "B1": "more", "z": "öäü"}'],
    ),
    ({"additionalProperties": {"type": "number"}}, ['{"one": 1, "two": 2.5e3, "one more": -0.5}']),
    (
        {
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "properties": {"a": {"type": "string"}},
            "type": "object",
        },
        ['{"a": "x", "c": 1}', '{"c": [], "b": {"a": 1}}'],
    ),
    (
        {"items": {"type": "string", "pattern": r"^(\w+ ){0,4}\w+$", "maxLength": 20}},
        ['["one two three", "a b c d e"]'],
    ),
    ({"type": ["string", "array"], "items": {"$ref": "#"}}, ['"one, two"', '["one, two", ["one", ["two"]]]']),
    ({"items": {"type": "string", "pattern": "^.{2,12}$"}, "maxItems": 3}, ['["é… dots", "abc", "xy"]']),
    (
        {"items": {"type": "string", "pattern": "^(?:\\S+\\s+){0,3}\\S+$", "minLength": 2, "maxLength": 60}},
        ['["one two three", "a \\" é\\tc", "' + "ab" * 29 + ' x"]'],
    ),
    (
        {"items": {"type": "string", "pattern": "a{12}$|^[b-z]+$", "maxLength": 24}},
        ['["bcdefghijklmnopqrstuvwxy", "xyzaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaa"]'],
    ),
    (
        {
            "items": {"properties": {"kind": {"enum": ["a", "b"]}, "text": {}}, "required": ["kind"]},
            "uniqueItems": True,
        },
        [
            '[{"kind": "a"}, {"text": "same", "kind": "b"}, {"kind": "a", "text": "other"}]',
            '[{"kind": "a", "text": [1, 2]}, {"kind": "a", "text": [1, 3]}, {"kind": "b", "x": {"y": "z"}}]',
        ],
    ),
    (
        {"type": "array", "uniqueItems": True, "items": {"type": "string", "format": "email"}},
        ['["john@example.com", "john@example.org", "jo@example.com"]'],
    ),
    (
        {
            "type": "array",
            "prefixItems": [
                {"type": "string", "format": kind, "maxLength": length}
                for kind, length in [("email", 16), ("email", 20), ("email", 190), ("email", 300), ("uuid", 40)]
            ],
        },
        [
            '["john@example.com", "john@example.com", "john@example.org", "jo@example.com", '
            '"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"]'
        ],
    ),
    (
        {"properties": {"a\nb": {"type": "null"}, 'q"r': {"enum": [1]}, "abc": {}}},
        ['{"a\\nb": null, "q\\"r": 1, "ab": 2}'],
    ),
    ({"items": {"type": "string", "minLength": 3, "maxLength": 8}}, ['["abcdefgh", "öäüß", "\\\\\\\\\\\\"]']),
]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_pretrained(model_dir())


def mask(grammar: CompiledGrammar, text: bytes) -> npt.NDArray[np.int32]:
    matcher = grammar.matcher()
    assert matcher.accept_bytes(text)
    bits = allocate_bitmask(1, grammar.vocabulary.size)
    matcher.fill_bitmask(bits)
    return bits


def prefixes(document: str, count: int) -> list[bytes]:
    text = document.encode()
    places = random.Random(len(text)).sample(range(len(text)), min(count, len(text)))
    return [text[:place] for place in places]


@pytest.mark.parametrize(("schema", "documents"), CASES, ids=range(len(CASES)))
def test_a_mask_does_not_depend_on_those_before(schema: Any, documents: list[str], vocabulary: Vocabulary) -> None:
    warm = compile_json_schema(schema, vocabulary)
    for document in documents * 2:
        for end in range(len(document.encode())):
            mask(warm, document.encode()[:end])
    for document in documents:
        json.loads(document)
        for text in prefixes(document, 12):
            cold = mask(compile_json_schema(schema, Vocabulary.from_pretrained(model_dir())), text)
            assert np.array_equal(mask(warm, text), cold), text


def check_mask(grammar: CompiledGrammar, text: bytes) -> None:
    """Compares a mask with the tokens that are accepted."""
    bits = np.unpackbits(mask(grammar, text).view(np.uint8), bitorder="little")
    matcher = grammar.matcher()
    assert matcher.accept_bytes(text)
    for token in range(grammar.vocabulary.size):
        accepted = matcher.accept(token)
        if accepted:
            matcher.rollback(1)
        assert accepted == bits[token], (text, grammar.vocabulary.token_bytes(token))


@pytest.mark.parametrize(("schema", "documents"), CASES, ids=range(len(CASES)))
def test_a_mask_holds_just_the_tokens_that_are_accepted(
    schema: Any, documents: list[str], vocabulary: Vocabulary
) -> None:
    grammar = compile_json_schema(schema, vocabulary)
    for document in documents:
        for text in prefixes(document, 6):
            check_mask(grammar, text)


@pytest.mark.parametrize(
    ("token", "before", "text"),
    [
        (b'"""', b'{"": 0, "', b'{"": 0, "a'),
        (b'"a"', b'{"b": 0, "a', b'{"b": 0, "b'),
        (b'"a"', b'{"a": 0, "a', b'{"a": 0, "b'),
    ],
)
def test_which_key_is_under_way_matters_where_a_token_holds_it_whole(token: bytes, before: bytes, text: bytes) -> None:
    """The end of the key is refused in one of the two texts, as that of a key that was used."""
    vocabulary = Vocabulary.from_tokens([*(bytes([byte]) for byte in range(256)), token, b""], [257])
    grammar = compile_json_schema({"type": "object", "propertyNames": {"pattern": "^[ab]*$"}}, vocabulary)
    for written in (before, text):
        check_mask(grammar, written)


def random_pattern(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.35:
        return rng.choice(["[^!]", "[^q!]", "[a-z]", "[a-pr-z]", "[a-z0-9]", "a", "q", "ab"])
    left, right = random_pattern(rng, depth - 1), random_pattern(rng, depth - 1)
    if kind < 0.55:
        return f"(?:{left}|{right})"
    return left + right if kind < 0.8 else f"(?:{left}){rng.choice(['*', '+', '?', '{2,4}'])}"


@pytest.fixture(scope="module")
def ends_of_words() -> Vocabulary:
    """Tokens that go on after a word."""
    words = ["".join(letters) for size in range(4) for letters in itertools.product("aqb", repeat=size)]
    tokens = dict.fromkeys(word + end for word in words for end in ("", "!", "?", "!a", "!!", "!q"))
    tokens.pop("")
    return Vocabulary.from_tokens(
        [*map(str.encode, tokens), *(bytes([b]) for b in range(256)), b""], [len(tokens) + 256]
    )


@pytest.mark.parametrize("pattern", ["a([^q!]|q[^!])[^!]*", *(random_pattern(random.Random(n), 3) for n in range(40))])
def test_a_mask_tells_where_words_over_many_characters_may_end(pattern: str, ends_of_words: Vocabulary) -> None:
    try:
        grammar = compile_lark(f'start: (word "!")+ "?" | word\nword: TEXT\nTEXT: /{pattern}/', ends_of_words)
    except LarkError as error:
        assert "empty" in str(error)
        return
    matcher, text = grammar.matcher(), b""
    for byte in b"aqb!qa":
        check_mask(grammar, text)
        if not matcher.accept_bytes(bytes([byte])):
            break
        text += bytes([byte])


def test_threads_share_a_grammar_and_get_the_masks_of_one(vocabulary: Vocabulary) -> None:
    places = [(index, text) for index, (_, documents) in enumerate(CASES) for text in prefixes(documents[0], 10)]
    alone = [compile_json_schema(schema, vocabulary) for schema, _ in CASES]
    expected = [mask(alone[index], text) for index, text in places]
    shared = [compile_json_schema(schema, vocabulary) for schema, _ in CASES]

    def worker(seed: int) -> bool:
        order = list(range(len(places)))
        random.Random(seed).shuffle(order)
        return all(np.array_equal(mask(shared[places[i][0]], places[i][1]), expected[i]) for i in order)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(worker, range(8)))


def test_long_counted_text_has_a_mask_at_every_step(vocabulary: Vocabulary) -> None:
    grammar = compile_regex(r'[^"\\]{30,60}', vocabulary)
    matcher = grammar.matcher()
    for length in range(60):
        bits = np.unpackbits(mask(grammar, b"x" * length).view(np.uint8), bitorder="little")
        for token in range(vocabulary.size):
            text = vocabulary.token_bytes(token)
            if text and text.isascii():
                fits = length + len(text) <= 60 and not {'"', "\\"} & set(text.decode())
                assert bits[token] == fits, (length, text)
        assert matcher.accept_bytes(b"x")


def test_equal_masks_have_one_number(vocabulary: Vocabulary) -> None:
    grammars = [compile_json_schema(PERSON, vocabulary) for _ in range(2)]
    seen: dict[bytes, int] = {}
    matchers = []
    for grammar in grammars:
        for text in prefixes(CASES[0][1][0], 40):
            matcher = grammar.matcher()
            assert matcher.accept_bytes(text)
            number = matcher.mask_id()
            assert seen.setdefault(mask(grammar, text).tobytes(), number) == number
            matchers.append(matcher)
    assert len(set(seen.values())) == len(seen)
