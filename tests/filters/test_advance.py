"""Tokens that the matchers of many texts take at the same time."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from constrain import ExLlamaV2Tokenizer
from constrain._core import Mask, Turns, Workers
from constrain.engine import CompiledGrammar, Matcher, Vocabulary, allocate_bitmask, compile_json_schema, compile_regex
from constrain.engine.advance import Advance
from constrain.engine.bitmask import unpacked
from constrain.errors import FilterError
from constrain.filters import ExLlamaV2JSONSchemaFilter, ExLlamaV2PrefixFilter, ExLlamaV2RegexFilter
from constrain.filters.engine import vocabulary_of
from constrain.filters.masks import row
from constrain.filters.stack import FilterStack

MODEL: Any = SimpleNamespace(config=SimpleNamespace(vocab_size=384))
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


def results(turns: Turns, count: int) -> tuple[list[bool], list[Mask | None]]:
    taken, masks = zip(*map(turns.result, range(count)), strict=True)
    assert all(map(turns.done, range(count)))
    return list(taken), list(masks)


@pytest.mark.parametrize("threads", [0, 3])
def test_many_matchers_take_a_token_as_one_does(tokenizer: ExLlamaV2Tokenizer, threads: int) -> None:
    draw, workers = random.Random(3), Workers(threads)
    together = [grammar.matcher() for grammar in grammars(vocabulary_of(tokenizer)) for _ in range(5)]
    alone = [matcher.clone() for matcher in together]
    taken, masks = results(workers.take(together, [None] * len(alone), [None] * len(alone)), len(alone))
    assert all(taken) and [None if mask is None else mask.id for mask in masks] == [key(each) for each in alone]
    for _ in range(12):
        tokens = [draw.choice(allowed(each)) if draw.random() < 0.9 else draw.randrange(384) for each in alone]
        budgets = [draw.choice([None, 12, 40]) for _ in alone]
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
    turns = Workers(0).take(matchers, [None] * len(matchers), [None] * len(matchers))
    assert not turns.done(1)
    assert turns.result(1)[0]  # by whoever asks: there are no other threads, and what comes before it is done as well
    assert turns.done(0) and turns.done(1) and not turns.done(2)


def stacks(tokenizer: ExLlamaV2Tokenizer) -> list[FilterStack]:
    def regex(pattern: str) -> ExLlamaV2RegexFilter:
        return ExLlamaV2RegexFilter(MODEL, tokenizer, pattern)

    filters: list[list[Any]] = [
        [regex("[a-z ]{2,40}")],
        [regex("[a-z ]{2,40}"), regex("[a-f ]{3,}")],
        [ExLlamaV2JSONSchemaFilter(MODEL, tokenizer, SCHEMA)],
        [ExLlamaV2PrefixFilter(MODEL, tokenizer, ["the ", "a "]), regex("[a-z ]{9,}")],
    ]
    made = [FilterStack(each, tokenizer, 384) for each in filters]
    for each in made:
        each.begin()
    return made


def test_filters_that_were_promised_are_where_others_are(tokenizer: ExLlamaV2Tokenizer) -> None:
    draw, workers = random.Random(5), Workers(2)
    promised, ordinary = stacks(tokenizer), stacks(tokenizer)
    for step in range(12):
        if step == 0:
            advance = Advance(workers)
            assert [stack.promise(advance, None, None) for stack in promised] == [True, True, True, False]
            advance.start()
        masks = [stack.mask() for stack in promised]
        names = [None if mask is None else mask.id for mask in masks]
        assert names == [None if mask is None else mask.id for mask in (stack.mask() for stack in ordinary)]
        rows = [np.full(12, -1, dtype=np.int32) if mask is None else row(mask, 12) for mask in masks]
        tokens = [draw.choice(unpacked(bits).tolist()) for bits in rows]
        advance = Advance(workers)
        for stack, token in zip(promised, tokens, strict=True):
            # A filter that does more than the matcher is told in the ordinary way.
            assert stack.promise(advance, token, 60 - step) == (stack is not promised[-1])
        advance.start()
        for stack, token in zip([*promised, *ordinary], tokens * 2, strict=True):
            stack.feed(token)
            stack.budget = 60 - step


class Counting(ExLlamaV2RegexFilter):
    """Somebody's own filter, which hears of every token."""

    heard = 0

    def feed(self, token: torch.Tensor) -> None:
        self.heard += 1
        super().feed(token)


def test_a_subclass_hears_of_its_tokens(tokenizer: ExLlamaV2Tokenizer) -> None:
    counting = Counting(MODEL, tokenizer, "[a-z ]+")
    stack, advance = FilterStack([counting], tokenizer, 384), Advance(Workers(0))
    stack.begin()
    token = int(tokenizer.encode("the")[0, 0])
    assert not stack.promise(advance, token, None)
    advance.start()
    stack.feed(token)
    assert counting.heard == 1 and counting.matcher.accepted_tokens == 1


def test_a_token_outside_the_grammar_is_an_error_as_ever(tokenizer: ExLlamaV2Tokenizer) -> None:
    stack = FilterStack([ExLlamaV2RegexFilter(MODEL, tokenizer, "[0-9]+")], tokenizer, 384)
    advance = Advance(Workers(1))
    stack.begin()
    token = int(tokenizer.encode("the")[0, 0])
    assert stack.promise(advance, token, None)
    advance.start()
    stack.feed(token)
    with pytest.raises(FilterError, match=f"token {token} was put into the sequence"):
        stack.mask()


def test_what_was_promised_is_waited_for(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = ExLlamaV2RegexFilter(MODEL, tokenizer, "[a-z ]+")
    stack, advance = FilterStack([filter_], tokenizer, 384), Advance(Workers(1))
    stack.begin()
    token = int(tokenizer.encode("the")[0, 0])
    assert stack.promise(advance, token, None)
    assert advance.add(filter_.matcher, token, None) is None  # nobody can take two tokens at a time
    advance.start()
    stack.feed(token)
    stack.drop()
    assert filter_.matcher.accepted_tokens == 1
    stack.begin()
    assert filter_.matcher.accepted_tokens == 0
