"""`x-verbatim`: strings that are taken from a text word for word."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from names import without_addresses

from constrain.engine import CompiledGrammar, Matcher, Vocabulary, allocate_bitmask, compile_json_schema
from constrain.engine.words import word_borders
from constrain.errors import GrammarError, ResourceLimit, SchemaError, UnsatisfiableSchema

VERBATIM = {"type": "string", "x-verbatim": {"source": "text"}}
WORDS = {"type": "string", "x-verbatim": {"source": "text", "whole_words": True}}
SOURCES = ["", "a", "abab", 'say "ab"\n\\ab\x01\x1f/', "naïve 🙂🙃 café 🙂", "aaaaab", "\u0080\u0800\ud7ff\U00010000"]
ALPHABET = 'ab "\n\\\x01\x1fï🙂'


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def substrings(text: str, low: int = 0, high: int = 10**9) -> set[str]:
    found = {text[i:j] for i in range(len(text) + 1) for j in range(i, len(text) + 1)}
    return {one for one in found if low <= len(one) <= high}


def whole_words(text: str, low: int = 0, high: int = 10**9) -> set[str]:
    borders = [i for i, is_border in enumerate(word_borders(text)) if is_border]
    return {text[i:j] for i in borders for j in borders if i <= j and low <= j - i <= high}


def verbatim(vocabulary: Vocabulary, text: str, schema: Any = VERBATIM, **more: Any) -> CompiledGrammar:
    condition = {**schema, **more} if isinstance(schema, dict) else schema
    return compile_json_schema(condition, vocabulary, whitespace="compact", sources={"text": text})


@pytest.mark.parametrize("bounds", [{}, {"minLength": 2}, {"maxLength": 3}, {"minLength": 1, "maxLength": 4}], ids=str)
@pytest.mark.parametrize("text", SOURCES)
def test_exactly_the_substrings_are_accepted(text: str, bounds: Any, byte_vocab: Vocabulary) -> None:
    strings = substrings(text, bounds.get("minLength", 0), bounds.get("maxLength", 10**9))
    if not strings:
        with pytest.raises(UnsatisfiableSchema):
            verbatim(byte_vocab, text, **bounds)
        return
    grammar = verbatim(byte_vocab, text, **bounds)
    for string in strings:
        assert grammar.accepts(as_json(string))
    others = ("".join(letters) for n in range(4) for letters in itertools.product(ALPHABET, repeat=n))
    for string in others:
        assert grammar.accepts(as_json(string)) == (string in strings)


def test_only_minimal_escapes_are_accepted(byte_vocab: Vocabulary) -> None:
    grammar = verbatim(byte_vocab, "a/\n\x01")
    assert grammar.accepts(rb'"a/\n\u0001"')
    for other in (rb'"\u0061"', rb'"\/"', rb'"\u000a"', b'"\n"', rb'"\u0001\u"', rb'"\u001"', rb'"\U0001"'):
        assert not grammar.accepts(other)


BOUNDS = [{}, {"minLength": 3}, {"maxLength": 4}, {"minLength": 2, "maxLength": 5}]
TEXTS_OF_WORDS = [
    *SOURCES,
    "xab ab abx",
    "ab_c ab-c a1 b",
    "été. a×é éa×",
    "ab ab. aba, ba",
    "ab\u0301b naïve東 a",
    "🙂a b🙂",
    "東京 ab東b",
    "ae\u0301b 🇩🇪a",
]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("text", TEXTS_OF_WORDS)
def test_exactly_the_whole_words_are_accepted(text: str, bounds: Any, byte_vocab: Vocabulary) -> None:
    low, high = bounds.get("minLength", 0), bounds.get("maxLength", 10**9)
    strings = whole_words(text, low, high)
    if not strings:
        with pytest.raises(UnsatisfiableSchema):
            verbatim(byte_vocab, text, WORDS, **bounds)
        return
    grammar = verbatim(byte_vocab, text, WORDS, **bounds)
    others = ("".join(letters) for n in range(4) for letters in itertools.product("ab é×_🙂", repeat=n))
    for string in [*substrings(text), *others]:
        assert grammar.accepts(as_json(string)) == (string in strings), string


# ---- Masks.


def check_masks(grammar: CompiledGrammar, documents: set[bytes], allowed: Any, seed: int = 0) -> None:
    """Along some documents every mask is what the list of all of them says."""
    vocabulary, rng = grammar.vocabulary, random.Random(seed)
    texts = [vocabulary.token_bytes(token) for token in range(vocabulary.size)]
    for document in rng.sample(sorted(documents), min(12, len(documents))):
        matcher, written = grammar.matcher(), b""
        while True:
            after = {one[len(written) :] for one in documents if one.startswith(written)}
            begun = {rest[:end] for rest in after for end in range(1, len(rest) + 1)}
            expected = [token for token, text in enumerate(texts) if text in begun]
            expected += [token for token in vocabulary.eos_token_ids if written in documents]
            assert allowed(matcher, vocabulary.size) == sorted(expected), written
            if written == document:
                break
            step = rng.choice([t for t in expected if texts[t] and document.startswith(written + texts[t])])
            assert matcher.accept(step)
            written += texts[step]


@pytest.mark.parametrize("bounds", [{}, {"minLength": 3}, {"maxLength": 4}, {"minLength": 2, "maxLength": 5}], ids=str)
@pytest.mark.parametrize("text", ['{"name": "Ada", "age": 36}\n', "red, green and 🙂 red", 'a\x01"b\\\x02\n'])
def test_masks_are_exact(text: str, bounds: Any, bpe_vocab: Vocabulary, allowed: Any) -> None:
    strings = substrings(text, bounds.get("minLength", 0), bounds.get("maxLength", 10**9))
    check_masks(verbatim(bpe_vocab, text, **bounds), set(map(as_json, strings)), allowed)


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize(
    "text", ['{"name": "Ada", "age": 36}\n', "red, reddish été and 🙂 red", 'a\x01"b\\\x02\n', "naïve×été"]
)
def test_masks_of_whole_words_are_exact(text: str, bounds: Any, bpe_vocab: Vocabulary, allowed: Any) -> None:
    strings = whole_words(text, bounds.get("minLength", 0), bounds.get("maxLength", 10**9))
    check_masks(verbatim(bpe_vocab, text, WORDS, **bounds), set(map(as_json, strings)), allowed)


@pytest.mark.parametrize(
    "condition, holds",
    [
        ({"pattern": "d$"}, lambda s: s.endswith("d")),
        ({"enum": ["red", "blue", "re"]}, lambda s: s == "red"),
        ({"allOf": [{"x-verbatim": {"source": "other"}}]}, lambda s: s in "the reddish one"),
        (
            {"allOf": [{"x-verbatim": {"source": "other", "whole_words": True}}]},
            lambda s: s in whole_words("the reddish one"),
        ),
        (
            {"not": {"x-verbatim": {"source": "other", "whole_words": True}}},
            lambda s: s not in whole_words("the reddish one"),
        ),
    ],
    ids=without_addresses,
)
def test_other_conditions_on_whole_words(condition: Any, holds: Any, bpe_vocab: Vocabulary, allowed: Any) -> None:
    text = "red and reddish, one"
    grammar = compile_json_schema({**WORDS, **condition}, bpe_vocab, sources={"text": text, "other": "the reddish one"})
    check_masks(grammar, {as_json(s) for s in whole_words(text) if holds(s)}, allowed)


def test_no_whole_words(byte_vocab: Vocabulary) -> None:
    words = {"x-verbatim": {"source": "text", "whole_words": True}}
    grammar = verbatim(byte_vocab, "abc de", {"type": "string", "maxLength": 3, "not": words})
    assert grammar.accepts('"bc"') and grammar.accepts('"x"')
    assert not grammar.accepts('"abc"') and not grammar.accepts('""') and not grammar.accepts('" de"')
    either = {"type": "string", "anyOf": [{"maxLength": 1, **VERBATIM}, WORDS]}
    assert {s for s in substrings("abc de") if verbatim(byte_vocab, "abc de", either).accepts(as_json(s))} == {
        *substrings("abc de", high=1),
        *whole_words("abc de"),
    }


@pytest.mark.parametrize(
    "condition, holds",
    [
        ({"pattern": "^[a-z]+$"}, lambda s: s.isalpha() and s.isascii() and s.islower()),
        ({"pattern": "e", "maxLength": 5}, lambda s: "e" in s and len(s) <= 5),
        ({"enum": ["red", "blue", "green"]}, lambda s: s in ("red", "green")),
        ({"not": {"pattern": " "}}, lambda s: " " not in s),
        ({"format": "date"}, lambda s: s == "2024-05-06"),
        ({"allOf": [{"x-verbatim": {"source": "other"}}]}, lambda s: s in "the red one"),
        (
            {"not": {"x-verbatim": {"source": "other"}}, "maxLength": 4},
            lambda s: s not in "the red one" and len(s) <= 4,
        ),
    ],
    ids=without_addresses,
)
def test_other_conditions_hold_as_well(condition: Any, holds: Any, bpe_vocab: Vocabulary, allowed: Any) -> None:
    text = "red, green on 2024-05-06, red"
    sources = {"text": text, "other": "the red one"}
    grammar = compile_json_schema({**VERBATIM, **condition}, bpe_vocab, sources=sources)
    check_masks(grammar, {as_json(s) for s in substrings(text) if holds(s)}, allowed)


def test_negation(byte_vocab: Vocabulary) -> None:
    grammar = compile_json_schema(
        {"type": "string", "maxLength": 3, "not": {"x-verbatim": {"source": "text"}}},
        byte_vocab,
        sources={"text": "abab"},
    )
    assert grammar.accepts('"bb"') and grammar.accepts('"aba "') is False and grammar.accepts('"c"')
    assert not grammar.accepts('"ab"') and not grammar.accepts('""')


def test_strings_of_items_that_differ(bpe_vocab: Vocabulary) -> None:
    schema = {"type": "array", "items": VERBATIM, "uniqueItems": True, "minItems": 3}
    grammar = verbatim(bpe_vocab, "ab", schema)
    assert grammar.accepts('["a","b","ab",""]')
    assert not grammar.accepts('["a","b","a"]')
    with pytest.raises(UnsatisfiableSchema):
        verbatim(bpe_vocab, "ab", schema, minItems=5)


def test_values_of_other_types_are_free(byte_vocab: Vocabulary) -> None:
    grammar = verbatim(byte_vocab, "abc", {"x-verbatim": {"source": "text"}})
    assert grammar.accepts("12") and grammar.accepts('"bc"') and not grammar.accepts('"ac"')
    assert ("", "x-verbatim") in {(entry.pointer, entry.keyword) for entry in grammar.report.enforced}


# ---- Completion.


RECORD = {
    "type": "object",
    "properties": {
        "quote": {**VERBATIM, "minLength": 6},
        "tags": {"type": "array", "items": WORDS, "maxItems": 2},
        "words": {**WORDS, "minLength": 2},
    },
    "required": ["quote", "tags"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("text", SOURCES[3:])
def test_texts_are_completed_within_a_budget(text: str, bpe_vocab: Vocabulary, allowed: Any) -> None:
    def walk(matcher: Matcher, budget: int, rng: random.Random) -> None:
        for left in range(budget, 0, -1):
            token = rng.choice(budgeted(matcher, left))
            assert matcher.accept(token)
            if token in bpe_vocab.eos_token_ids:
                return
        raise AssertionError("the text did not end")

    def budgeted(matcher: Matcher, left: int) -> list[int]:
        bits = allocate_bitmask(1, bpe_vocab.size)
        matcher.fill_bitmask(bits, budget=left)
        return [token for token in range(bpe_vocab.size) if bits[0, token // 32] >> (token % 32) & 1]

    schema = RECORD if len(text) >= 6 else {**RECORD, "required": ["tags"]}
    grammar = verbatim(bpe_vocab, text, schema)
    least = grammar.matcher().min_tokens()
    assert grammar.accepts(grammar.matcher().completion())
    for extra in range(6):
        walk(grammar.matcher(), least + extra, random.Random(extra))


def test_the_shortest_way_on_is_the_text(byte_vocab: Vocabulary) -> None:
    text = 'one\ntwo "three" four'
    matcher = verbatim(byte_vocab, text, minLength=9).matcher()
    completed = json.loads(matcher.completion())
    assert completed in text and len(completed) == 9
    assert matcher.accept_bytes(rb'"\"th')
    assert matcher.completion() == rb'ree\" f"'
    assert matcher.accept_bytes(b"re") and matcher.forced_bytes() == rb"e\" f"


# ---- Errors.


@pytest.mark.parametrize(
    "value",
    [
        True,
        "text",
        {},
        {"source": 1},
        {"source": "text", "words": True},
        {"source": "text", "whole_words": 1},
        {"whole_words": True},
    ],
    ids=str,
)
def test_malformed_keywords(value: Any, byte_vocab: Vocabulary) -> None:
    with pytest.raises(SchemaError, match="names a 'source'") as raised:
        compile_json_schema({"items": {"x-verbatim": value}}, byte_vocab, sources={"text": "abc"})
    assert (raised.value.pointer, raised.value.keyword) == ("/items", "x-verbatim")


def test_sources_that_are_not_there(byte_vocab: Vocabulary) -> None:
    with pytest.raises(
        SchemaError, match="there is no source 'text'; give its text in `sources`, or extract from a document"
    ):
        compile_json_schema(VERBATIM, byte_vocab)
    with pytest.raises(SchemaError, match="there is no source 'text'"):
        compile_json_schema({"anyOf": [VERBATIM, VERBATIM]}, byte_vocab, sources={"Text": "abc"})
    with pytest.raises(GrammarError, match="lone surrogate"):
        compile_json_schema(VERBATIM, byte_vocab, sources={"text": "\ud800"})


def test_long_texts(bpe_vocab: Vocabulary, allowed: Any) -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefg", k=rng.randint(1, 8))) for _ in range(5_000)]
    text = " ".join(words)
    grammar = verbatim(bpe_vocab, text)
    matcher = grammar.matcher()
    assert len(allowed(matcher, bpe_vocab.size)) > 0
    assert matcher.accept_bytes(as_json(text[9_000:19_000])[:-1])
    assert matcher.accept_bytes(text[19_000:19_010].encode() + b'"') and matcher.is_accepting()
    assert grammar.nbytes < 200 * len(text)
    with pytest.raises(ResourceLimit, match="source_bytes"):
        verbatim(bpe_vocab, "x" * (1 << 20) + "y")


def test_whole_words_of_long_texts(bpe_vocab: Vocabulary, allowed: Any) -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefg", k=rng.randint(1, 8))) for _ in range(5_000)]
    text = " ".join(words)
    matcher = verbatim(bpe_vocab, text, WORDS, minLength=6, maxLength=3_000).matcher()
    assert len(allowed(matcher, bpe_vocab.size)) > 0
    start = text.index(" ", 9_000) + 1
    assert matcher.accept_bytes(b'"' + text[start : start + 2_900].encode())
    assert matcher.accept_bytes(matcher.completion()) and matcher.is_accepting()
    with pytest.raises(ResourceLimit, match="source_bytes"):
        verbatim(bpe_vocab, "x" * (1 << 20) + "y", WORDS)
