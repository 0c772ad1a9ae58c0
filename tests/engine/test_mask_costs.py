"""Masks of objects cost the same however many properties there are, and however many tokens hold quotation marks."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from constrain.demo import model_dir
from constrain.engine import Limits, Vocabulary, allocate_bitmask, compile_json_schema, compile_lark

WORDS = (
    "name type value item color width height count first last user group label title state code offset align".split()
)
SIZES = [10, 100, 1000, 10_000]
KINDS: dict[str, dict[str, Any]] = {
    "closed": {"additionalProperties": False},
    "open": {},
    "integers": {"additionalProperties": {"type": "integer"}},
    "patterns": {"patternProperties": {"^x-": {"type": "string"}}},
}


def quoted_tokens() -> Iterator[str]:
    """Tokens that close a string or open one, as vocabularies that were trained on code have thousands of."""
    ends = ['"', '":', '": ', '":"', '": "', '",', '", ', '","', '"}', '"}}', '":"",', '":""}', '":{', '":[', '":{}},']
    for word, end in itertools.product(["", " ", ".", "-", "x-", *WORDS], ends):
        yield word + end
    for start, word in itertools.product(['"', ' "', ',"', '{"', '":"', '": "', '","'], WORDS):
        yield start + word
        yield f'{start}{word}"'


@pytest.fixture(scope="module")
def code_vocabulary() -> Vocabulary:
    """Like the vocabulary of Llama 3: all numbers of up to three digits, and many tokens with quotation marks."""
    digits = [str(number).zfill(width) for width in (1, 2, 3) for number in range(10**width)]
    letters = [first + second for first, second in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=2)]
    words = [
        prefix + form + "s" * plural
        for word in WORDS
        for form in (word, word.title())
        for prefix in ("", " ", "_", ".")
        for plural in (0, 1)
    ]
    texts = dict.fromkeys([*digits, *letters, *words, *quoted_tokens(), "  ", "{}", "[]", " {", "},"])
    tokens = dict.fromkeys([bytes([byte]) for byte in range(256)] + [text.encode() for text in texts])
    return Vocabulary.from_tokens([*tokens, b""], eos_ids=[len(tokens)])


@pytest.fixture(params=["code", "demo"])
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    if request.param == "demo":
        return Vocabulary.from_pretrained(model_dir())
    found: Vocabulary = request.getfixturevalue("code_vocabulary")
    return found


def names(count: int) -> list[str]:
    every = ("".join(part.title() for part in parts) for parts in itertools.product(WORDS, repeat=4))
    return random.Random(1).sample(list(every), count)


def document(keys: list[str], kind: str) -> str:
    """Uses 30 of the keys, and others where they are allowed."""
    record: dict[str, int | str] = {}
    for index, key in enumerate(random.Random(2).sample(keys, min(30, len(keys)))):
        record[key] = index
        if kind != "closed" and index % 3 == 0:
            record[f"other{index}"] = index
        if kind == "patterns" and index % 3 == 1:
            record[f"x-{index}"] = "text"
    return json.dumps(record)


def costs(schema: Any, text: str, vocabulary: Vocabulary) -> tuple[list[int], list[int]]:
    """Trie nodes visited for the mask before every byte of a text: of those that belong to keys, and of all."""
    grammar = compile_json_schema(schema, vocabulary)
    matcher, bits = grammar.matcher(), allocate_bitmask(1, vocabulary.size)
    keys, every = [], []
    before, in_value = 0, False
    for byte in text:
        matcher.fill_bitmask(bits)
        visited = grammar.counters["nodes_visited"]
        every.append(visited - before)
        if not in_value:
            keys.append(visited - before)
        before = visited
        in_value = byte == ":" or (in_value and byte != ",")
        assert matcher.accept_bytes(byte.encode())
    return keys, every


@pytest.mark.parametrize("kind", KINDS)
def test_key_positions_cost_the_same_with_any_number_of_properties(kind: str, vocabulary: Vocabulary) -> None:
    means = {}
    for size in SIZES:
        keys = names(size)
        schema = {"type": "object", "properties": {key: {"type": "integer"} for key in keys}, **KINDS[kind]}
        at_keys, every = costs(schema, document(keys, kind), vocabulary)
        assert max(at_keys) <= 400, size
        means[size] = sum(every) / len(every)
    assert max(means[size] for size in SIZES[1:]) <= 2 * max(means[100], 10), means


def test_integers_after_the_first_cost_no_more_with_three_digit_tokens(code_vocabulary: Vocabulary) -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    _, every = costs(schema, json.dumps({f"key{index}": 1234 for index in range(20)}), code_vocabulary)
    assert max(every[len(every) // 2 :]) <= 200


@pytest.mark.parametrize(("kind", "value"), [("string", "text"), ("integer", 1234)])
def test_a_value_costs_little_in_another_grammar(kind: str, value: str | int, code_vocabulary: Vocabulary) -> None:
    def at_value(name: str) -> int:
        schema = {"type": "object", "properties": {name: {"type": kind}}, "additionalProperties": False}
        text = json.dumps({name: value})
        _, every = costs(schema, text, code_vocabulary)
        return max(every[text.index(":") + 1 : text.index(":") + 3])

    at_value("first")
    assert at_value("second") <= 100


def test_a_format_of_bounded_length_costs_little_in_another_grammar(code_vocabulary: Vocabulary) -> None:
    def nodes(length: int) -> int:
        schema = {"type": "string", "format": "email", "maxLength": length}
        return sum(costs(schema, '"count@name.type"', code_vocabulary)[1])

    first = nodes(1000)
    assert nodes(900) <= first / 4


@pytest.mark.parametrize("minimum", [0, 12])
def test_a_minimum_length_costs_strings_of_bounded_length_little(minimum: int, code_vocabulary: Vocabulary) -> None:
    schema = {"type": "string", "pattern": "[0-9a-f]", "minLength": minimum, "maxLength": 12}
    _, nodes = costs(schema, '"0123456789', code_vocabulary)
    assert max(nodes) < 1000


def test_patterns_that_tell_no_keys_apart_cost_nothing(code_vocabulary: Vocabulary) -> None:
    def rows(schema: Any) -> int:
        grammar = compile_json_schema(schema, code_vocabulary)
        matcher, bits = grammar.matcher(), allocate_bitmask(1, code_vocabulary.size)
        assert matcher.accept_bytes(b'{"')
        matcher.fill_bitmask(bits)
        return grammar.counters["rows_built"]

    assert rows({"type": "object", "patternProperties": {"^.{1,255}$": {}}}) == rows({"type": "object"})


def test_an_item_that_may_still_repeat_another_costs_little_more(code_vocabulary: Vocabulary) -> None:
    schema = {"type": "array", "uniqueItems": True, "items": {"type": "string", "pattern": "^[a-z]*$", "maxLength": 40}}

    def nodes(text: str) -> int:
        return sum(costs(schema, text, code_vocabulary)[1][-8:])

    first = "name" * 10
    assert nodes(f'["{first}", "{first[:12]}') <= 2 * nodes(f'["{first}", "typetypetype')


def test_a_document_takes_little_more_memory_with_more_properties(code_vocabulary: Vocabulary) -> None:
    def memory(size: int) -> int:
        """Bytes by which a grammar grows."""
        keys = names(size)
        schema = {"type": "object", "properties": {key: {"type": "integer"} for key in keys}, **KINDS["closed"]}
        grammar = compile_json_schema(schema, code_vocabulary)
        matcher, bits = grammar.matcher(), allocate_bitmask(1, code_vocabulary.size)
        assert matcher.accept_bytes(b'{"')
        before = grammar.nbytes
        for byte in document(keys, "closed")[2:]:
            matcher.fill_bitmask(bits)
            assert matcher.accept_bytes(byte.encode())
        return grammar.nbytes - before

    assert memory(10_000) <= 2 * memory(100)


def test_kinds_of_items_are_counted_without_a_plan_for_each_length(code_vocabulary: Vocabulary) -> None:
    kinds = [{"contains": {"type": "object", "required": [f"k{i}"]}, "minContains": 3} for i in range(6)]
    grammar = compile_json_schema({"type": "array", "allOf": kinds}, code_vocabulary)
    assert grammar.matcher().completion() == b"[%s]" % b",".join([b'{"k0":0,"k1":0,"k2":0,"k3":0,"k4":0,"k5":0}'] * 3)
    assert grammar.nbytes < 4 << 20


def test_characters_after_which_little_may_follow_are_left_out_of_a_region(code_vocabulary: Vocabulary) -> None:
    # Line separators are white space, but no characters of `.`: after one, only white space may follow.
    schema = {"type": "string", "pattern": r"^\S+\s+\S+(\s+(.+\S))?\s*$"}
    _, nodes = costs(schema, '"name type value', code_vocabulary)
    assert max(nodes[3:]) < 1000


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"pattern": "[0-9]", "minLength": 12, "maxLength": 12}, '"us'),
        ({"pattern": r"^(\S+\s+){0,11}\S+$"}, '"users users users users users users'),
    ],
)
def test_only_tokens_longer_than_a_region_are_walked(schema: dict[str, Any], text: str) -> None:
    # Thousands of tokens of the demo vocabulary are longer than eight characters, few longer than eleven.
    _, nodes = costs({"type": "string", **schema}, text, Vocabulary.from_pretrained(model_dir()))
    assert max(nodes) < 3000


@pytest.mark.parametrize("before", [b"", b"abc", b"abc "])
@pytest.mark.parametrize(
    "source",
    [
        'start: (WORD | ".")+\nWORD: /\\w+/\n%ignore /\\s+/',
        'start: WORD+\nWORD: /[a-z]+/\n%ignore " "',
        'start: word+\nword: "a".."z"\n%ignore /\\s+/',
    ],
)
def test_words_that_may_end_after_every_letter_take_little_work(source: str, before: bytes) -> None:
    """Each way to cut letters into words is a parse, and all of them lead to the same frames."""
    words = [bytes(word) for word in itertools.product(b"abcdefghijklmnopqrstuvwxyz", repeat=3)]
    spaces = [b" " * count for count in range(2, 40)]
    tokens = [bytes([byte]) for byte in range(256)] + words + [b" " + word for word in words] + spaces + [b""]
    vocabulary = Vocabulary.from_tokens(tokens, [len(tokens) - 1])
    matcher = compile_lark(source, vocabulary, limits=Limits(max_work=60_000)).matcher()
    assert not before or matcher.accept_bytes(before)
    bits = allocate_bitmask(1, vocabulary.size)
    matcher.fill_bitmask(bits)
    allowed = {token for token in range(256, vocabulary.size) if bits[0, token // 32] >> (token % 32) & 1}
    assert allowed >= {*range(256, 256 + 2 * len(words))}
    for token in random.Random(0).sample(range(vocabulary.size - 1), 200):
        assert matcher.clone().accept(token) == bool(bits[0, token // 32] >> (token % 32) & 1), tokens[token]
