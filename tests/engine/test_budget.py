"""Texts within a budget of tokens: whatever allowed tokens are taken, they end in time."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from budgets import needed_after, tokens_of

from constrain.engine import (
    CompiledGrammar,
    Limits,
    Matcher,
    Vocabulary,
    allocate_bitmask,
    compile_choices,
    compile_json_schema,
    compile_lark,
    compile_regex,
    fill_bitmasks,
)
from constrain.errors import BitmaskError, BudgetError, ResourceLimit, VocabularyError

SCHEMAS: list[Any] = [
    {},
    {"type": "string"},
    {"type": "string", "minLength": 3, "maxLength": 8},
    {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}, "name": {"enum": ["x", "yz"]}}},
    {"type": "object", "minProperties": 3, "propertyNames": {"pattern": "^[ab]{1,2}$"}},
    {"type": "object", "properties": {"a": {}, "ab": {"minLength": 9, "type": "string"}}, "minProperties": 2},
    {"type": "object", "dependentRequired": {"a": ["b", "c"]}, "properties": {"a": {}, "b": {}}, "minProperties": 1},
    {
        "type": "object",
        "minProperties": 2,
        "propertyNames": {"pattern": "^k\\d{3}$"},
        "additionalProperties": {"const": 1},
    },
    {"not": {"propertyNames": {"not": {"const": "0"}}}, "type": "object", "patternProperties": {r"\d": {"const": 1}}},
    {"type": "object", "oneOf": [{"patternProperties": {"a": {"enum": [10, 20]}}}, {"patternProperties": {"a": {}}}]},
    # The shortest keys have escapes, which other keys may have begun like.
    {
        "not": {"patternProperties": {"b": False}},
        "type": "object",
        "patternProperties": {"^.{1,3}$": False},
        "minProperties": 2,
    },
    {"type": "object", "propertyNames": {"pattern": "^[\\x01\\x02]*$"}, "minProperties": 2, "maxProperties": 4},
    {"type": "array", "minItems": 3, "items": {"type": "integer", "minimum": 1000}},
    {"type": "array", "contains": {"type": "string", "minLength": 4}, "items": {"type": ["string", "null"]}},
    {"anyOf": [{"const": 7}, {"type": "array", "minItems": 2, "items": {"type": "array", "items": {"$ref": "#"}}}]},
    {"type": "array", "uniqueItems": True, "minItems": 2, "items": {"type": "object", "maxProperties": 1}},
    {
        "type": "array",
        "uniqueItems": True,
        "prefixItems": [{"enum": [1, 2]}],
        "items": {"enum": [1, 2, "a"]},
        "minItems": 3,
    },
    {"enum": ["long alternative", "lo", {"k": [None, 12]}, "🙂🙂"]},
    {"type": "string", "format": "date-time"},
]
INNER = {
    "type": "object",
    "required": [letter * 9 for letter in "abcd"],
    "properties": {letter * 9: {"type": "integer"} for letter in "abcd"},
    "additionalProperties": False,
}
NESTED = {
    "type": "object",
    "required": ["first"],
    "properties": {"first": INNER, "other": INNER},
    "additionalProperties": False,
}
SCHEMAS.append(NESTED)
REGEXES = ["a|b{30}", "(ab|c)+d", r"[a-z]{3,9}(, [a-z]{3,9})*\.", r"\d{4}-(0[1-9]|1[0-2])"]
LARK = [
    'start: "(" start ")" | "x"',
    'start: WORD ("," WORD)*\nWORD: /[a-z]{2,5}/\nWS: " "+\n%ignore WS',
    # Any character of the text may be its last, and what ends it begins like one.
    r'start: /[\s\S]+/ "</end>"',
    'start: "ab"\n%ignore /./',
]


def guarded_walk(grammar: CompiledGrammar, budget: int, rng: random.Random) -> bytes:
    """Random allowed tokens until the end, which must come within the budget."""
    matcher, text = grammar.matcher(), b""
    while True:
        tokens = tokens_of(matcher, grammar.vocabulary, budget)
        assert tokens, f"nothing is allowed after {text!r}"
        token = rng.choice(tokens)
        assert matcher.accept(token)
        budget -= 1
        if token in grammar.vocabulary.eos_token_ids:
            return text
        text += grammar.vocabulary.token_bytes(token)


def check(grammar: CompiledGrammar, walks: int = 3) -> None:
    minimum = grammar.matcher().min_tokens()
    with pytest.raises(BudgetError, match=rf"a budget of {minimum - 1} tokens? is .* takes {minimum}$") as raised:
        tokens_of(grammar.matcher(), grammar.vocabulary, minimum - 1)
    assert (raised.value.budget, raised.value.needed) == (minimum - 1, minimum)
    for budget in range(minimum, minimum + 6):
        for seed in range(walks):
            assert grammar.accepts(guarded_walk(grammar, budget, random.Random(seed)))


@pytest.mark.parametrize("options", [{}, {"property_order": "schema"}, {"whitespace": 2}], ids=str)
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(schema)[:40])
def test_documents_end_in_time(schema: Any, options: Any, bpe_vocab: Vocabulary) -> None:
    check(compile_json_schema(schema, bpe_vocab, **options))


@pytest.mark.parametrize("pattern", REGEXES)
def test_matches_end_in_time(pattern: str, bpe_vocab: Vocabulary) -> None:
    check(compile_regex(pattern, bpe_vocab))


@pytest.mark.parametrize("source", LARK)
def test_sentences_end_in_time(source: str, bpe_vocab: Vocabulary) -> None:
    check(compile_lark(source, bpe_vocab))


FILES = sorted((Path(__file__).parent.parent / "data" / "schemas").glob("*.json"))[::6]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_documents_of_larger_schemas_end_in_time(path: Path, bpe_vocab: Vocabulary) -> None:
    check(compile_json_schema(json.loads(path.read_text()), bpe_vocab), walks=1)


#: Items that must differ: their costs are those of one spelling each, and may be above the shortest completion.
DIFFERING: list[Any] = [
    {"type": "array", "uniqueItems": True, "minItems": 2, "items": {"enum": ["", [1e-7]]}},
    {"type": "array", "prefixItems": [{"type": "object"}], "uniqueItems": True, "minItems": 4},
    {"uniqueItems": True, "enum": [["a", [0.001]]]},
    {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"enum": [1e-9, [1e-7], {"a": 1e-8}, ""]}},
    {"type": "object", "required": ["a"], "properties": {"a": {"uniqueItems": True, "enum": [[1e-5, "a"], 1e-6]}}},
]


@pytest.mark.parametrize("schema", DIFFERING, ids=lambda schema: str(schema)[:40])
def test_some_token_is_allowed_while_the_completion_fits(schema: Any, byte_vocab: Vocabulary) -> None:
    check(compile_json_schema(schema, byte_vocab))
    grammar = compile_json_schema(schema, byte_vocab)
    for seed in range(20):
        matcher, rng = grammar.matcher(), random.Random(seed)
        for _ in range(40):
            least = matcher.min_tokens()
            tokens = tokens_of(matcher, byte_vocab, least)
            assert tokens
            text = matcher.completion()
            assert not text or text[0] in tokens
            token = rng.choice(tokens_of(matcher, byte_vocab, least + 3 * seed))
            matcher.accept(token)
            if token in byte_vocab.eos_token_ids:
                break


# ---- Which tokens are allowed.


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(schema)[:40])
def test_a_token_is_allowed_where_a_completion_still_fits(schema: Any, bpe_vocab: Vocabulary) -> None:
    grammar, rng = compile_json_schema(schema, bpe_vocab), random.Random(0)
    for extra in (0, 1, 2, 5, 40, 90):
        matcher = grammar.matcher()
        budget = matcher.min_tokens() + extra
        for _ in range(8):
            tokens = tokens_of(matcher, bpe_vocab, budget)
            assert tokens == [t for t in tokens_of(matcher, bpe_vocab) if needed_after(matcher, t) <= budget - 1]
            token = rng.choice(tokens)
            assert matcher.accept(token)
            budget -= 1
            if token in bpe_vocab.eos_token_ids:
                break


def test_tokens_that_hold_several_members() -> None:
    """A token that holds several keys needs room for those of them that are new, exactly."""
    words = [b'"a', b'a":1,"b', b'a":1,"a', b'":1,"a":1,"', b'b":1,"c":1,"d', b'" ":1,"', b'!":1,"!":1', b'":1}']
    vocabulary = Vocabulary.from_tokens([bytes([byte]) for byte in range(256)] + words + [b""], [256 + len(words)])
    for minimum in range(5):
        for required in ([], ["a"]):
            schema = {"properties": {"a": {}}, "required": required, "minProperties": minimum, "type": "object"}
            grammar = compile_json_schema(schema | {"additionalProperties": {"const": 1}}, vocabulary)
            check(grammar, walks=8)
            check_subset(grammar)


#: Tokens that begin keys, hold whole keys or members, or open several brackets.
FAR_TOKENS = [
    [],
    [b',"', b'},"', b'{"', b"[[", b"[{", b'[[{"', b'},{"', b'":{"', b'":[{"'],
    [b',"f', b'},"f', b'{"f', b'],"\\', b',"a', b'1,"g', b'",  "fa'],
    [b'{"far":{', b'},"far":', b'{"a":[{"', b',"all":[[{"'],
    [b'":1,', b'":1,"', b'":1,"far', b'a":1},"', b'"a":{},'],
]

FAR_MEMBER = {"type": "object", "required": ["x" * 70, "first"], "additionalProperties": {"type": "integer"}}
FAR_SCHEMAS = [
    {"properties": {"a": {"type": "integer"}, "far": FAR_MEMBER, "all": {"items": {"items": FAR_MEMBER}}}},
    {"properties": {"a": {}, "g": {}, "far": FAR_MEMBER}, "required": ["a"], "minProperties": 2},
    {"properties": {"a": {}, "far": {}, "all": FAR_MEMBER}, "dependentRequired": {"a": ["all"]}},
    {"properties": {"a": {}}, "additionalProperties": {"items": FAR_MEMBER, "minItems": 1}},
    {"properties": {"a": {"type": "integer"}, "all": {"items": {"items": FAR_MEMBER}}}},
    {"properties": {"a": {"type": "integer"}, "far" + "x" * 70: {"type": "integer"}}},
]


@pytest.mark.parametrize("words", FAR_TOKENS, ids=str)
@pytest.mark.parametrize("schema", FAR_SCHEMAS, ids=lambda schema: str(schema)[:60])
def test_a_budget_that_one_token_exceeds_is_not_far(schema: Any, words: list[bytes]) -> None:
    """Proofs that every token fits hold up to the token after which most is needed."""
    vocabulary = Vocabulary.from_tokens([bytes([byte]) for byte in range(256)] + words + [b""], [256 + len(words)])
    value = {"type": ["object", "array", "integer"]}
    schema = json.loads(json.dumps(schema).replace("{}", json.dumps(value)))
    grammar = compile_json_schema({"type": "object", "additionalProperties": False} | schema, vocabulary)
    far = b'{"first":2,"%b":3}' % (b"x" * 70)
    for text in (b'{"a":1,"far":%b,"all":[[%b' % (far, far), b'{"a":1,"all":[[%b' % far):
        matcher = grammar.matcher()
        for byte in text:
            allowed = tokens_of(matcher, vocabulary)
            # In strings, some of all letters are enough.
            needs = {
                token: needed_after(matcher, token) for token in allowed if token > 255 or chr(token) in "{[,:fg\\"
            }
            most = max(needs.values(), default=0)
            if most > matcher.min_tokens() + 1:
                refused = {token for token, need in needs.items() if need >= most}
                assert not refused & set(tokens_of(matcher, vocabulary, most))
            if not matcher.accept_bytes(bytes([byte])):
                break


#: Grammars whose frames wait for others: after a call, after the first of them, for counted ones, and for documents.
NESTING = [
    r'start: "(" start ")" | /[\s\S]/',
    'start: w+\nw: /[a-z]+/ | "(" w ")"\n%ignore /[ ]+/',
    'start: pair "!!"\npair: list ";" | "a"\nlist: "a" pair | "[" pair "]"',
    'start: "<" (start | "x") "</end>" | start "+" "x"~4 "y" | "z"',
    'start: "a" start? "bcd" | (item ~ 3..5)\nitem: "(" start ")" | "<"',
    'start: "f(" %json {"type": "array", "minItems": 2} ")" start? ";"',
]


@pytest.mark.parametrize("source", NESTING)
def test_a_budget_that_one_token_of_a_grammar_exceeds_is_not_far(source: str) -> None:
    words = [b"((((((((", b"<<<<", b"aaaaaaaaaa", b"[[[[[[", b"f([[[[", b"f([1,f(", b"z+xx", b"(a(a(", b"  (("]
    vocabulary = Vocabulary.from_tokens([bytes([byte]) for byte in range(256)] + words + [b""], [256 + len(words)])
    grammar = compile_lark(source, vocabulary)
    for seed in range(2):
        matcher, rng = grammar.matcher(), random.Random(seed)
        for _ in range(3):
            needs = {token: needed_after(matcher, token) for token in tokens_of(matcher, vocabulary)}
            for budget in range(matcher.min_tokens(), max(needs.values()) + 2):
                fitting = {token for token, need in needs.items() if need < budget}
                assert set(tokens_of(matcher, vocabulary, budget)) == fitting
            token = rng.choice([token for token in needs if token > 255] or list(needs))
            assert matcher.accept(token)
            if matcher.is_finished():
                break


@pytest.mark.parametrize("source", [*NESTING, *LARK])
def test_a_budget_far_beyond_a_grammar_changes_nothing(source: str, wide_vocab: Vocabulary) -> None:
    """Of the thousands of tokens with which a text may begin, none has to be looked at."""
    matcher = compile_lark(source, wide_vocab).matcher()
    for token in (None, *map(ord, "((a")):
        if token is None or matcher.accept(token):
            far = matcher.min_tokens() + 250
            assert tokens_of(matcher, wide_vocab, far) == tokens_of(matcher, wide_vocab)


def check_subset(grammar: CompiledGrammar) -> None:
    """A mask with a budget is a subset of the mask without, and after its tokens the text can be completed."""
    for seed in range(8):
        matcher, rng = grammar.matcher(), random.Random(seed)
        budget = matcher.min_tokens() + seed
        while budget:
            tokens = tokens_of(matcher, grammar.vocabulary, budget)
            assert set(tokens) <= set(tokens_of(matcher, grammar.vocabulary))
            assert all(needed_after(matcher, token) < budget for token in tokens)
            token = rng.choice(tokens)
            assert matcher.accept(token)
            budget = 0 if token in grammar.vocabulary.eos_token_ids else budget - 1


def test_masks_do_not_depend_on_earlier_measurements(bpe_vocab: Vocabulary) -> None:
    """Of thousands of different completions not all are measured, independently of the history of the matcher."""
    words = [f"{i:05}" for i in range(20_000)]
    grammar = compile_choices([word[:3] + "x" * (40 + i % 50) + word for i, word in enumerate(words)], bpe_vocab)
    fresh, used = grammar.matcher(), grammar.matcher()
    budget = fresh.min_tokens() + 10
    for token in (tokens_of(used, bpe_vocab, budget + extra)[-1] for extra in (0, 20, 40)):
        assert used.accept(token)
        tokens_of(used, bpe_vocab, budget + 20)
        used.rollback(1)
    assert tokens_of(used, bpe_vocab, budget) == tokens_of(fresh, bpe_vocab, budget) != []
    assert grammar.accepts(guarded_walk(grammar, budget, random.Random(0)))


def test_the_least_budget_is_the_completion_in_fewest_tokens() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"b", b"ab", b"bcd", b"c", b"d", b""], [6])
    matcher = compile_choices(["abcd"], vocabulary).matcher()
    assert matcher.completion() == b"abcd"
    assert matcher.min_tokens() == 3
    assert tokens_of(matcher, vocabulary, 3) == [0]
    assert tokens_of(matcher, vocabulary, 4) == [0, 2]
    assert matcher.accept_bytes(b"abcd")
    assert matcher.min_tokens() == 1
    assert tokens_of(matcher, vocabulary, 1) == [6]
    assert matcher.accept(6)
    assert matcher.min_tokens() == 0
    assert tokens_of(matcher, vocabulary, 0) == [6]


def test_a_token_may_make_the_rest_longer(bpe_vocab: Vocabulary) -> None:
    matcher = compile_regex("a|b{200}", bpe_vocab).matcher()
    first = {bpe_vocab.token_bytes(token)[:1] for token in tokens_of(matcher, bpe_vocab, 150)}
    assert first == {b"a"}
    assert {bpe_vocab.token_bytes(token)[:1] for token in tokens_of(matcher, bpe_vocab, 202)} == {b"a", b"b"}


def test_a_generous_budget_changes_nothing(bpe_vocab: Vocabulary) -> None:
    matcher = compile_json_schema(SCHEMAS[3], bpe_vocab).matcher()
    for part in [b"", b"{", b'"', b"na", b'me":"', b'x","', b"free", b'":', b'"te', b'xt",']:
        assert matcher.accept_bytes(part)
        assert tokens_of(matcher, bpe_vocab, 10_000) == tokens_of(matcher, bpe_vocab)


def test_masks_of_a_text_are_found_again(bpe_vocab: Vocabulary) -> None:
    members = {name: {"type": "string"} for name in ("name", "title", "note")}
    grammar = compile_json_schema({"type": "object", "properties": members, "required": ["name", "title"]}, bpe_vocab)
    text = b'{"name": "Ada", "title": "Countess", "note": "of Lovelace"}'

    def visited() -> int:
        matcher, before = grammar.matcher(), grammar.counters["nodes_visited"]
        for at, byte in enumerate(text):
            tokens_of(matcher, bpe_vocab, len(text) - at + 1)
            assert matcher.accept_bytes(bytes([byte]))
        return grammar.counters["nodes_visited"] - before

    assert visited() > 0
    assert visited() == 0


def test_frames_need_little_more_after_a_token(bpe_vocab: Vocabulary) -> None:
    """Bounds on the frames decide if the budget has room for all frames that one token may push."""
    grammar = compile_json_schema(NESTED, bpe_vocab, whitespace="compact")
    matcher = grammar.matcher()
    for byte in b'{"first":{"aaaaaaaaa":1,"bbbbbbbbb":2,':
        allowed, before = tokens_of(matcher, bpe_vocab), grammar.counters["nodes_visited"]
        assert tokens_of(matcher, bpe_vocab, len(matcher.completion()) + 180) == allowed
        assert grammar.counters["nodes_visited"] == before
        assert matcher.accept_bytes(bytes([byte]))


def test_budgets_of_a_batch(bpe_vocab: Vocabulary) -> None:
    grammar = compile_json_schema({"type": "string"}, bpe_vocab)
    matchers = [grammar.matcher() for _ in range(3)]
    bits = allocate_bitmask(3, bpe_vocab.size)
    fill_bitmasks(matchers, bits, budgets=[None, 3, 10])
    for row, budget in enumerate([None, 3, 10]):
        one = allocate_bitmask(1, bpe_vocab.size)
        matchers[row].fill_bitmask(one, budget=budget)
        assert (bits[row] == one[0]).all()
    with pytest.raises(BudgetError):
        fill_bitmasks(matchers, bits, budgets=[None, 1, None])
    with pytest.raises(BitmaskError, match="one for each matcher"):
        fill_bitmasks(matchers, bits, budgets=[1])


# ---- Wildcard regions with thousands of tokens, which are not all visited


def test_texts_share_caches_of_budgets(bpe_vocab: Vocabulary) -> None:
    """Masks equal those of a fresh grammar, after masks of other texts and from other threads."""

    def walk(grammar: CompiledGrammar, seed: int) -> list[list[int]]:
        matcher, rng, masks = grammar.matcher(), random.Random(seed), list[list[int]]()
        for budget in range(matcher.min_tokens() + seed, 0, -1):
            masks.append(tokens_of(matcher, bpe_vocab, budget))
            for undone in range(seed % 3, -1, -1):
                assert matcher.accept(rng.choice(masks[-1]))
                matcher.rollback(undone > 0)
            if matcher.is_finished():
                break
        return masks

    for schema in (SCHEMAS[3], SCHEMAS[5]):
        shared = compile_json_schema(schema, bpe_vocab)
        with ThreadPoolExecutor(4) as pool:
            walks = list(pool.map(walk, [shared] * 6, range(6)))
        for seed, masks in enumerate(walks):
            assert masks == walk(compile_json_schema(schema, bpe_vocab), seed)


def test_bytes_count_for_budgets_as_well(bpe_vocab: Vocabulary) -> None:
    matcher = compile_json_schema(SCHEMAS[3], bpe_vocab, whitespace="compact").matcher()
    assert matcher.accept_bytes(b'{"name":"x",')
    assert matcher.clone().completion() == b'"a":"","b":0}'
    assert matcher.accept_bytes(b'"b":"q')
    assert matcher.completion() == b'","a":""}'
    matcher.rollback(1)
    assert matcher.completion() == b'"a":"","b":0}'


# ---- What cannot be completed in tokens.


def test_a_vocabulary_that_lacks_bytes() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"c", b""], [2])
    with pytest.raises(VocabularyError, match="lacks bytes"):
        compile_choices(["ab"], vocabulary).matcher().min_tokens()


def test_completions_have_a_limit(byte_vocab: Vocabulary) -> None:
    limits = Limits(max_states=20_000)
    matcher = compile_json_schema({"type": "array", "minItems": 10**9}, byte_vocab, limits=limits).matcher()
    for ask in (matcher.completion, matcher.min_tokens):
        with pytest.raises(ResourceLimit, match="max_states"):
            ask()


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 800}, b'["a", "b'),
        ({"type": "object", "dependentRequired": {f"k{i}": [f"k{i + 1}"] for i in range(1000)}}, b'{"k0": 1'),
        ({"type": "object", "dependentRequired": {f"k{i + 1}": [f"k{i}"] for i in range(1000)}}, b'{"k1000": 1'),
    ],
)
def test_long_completions_are_measured_in_time(schema: Any, text: bytes, byte_vocab: Vocabulary) -> None:
    matcher = compile_json_schema(schema, byte_vocab, limits=Limits(max_seconds=8)).matcher()
    assert matcher.accept_bytes(text)
    assert matcher.min_tokens() == len(matcher.completion()) + 1 > 1000


def test_a_key_that_begins_like_a_name_is_no_new_one_after_any_new(byte_vocab: Vocabulary) -> None:
    keys = {"properties": {"b": {"type": "array"}}, "patternProperties": {"b$": True}, "additionalProperties": False}
    schema = {"type": "object", **keys, "minProperties": 2, "not": {"patternProperties": {"b$": {"const": []}}}}
    matcher = compile_json_schema(schema, byte_vocab).matcher()
    left = []
    for byte in b'{"+cb":0,"b":[]}':
        assert matcher.accept_bytes(bytes([byte]))
        left.append(matcher.min_tokens())
    assert left == [15, 14, 13, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]


AMBIGUOUS = r"""
?start: T r~1..2
?r: [ | /./ | /b*a/] | /[^a]/ start~2 | (r~1..2 /[^a]/) /\\(|\\)/ T
T: /[ab]+?/
%ignore " "
"""


def test_the_work_for_all_tokens_of_a_mask_is_limited_together() -> None:
    tokens = ["".join(letters) for size in (1, 2, 3) for letters in product("ab1", repeat=size)]
    vocabulary = Vocabulary.from_tokens([*map(str.encode, tokens), *(bytes([b]) for b in range(256)), b""], [39 + 256])
    bits = allocate_bitmask(1, vocabulary.size)

    def matcher(**limits: int) -> Matcher:
        matcher = compile_lark(AMBIGUOUS, vocabulary, limits=Limits(**limits)).matcher()
        assert matcher.accept_bytes(b"affgfCeBBB")
        return matcher

    # Completions that would take too much work are not measured.
    matcher().fill_bitmask(bits, budget=20)
    limited = matcher(max_work=5_000)
    with pytest.raises(ResourceLimit, match="max_work"):
        limited.fill_bitmask(bits, budget=20)
    assert limited.accept_bytes(b"a")
