"""Masks within a budget under a large vocabulary, whose tokens are judged together where they go on alike."""

from __future__ import annotations

import random
from typing import Any

import pytest
from budgets import needed_after, tokens_of

from constrain.engine import Limits, Matcher, Vocabulary, compile_json_schema, compile_lark

FREE: list[Any] = [
    {"type": "string"},
    {"type": "string", "minLength": 30},
    {"type": "string", "maxLength": 40},
    {"type": "object", "properties": {"abc": {"type": "string", "minLength": 9}}, "required": ["abc"]},
    {"type": "object", "properties": {"abc": {"const": 1}, "zzz": {"const": 2}}, "minProperties": 3},
    {"type": "object", "additionalProperties": {"enum": [10, 200]}, "minProperties": 2},
    {"type": "object", "dependentRequired": {"aaa": ["bbbbbbbbbbbb"]}, "additionalProperties": {"type": "null"}},
    {
        "type": "object",
        "oneOf": [
            {"properties": {"kind": {"const": "one"}}, "required": ["kind", "argument"]},
            {"properties": {"kind": {"const": "two"}, "text": {"type": "string"}}, "required": ["kind"]},
        ],
    },
    {"anyOf": [{"type": "string", "pattern": "^[a-z]*$"}, {"type": "string", "pattern": "^[a-m]{0,3}!{40}$"}]},
    {"type": "array", "items": {"type": "string"}, "minItems": 3},
    {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    {"type": "array", "items": {"required": ["abc"], "additionalProperties": {"type": "string"}}, "uniqueItems": True},
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"abc": {"type": "string"}, "b": {"type": "string", "format": "email"}},
            "required": ["abc"],
            "additionalProperties": False,
        },
        "uniqueItems": True,
    },
]


def narrowed(matcher: Matcher, vocabulary: Vocabulary, budget: int, rng: random.Random) -> list[int]:
    """Return the tokens within a budget; some of them are checked, and some of those that it excludes."""
    within, free = set(tokens_of(matcher, vocabulary, budget)), set(tokens_of(matcher, vocabulary))
    assert within
    assert within <= free
    for token in rng.sample(sorted(within), min(25, len(within))):
        assert needed_after(matcher, token) < budget
    # Masks of small budgets may refuse tokens that would still fit.
    if budget > 2 * matcher.min_tokens() + 40:
        for token in rng.sample(sorted(free - within), min(25, len(free - within))):
            assert needed_after(matcher, token) >= budget
    return sorted(within)


@pytest.mark.parametrize("schema", FREE, ids=lambda schema: str(schema)[:40])
def test_masks_of_large_vocabularies_respect_budgets(schema: Any, wide_vocab: Vocabulary) -> None:
    grammar = compile_json_schema(schema, wide_vocab, whitespace="compact")
    minimum = grammar.matcher().min_tokens()
    for extra in (0, 1, 2, 4, 9, 19, 40, 80):
        matcher, rng, budget = grammar.matcher(), random.Random(extra), minimum + extra
        while budget:
            tokens = narrowed(matcher, wide_vocab, budget, rng)
            # Bytes that end something are few, but they are what leads on.
            ends = [token for token in tokens if token < 256 or token >= 256 + 26**3]
            token = rng.choice(ends if ends and rng.random() < 0.5 else tokens)
            assert matcher.accept(token)
            budget = 0 if token in wide_vocab.eos_token_ids else budget - 1
        assert matcher.is_finished()


@pytest.mark.parametrize(
    ("source", "before"),
    [
        ('start: part ("," part)* "."\npart: TEXT\nTEXT: /[^,.]+/', b""),
        ('start: part ("," part)* "."\npart: TEXT\nTEXT: /[^,.]+/', b"abc,"),
        (r'start: /[\s\S]+/ "</end>"', b""),
        ('start: "<a>" (TEXT | start)* "</a>"\nTEXT: /[^<]+/', b"<a>"),
        ('start: "<a>" (TEXT | start)* "</a>"\nTEXT: /[^<]+/', b"<a>x<a>y"),
        ('start: WORD (";" WORD)*\nWORD: /[a-z]+/', b""),
        ('start: WORD (";" WORD)*\nWORD: /[a-z]+/', b"abc"),
        ("start: WORD+\nWORD: /\\w+/", b"abc"),
    ],
)
def test_free_text_of_called_rules_goes_on_near_the_end(source: str, before: bytes, wide_vocab: Vocabulary) -> None:
    matcher = compile_lark(source, wide_vocab).matcher()
    assert not before or matcher.accept_bytes(before)
    tokens = random.Random(0).sample(tokens_of(matcher, wide_vocab), 400)
    needs = {token: needed_after(matcher, token) for token in tokens}
    for budget in range(matcher.min_tokens(), matcher.min_tokens() + 12):
        within = set(tokens_of(matcher, wide_vocab, budget))
        assert [token for token in tokens if (token in within) != (needs[token] < budget)] == []


@pytest.mark.parametrize("schema", FREE, ids=lambda schema: str(schema)[:40])
def test_masks_within_wildcard_regions_are_those_of_a_fresh_grammar(schema: Any, wide_vocab: Vocabulary) -> None:
    """Results for another key, or for another budget, are reused only where they are equal."""
    grammar = compile_json_schema(schema, wide_vocab, whitespace="compact")
    for seed, budget in enumerate((30, 60, 100)):
        used, rng = grammar.matcher(), random.Random(seed)
        budget = max(budget, used.min_tokens())
        taken: list[int] = []
        while len(taken) < 12 and not used.is_finished():
            fresh = compile_json_schema(schema, wide_vocab, whitespace="compact").matcher()
            assert all(map(fresh.accept, taken))
            for more in (rng.randrange(40), 0):
                tokens = tokens_of(used, wide_vocab, budget - len(taken) + more)
            assert tokens == tokens_of(fresh, wide_vocab, budget - len(taken))
            taken.append(rng.choice(tokens))
            assert used.accept(taken[-1])


def test_limited_masks_do_not_depend_on_earlier_ones(wide_vocab: Vocabulary) -> None:
    """Where a mask takes more work than allowed, what is cached saves time, but lets no more tokens through."""
    objects = [
        {
            "type": "object",
            "required": ["kind", f"a{i}"],
            "properties": {"kind": {"enum": [i]}, f"a{i}": {"type": "string"}},
            "minProperties": 2 + i % 7,
            "additionalProperties": {"type": "array", "minItems": i % 5, "items": {"type": "number"}},
        }
        for i in range(250)
    ]
    masks = []
    for earlier in ([], [20, 2, 9, 4, 7]):
        matcher = compile_json_schema({"anyOf": objects}, wide_vocab, whitespace="compact").matcher()
        assert matcher.accept_bytes(b'{"')
        for more in earlier:
            assert tokens_of(matcher, wide_vocab, matcher.min_tokens() + more)
        masks.append(tokens_of(matcher, wide_vocab, matcher.min_tokens() + 6))
    assert masks[0] == masks[1]


@pytest.mark.parametrize("budget", [80, 150])
def test_texts_of_items_that_must_differ_take_little_work(budget: int, wide_vocab: Vocabulary) -> None:
    """Tokens that stay in a string, or in a format, are judged together, also while the item may repeat another one."""
    grammar = compile_json_schema(FREE[-1], wide_vocab, whitespace="compact", limits=Limits(max_work=1000))
    matcher = grammar.matcher()
    for byte in b'[{"abc":"one","b":"joe@x.de"},{"abc":"two","b":"joe@x.':
        assert tokens_of(matcher, wide_vocab, budget)
        assert matcher.accept_bytes(bytes([byte]))


NAMED = {"type": "object", "required": ["abcd", "abef"], "additionalProperties": {"type": "integer"}}
MANY = {"anyOf": [NAMED, {"type": "object", "required": ["ac"]}, {"type": "array"}]}
#: Each of many optional members has all the required ones still before it.
OPTIONAL = {
    "type": "object",
    "required": [letter * 40 for letter in "abcdef"],
    "properties": {letter * length: {"type": "integer"} for letter in "abcdefxyz" for length in (2, 3, 5, 9, 40)},
    "additionalProperties": False,
}


@pytest.mark.parametrize("schema", [NAMED, MANY], ids=["one", "many"])
@pytest.mark.parametrize("text", [b'{"', b'{"ab', b'{"xy":1,"', b'{"xy":1,"abcd":2,"x'])
def test_keys_are_judged_exactly(text: bytes, schema: Any, wide_vocab: Vocabulary) -> None:
    """Keys that are names, keys that are used, and new ones, each of one parse or of many."""
    matcher = compile_json_schema(schema, wide_vocab, whitespace="compact").matcher()
    assert matcher.accept_bytes(text)
    judged_exactly(
        matcher, wide_vocab, [*range(128), *random.Random(0).sample(range(256, wide_vocab.size - 1), 40)], 20
    )


@pytest.mark.parametrize(
    "schema", [{}, {"minLength": 4}, {"pattern": "^a"}, {"minLength": 24, "maxLength": 24}, {"maxLength": 5}], ids=str
)
@pytest.mark.parametrize("differing", [False, True])
def test_strings_go_on_as_long_as_they_fit(differing: bool, schema: Any, wide_vocab: Vocabulary) -> None:
    """Also in the last tokens, and exactly: characters that a token leaves unfinished need more than others."""
    string = {"type": "string", **schema}
    items = {"type": "array", "items": string, "uniqueItems": True}
    grammar = compile_json_schema(items if differing else string, wide_vocab, whitespace="compact")
    matcher = grammar.matcher()
    assert matcher.accept_bytes(b'["abc' if differing else b'"abc')
    judged_exactly(matcher, wide_vocab, [*range(256), *random.Random(0).sample(range(256, wide_vocab.size - 1), 40)], 6)


def test_completions_are_shared_by_different_members(wide_vocab: Vocabulary) -> None:
    matcher = compile_json_schema(OPTIONAL, wide_vocab, whitespace="compact").matcher()
    assert matcher.accept_bytes(b'{"')
    judged_exactly(matcher, wide_vocab, [*range(wide_vocab.size)], 30)


def judged_exactly(matcher: Matcher, vocabulary: Vocabulary, tried: list[int], budgets: int) -> None:
    """Check that of some tokens those are allowed that leave enough of a budget, for the least budgets."""
    free = set(tokens_of(matcher, vocabulary))
    for budget in range(matcher.min_tokens(), matcher.min_tokens() + budgets):
        within = set(tokens_of(matcher, vocabulary, budget))
        for token in free.intersection(tried):
            assert (token in within) == (needed_after(matcher, token) < budget), (budget, token)


NEAR_THE_END: list[tuple[Any, bytes]] = [
    ({"required": ["abc", "b", "kind"], "properties": {"abc": {"type": "string"}}}, b'{"abc":"x","b":0,"k'),
    ({"required": ["abc"], "properties": {"abc": {"type": "string", "minLength": 1}}}, b'{"abc":"xyz","q":1'),
    ({"required": ["k"], "properties": {"k": {"type": "string", "minLength": 30, "maxLength": 30}}}, b'{"k":"xyz'),
    ({"required": ["k"], "properties": {"k": {"type": "string", "minLength": 2, "maxLength": 2000}}}, b'{"k":"xyz'),
]


@pytest.mark.parametrize("schema, text", NEAR_THE_END, ids=str)
def test_masks_near_the_end_visit_few_tokens(schema: Any, text: bytes, wide_vocab: Vocabulary) -> None:
    """Thousands of tokens that go on alike are judged together, whatever the budget leaves of them."""
    for extra in (4, 8, 20, 60, 500):
        grammar = compile_json_schema({"type": "object", **schema}, wide_vocab, whitespace="compact")
        matcher = grammar.matcher()
        for byte in text:
            budget, before = matcher.min_tokens() + extra, grammar.counters["nodes_visited"]
            assert tokens_of(matcher, wide_vocab, budget)
            assert grammar.counters["nodes_visited"] - before <= 1500, (extra, byte)
            assert matcher.accept_bytes(bytes([byte]))
