"""Tokens that a matcher allows, and random texts of grammars."""

from __future__ import annotations

import random

import numpy as np

from constrain.engine import CompiledGrammar, Matcher, allocate_bitmask

STRUCTURE = set(b'{}[]",:')


def allowed_tokens(matcher: Matcher, budget: int | None = None) -> list[int]:
    bits = allocate_bitmask(1, matcher.vocabulary.size)
    matcher.fill_bitmask(bits, budget=budget)
    tokens: list[int] = np.unpackbits(bits.view(np.uint8), bitorder="little").nonzero()[0].tolist()
    return tokens


def walk(grammar: CompiledGrammar, rng: random.Random, steps: int, structure: float) -> bytes:
    """Random tokens, with a probability among the structural ones, and then the shortest way to the end."""
    vocabulary, matcher = grammar.vocabulary, grammar.matcher()
    document = b""
    for _ in range(steps):
        tokens = allowed_tokens(matcher)
        assert tokens, f"a dead end after {document!r}"
        few = [token for token in tokens if STRUCTURE & set(vocabulary.token_bytes(token))]
        token = rng.choice(few if few and rng.random() < structure else tokens)
        assert matcher.accept(token)
        if token in vocabulary.eos_token_ids:
            return document
        document += vocabulary.token_bytes(token)
    end = matcher.completion()
    assert matcher.accept_bytes(end) and matcher.is_accepting(), (document, end)
    return document + end
