"""The alternatives of a place are found in the grammar; their probabilities are sums over all tokenizations."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from constrain.engine import (
    Alternatives,
    Matcher,
    Vocabulary,
    compile_choices,
    compile_json_schema,
    compile_lark,
    compile_regex,
)
from constrain.errors import ArgumentError, BitmaskError, ResourceLimit
from constrain.testing import byte_vocabulary, small_vocabulary

VOCABULARY = small_vocabulary()


def place(schema: Any, before: bytes = b'{"a"', **others: Any) -> Matcher:
    properties = {"a": schema, **others}
    whole = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    grammar = compile_json_schema(whole, VOCABULARY, whitespace="single", property_order="schema")
    matcher = grammar.matcher()
    assert matcher.accept_bytes(before)
    return matcher


def found(schema: Any, gap: bytes = b": ", limit: int = 64, **others: Any) -> Alternatives | None:
    matcher = place(schema, **others)
    alternatives = matcher.alternatives(limit, gap, json_value=True)
    assert matcher.accept_bytes(gap), "the matcher has not moved"
    return alternatives


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({"type": "boolean"}, {b"true", b"false"}),
        ({"enum": ["open", "opened", "é\n", None]}, {b'"open"', b'"opened"', '"é\\n"'.encode(), b"null"}),
        ({"const": "x"}, {b'"x"'}),
        ({"type": "integer", "minimum": -1, "maximum": 11}, {b"%d" % number for number in range(-1, 12)}),
        ({"anyOf": [{"const": 1}, {"const": "one"}, {"type": "boolean"}]}, {b"1", b'"one"', b"true", b"false"}),
        ({"type": "string", "pattern": "^[ab]{2}$"}, {b'"aa"', b'"ab"', b'"ba"', b'"bb"'}),
        ({"$ref": "#/properties/b"}, {b'"y"', b'"z"'}),
    ],
)
def test_few_values(schema: Any, texts: set[bytes]) -> None:
    alternatives = found(schema, b={"enum": ["y", "z"]})
    assert alternatives is not None and set(alternatives.texts) == texts and not alternatives.has_others


@pytest.mark.parametrize("other", [{"type": "string"}, {"type": "number"}, {"type": "object"}, {"type": "array"}])
def test_null_or_many(other: Any) -> None:
    alternatives = found({"anyOf": [other, {"type": "null"}]})
    assert alternatives is not None and alternatives.texts == (b"null",) and alternatives.has_others
    assert found(other) is None


def test_too_many_values() -> None:
    most = [f"value {number}" for number in range(64)]
    alternatives = found({"enum": most})
    assert alternatives is not None and len(alternatives) == len(alternatives.texts) == 64
    assert found({"enum": [*most, "another"]}) is None
    assert found({"enum": ["x", "y"]}, limit=1) is None


def test_the_end_of_a_list_is_no_value() -> None:
    alternatives = found({"type": "array", "items": {"enum": ["x", "y"]}}, gap=b": [")
    assert alternatives is not None and set(alternatives.texts) == {b'"x"', b'"y"'}


def test_spellings_of_one_number_are_one_alternative() -> None:
    numbers = found({"enum": [1, 12, "1"]})
    assert numbers is not None and set(numbers.texts) == {b"1", b"12", b'"1"'}
    one, twelve = numbers.texts.index(b"1"), numbers.texts.index(b"12")
    assert set(numbers.remaining(b": 1")) == {one, twelve}
    assert numbers.remaining(b": 1.") == numbers.remaining(b": 1.0}") == numbers.remaining(b": 1}") == (one,)
    assert numbers.remaining(b": 12.0") == (twelve,)
    assert numbers.remaining(b": 1.5") == ()
    assert [numbers.main_text(text) for text in (b"1.0", b"1", b'"1"')] == [b"1", b"1", b'"1"']
    matcher = place({"enum": [1, 12, "1"]})
    tree = numbers.tree(matcher)
    assert tree.probabilities(np.zeros((len(tree.nodes), matcher.vocabulary.size))).sum() == pytest.approx(1, abs=1e-9)


def test_spellings_of_a_number_that_is_the_whole_document() -> None:
    matcher = compile_json_schema({"enum": [1, 2, 12]}, VOCABULARY).matcher()
    numbers = matcher.alternatives(json_value=True)
    assert numbers is not None and set(numbers.texts) == {b"1", b"2", b"12"}
    assert {numbers.main_text(text) for text, _ in numbers.synonyms} == set(numbers.texts)
    one, twelve = numbers.texts.index(b"1"), numbers.texts.index(b"12")
    assert set(numbers.remaining(b"1")) == {one, twelve}
    assert numbers.remaining(b"1", is_end=True) == numbers.remaining(b"1.0", is_end=True) == (one,)


@pytest.mark.parametrize("arguments", [("3",), (0,), (1.5,), (3, "x")])
def test_arguments_that_are_no_limit_or_gap(arguments: Any) -> None:
    with pytest.raises(ArgumentError, match=r"limit|gap"):
        compile_regex("a", VOCABULARY).matcher().alternatives(*arguments)


def test_a_gap_that_the_grammar_refuses() -> None:
    assert place({"type": "boolean"}).alternatives(gap=b"; ", json_value=True) is None


def test_what_is_left_after_a_beginning() -> None:
    numbers = Alternatives(b": ", (b"1", b"10", b'"1"'), json_value=True)
    assert numbers.remaining(b":") == numbers.remaining(b": ") == (0, 1, 2)
    assert numbers.remaining(b": 1") == (0, 1)
    assert numbers.remaining(b": 1,") == (0,)
    assert numbers.remaining(b": 10") == numbers.remaining(b": 10}") == (1,)
    assert numbers.remaining(b': "1"') == numbers.remaining(b': "1", ') == (2,)
    assert numbers.remaining(b":1") == numbers.remaining(b": 2") == ()
    optional = Alternatives(b": ", (b"null",), has_others=True, json_value=True)
    assert optional.remaining(b": ") == (0, 1)
    assert optional.remaining(b": nu") == optional.remaining(b": null}") == (0,)
    assert optional.remaining(b': "') == optional.remaining(b': "null') == (1,)
    whole = Alternatives(b"", (b"a", b"ab"))
    assert whole.remaining(b"a") == (0, 1)
    assert whole.remaining(b"a", is_end=True) == (0,)
    assert whole.remaining(b"ab") == (1,)


# ---- Whole texts.


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("a|ab|b?", {b"", b"a", b"ab", b"b"}),
        ("(yes|no)!{1,2}", {b"yes!", b"yes!!", b"no!", b"no!!"}),
        ("x{300}", {b"x" * 300}),
        ("a*", None),
        ("a*b", None),
        (".", None),
    ],
)
def test_the_rest_of_a_text(pattern: str, texts: set[bytes] | None) -> None:
    alternatives = compile_regex(pattern, VOCABULARY).matcher().alternatives()
    assert texts == (None if alternatives is None else set(alternatives.texts))


def test_the_rest_after_tokens() -> None:
    matcher = compile_choices(["red", "green", "grey"], byte_vocabulary()).matcher()
    assert matcher.accept(ord("g")) and matcher.accept(ord("r"))
    alternatives = matcher.alternatives()
    assert alternatives is not None and set(alternatives.texts) == {b"een", b"ey"}


def test_a_special_token_is_no_text() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"b", b"<s>", b"</s>"], [3], [2])
    assert compile_lark('start: "a" | <s> "b"', vocabulary).matcher().alternatives() is None


def test_a_space_that_the_decoder_drops() -> None:
    """Both spellings count for a text, but only at its start."""
    vocabulary = Vocabulary.from_tokens([b"a", b" a", b"b", b" ", b""], [4], first_space="optional")
    matcher = compile_choices(["a", "b"], vocabulary).matcher()
    alternatives = matcher.alternatives()
    assert alternatives is not None and set(alternatives.texts) == {b"a", b"b"}
    tree = alternatives.tree(matcher)
    probabilities = dict(zip(alternatives.texts, tree.probabilities(np.zeros((len(tree.nodes), 5))), strict=True))
    assert probabilities == pytest.approx({b"a": 2 / 4 + 1 / 8, b"b": 1 / 4 + 1 / 8})


# ---- Probabilities.


class RandomModel:
    """Logits of a prefix that depend on it alone."""

    def __init__(self, width: int, seed: int) -> None:
        self.width, self.seed = width, seed

    def logits(self, prefix: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng([self.seed, *prefix]).normal(scale=2.0, size=self.width)


def brute_force(model: RandomModel, matcher: Matcher, prefix: tuple[int, ...] = ()) -> dict[tuple[int, ...], float]:
    """The probability of every sequence of tokens, end included, by the masked softmax of every step."""
    allowed = [token for token in range(model.width) if matcher.clone().accept(token)]
    logits = model.logits(prefix)
    weights = {token: float(np.exp(logits[token])) for token in allowed}
    found: dict[tuple[int, ...], float] = {}
    for token, weight in weights.items():
        share, ahead = weight / sum(weights.values()), matcher.clone()
        assert ahead.accept(token)
        rest = {(): 1.0} if token in matcher.vocabulary.eos else brute_force(model, ahead, (*prefix, token))
        found |= {(token, *tokens): share * probability for tokens, probability in rest.items()}
    return found


def random_language(rng: random.Random) -> tuple[list[str], Vocabulary]:
    """Some texts, and a vocabulary of their bytes, pieces and duplicates of them."""
    texts = sorted({"".join(rng.choices("abé", k=rng.randint(0, 5))) for _ in range(rng.randint(1, 7))})
    pieces = [rng.choice(texts).encode() for _ in range(6)]
    pieces = [piece[start : start + rng.randint(1, 3)] for piece in pieces for start in [rng.randrange(4)]]
    tokens = [b"", *[bytes([byte]) for byte in "abé".encode()], *filter(None, pieces)]
    return texts, Vocabulary.from_tokens(tokens, [0], size=len(tokens) + rng.randrange(3))


@pytest.mark.seeds(200)
def test_probabilities_equal_brute_force(seed: int) -> None:
    """Sums over all tokenizations of products of masked probabilities; they sum to one."""
    rng = random.Random(seed)
    texts, vocabulary = random_language(rng)
    matcher = compile_choices(texts, vocabulary).matcher()
    alternatives = matcher.alternatives()
    assert alternatives is not None and sorted(alternatives.texts) == sorted(text.encode() for text in texts)
    model = RandomModel(vocabulary.size, seed)
    expected = dict.fromkeys(alternatives.texts, 0.0)
    for tokens, probability in brute_force(model, matcher).items():
        expected[b"".join(vocabulary.token_bytes(token) for token in tokens[:-1])] += probability
    tree = alternatives.tree(matcher)
    probabilities = tree.probabilities(np.stack([model.logits(prefix) for prefix in tree.prefixes]))
    assert probabilities.sum() == pytest.approx(1, abs=1e-6)
    assert probabilities == pytest.approx([expected[text] for text in alternatives.texts], abs=1e-6)
    assert len(tree.nodes) <= len(brute_force(model, matcher))


def test_probabilities_of_values() -> None:
    """A number is decided by what follows it, and null by its first letter."""
    matcher = place({"type": ["integer", "null"], "minimum": 0})
    alternatives = matcher.alternatives(gap=b":", json_value=True)
    assert alternatives is not None and alternatives.has_others
    tree = alternatives.tree(matcher)
    model = RandomModel(VOCABULARY.size, 0)
    null, others = tree.probabilities(np.stack([model.logits(prefix) for prefix in tree.prefixes]))
    expected = 0.0
    for prefix, text in [((), b"")] + [(node.tokens, node.text) for node in tree.nodes if node.tokens]:
        ahead = matcher.clone()
        assert all(ahead.accept(token) for token in prefix)
        reached = _product(model, matcher, prefix)
        mask = ahead.mask()
        assert mask is not None
        for token in range(VOCABULARY.size):
            if token in mask and len(text + (spelled := VOCABULARY.token_bytes(token))) > 1:
                is_null = (text + spelled).removeprefix(b":").startswith(b"n")
                expected += is_null * reached * _product(model, ahead, (token,), prefix)
    assert null == pytest.approx(expected) and others == pytest.approx(1 - expected)


def _product(model: RandomModel, matcher: Matcher, tokens: tuple[int, ...], before: tuple[int, ...] = ()) -> float:
    """The product of the masked probabilities of tokens."""
    product, ahead = 1.0, matcher.clone()
    for number, token in enumerate(tokens):
        weights, mask = np.exp(model.logits((*before, *tokens[:number]))), ahead.mask()
        assert mask is not None and ahead.accept(token)
        product *= weights[token] / mask.mass(weights)
    return product


def test_trees_are_as_small_as_the_decision() -> None:
    matcher = place({"type": "boolean"})
    alternatives = matcher.alternatives(gap=b":", json_value=True)
    assert alternatives is not None
    tree = alternatives.tree(matcher)
    assert {node.text for node in tree.nodes} == {b"", b":"}, "the next letter decides"
    long = [f"{'ab' * 12}{number}" for number in range(2)]
    matcher = compile_choices(long, VOCABULARY).matcher()
    alternatives = matcher.alternatives()
    assert alternatives is not None
    with pytest.raises(ResourceLimit, match="limit=100 reached for the nodes of a prefix tree"):
        alternatives.tree(matcher, 100)


def test_arguments() -> None:
    matcher = compile_choices(["a", "b"], byte_vocabulary()).matcher()
    for limit in (0, 10**9):  # endless languages would fill the memory
        with pytest.raises(ArgumentError, match="limit must be"):
            matcher.alternatives(limit)
    alternatives = matcher.alternatives()
    assert alternatives is not None
    with pytest.raises(BitmaskError, match=r"1 rows of logits are needed, not an array of shape \(2, 257\)"):
        alternatives.tree(matcher).probabilities(np.zeros((2, 257)))
    mask = matcher.mask()
    assert mask is not None and mask.mass(np.arange(257) / 100) == pytest.approx((97 + 98) / 100)
    with pytest.raises(BitmaskError, match=r"not an array of shape \(1, 257\)"):
        mask.mass(np.zeros((1, 257)))
