"""Matchers of many sequences that accept a token each in one native call."""

from __future__ import annotations

import random

import pytest

from constrain import ExLlamaV2Tokenizer
from constrain._core import Mask, Turns, Workers
from constrain.engine import CompiledGrammar, Matcher, Vocabulary, allocate_bitmask, compile_json_schema, compile_regex
from constrain.engine.bitmask import unpacked
from constrain.filters.vocabularies import vocabulary_of

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}}}


def key(matcher: Matcher, budget: int | None = None) -> int | None:
    mask = matcher.mask(budget)
    return None if mask is None else mask.id


def allowed(matcher: Matcher) -> list[int]:
    bits = allocate_bitmask(1, matcher.vocabulary.size)
    matcher.fill_bitmask(bits)
    return unpacked(bits[0]).tolist()


def grammars(vocabulary: Vocabulary) -> list[CompiledGrammar]:
    patterns = [compile_regex(pattern, vocabulary) for pattern in ("[a-z]{1,30}", "(the|fox)+[0-9]*", r"[\s\S]*")]
    return [*patterns, compile_json_schema(SCHEMA, vocabulary)]


def results(batch: Turns, count: int) -> tuple[list[bool], list[Mask | None]]:
    taken, masks = zip(*map(batch.result, range(count)), strict=True)
    assert all(map(batch.done, range(count)))
    return list(taken), list(masks)


@pytest.mark.parametrize("threads", [0, 3])
def test_many_matchers_take_a_token_as_one_does(tokenizer: ExLlamaV2Tokenizer, threads: int) -> None:
    rng, workers = random.Random(3), Workers(threads)
    together = [grammar.matcher() for grammar in grammars(vocabulary_of(tokenizer)) for _ in range(5)]
    alone = [matcher.clone() for matcher in together]
    taken, masks = results(workers.take(together, [None] * len(alone), [None] * len(alone)), len(alone))
    assert all(taken) and [None if mask is None else mask.id for mask in masks] == [key(each) for each in alone]
    for _ in range(12):
        tokens = [rng.choice(allowed(each)) if rng.random() < 0.9 else rng.randrange(384) for each in alone]
        budgets = [rng.choice([None, 12, 40]) for _ in alone]
        taken, masks = results(workers.take(together, tokens, budgets), len(alone))
        for each, other, token, budget, done, mask in zip(alone, together, tokens, budgets, taken, masks, strict=True):
            before = each.accepted_tokens
            if not each.accept(token):
                assert not done and mask is None
            elif budget is not None and budget < each.min_tokens():
                assert not done and other.accepted_tokens == before  # it is asked again, for its error
                assert other.accept(token)
            else:
                assert done and (None if mask is None else mask.id) == key(each, budget)
            assert other.accepted_tokens == each.accepted_tokens and key(other) == key(each)


def test_arguments_of_different_lengths(tokenizer: ExLlamaV2Tokenizer) -> None:
    matchers = [grammar.matcher() for grammar in grammars(vocabulary_of(tokenizer))]
    with pytest.raises(ValueError, match="as many tokens as matchers"):
        Workers(1).take(matchers, [5], [None] * len(matchers))
    with pytest.raises(ValueError, match="as many budgets as matchers"):
        Workers(1).take(matchers, [5] * len(matchers), [None])
    with pytest.raises(TypeError, match="None is no matcher"):
        Workers(1).take([None], [5], [None])  # type: ignore[list-item]
    none = Workers(1).take([], [], [])
    for ask in (none.done, none.result):
        with pytest.raises(IndexError, match="no such matcher"):
            ask(0)


def test_a_matcher_is_waited_for_alone(tokenizer: ExLlamaV2Tokenizer) -> None:
    matchers = [grammar.matcher() for grammar in grammars(vocabulary_of(tokenizer))]
    batch = Workers(0).take(matchers, [None] * len(matchers), [None] * len(matchers))
    assert not batch.done(1)
    # There are no threads, so the caller computes it, after the earlier ones of the batch.
    assert batch.result(1)[0]
    assert batch.done(0) and batch.done(1) and not batch.done(2)
