"""Measurement of a schema: compilation, then masks along documents that are given or sampled."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from constrain._core import Matcher
from constrain.arguments import check_count
from constrain.engine.bitmask import allocate_bitmask, unpacked
from constrain.engine.compiled_grammar import CompiledGrammar, Limits
from constrain.engine.explain.place import json_place
from constrain.engine.json_schema import compile_json_schema
from constrain.engine.profile.costs import MaskCost, shown
from constrain.engine.profile.schema import SchemaProfile
from constrain.engine.vocabulary import Vocabulary
from constrain.errors import ArgumentError


def profile_schema(
    schema: dict[str, Any] | bool,
    vocab: Vocabulary,
    documents: Iterable[Sequence[int]] = (),
    *,
    num_walks: int = 4,
    max_tokens: int = 200,
    seed: int = 0,
    limits: Limits = Limits(),
) -> SchemaProfile:
    """Measure what a JSON Schema costs, on one thread.

    Masks are measured along documents: those given, and random ones, of which half of the tokens are drawn from the
    allowed ones and the others lead to an end.

    Args:
        schema: the schema.
        vocab: the vocabulary of the model.
        documents: valid documents, as token ids without an end-of-sequence token.
        num_walks: number of random documents.
        max_tokens: random documents take the shortest way to their end after this many tokens.
        seed: seed of the random documents.
        limits: limits of the grammar.

    Raises:
        SchemaError, UnsupportedSchema, UnsatisfiableSchema, ResourceLimit: the schema does not compile.
        ArgumentError: a document is not valid under the schema, with its number and the place.
    """
    check_count("num_walks", num_walks)
    check_count("max_tokens", max_tokens)
    begin = perf_counter()
    grammar = compile_json_schema(schema, vocab, limits=limits)
    compiled = perf_counter()
    states = grammar.counters["states"]
    grammar.matcher().fill_bitmask(allocate_bitmask(1, vocab.size))
    first_mask = perf_counter()
    given = [list(document) for document in documents]
    for number, document in enumerate(given):
        _check(grammar, number, document)
    # Walks fill the caches of a grammar, so they are drawn from another one.
    sampled = _walks(compile_json_schema(schema, vocab, limits=limits), num_walks, max_tokens, seed)
    first, again, budgeted = (_measured(grammar, [*given, *sampled], which == 2) for which in range(3))
    return SchemaProfile(
        compiled - begin,
        first_mask - begin,
        states,
        grammar.counters["states"],
        grammar.nbytes,
        (len(given), len(sampled)),
        first,
        again,
        budgeted,
        grammar.counters,
    )


def _check(grammar: CompiledGrammar, number: int, document: Sequence[int]) -> None:
    text = b"".join(map(grammar.vocabulary.token_bytes, document)).decode(errors="replace")
    explanation = grammar.explain(text)
    if not explanation.accepted:
        raise ArgumentError(f"document {number} is not valid under the schema: {explanation}")


def _measured(
    grammar: CompiledGrammar, documents: Sequence[Sequence[int]], within_budget: bool
) -> tuple[MaskCost, ...]:
    bits = allocate_bitmask(1, grammar.vocabulary.size)
    costs = []
    for number, tokens in enumerate(documents):
        matcher, before = grammar.matcher(), b""
        for place, token in enumerate(tokens):
            left = len(tokens) - place + 1
            costs.append(_cost(grammar, matcher, bits, number, before, left if within_budget else None))
            matcher.accept(token)
            before += grammar.vocabulary.token_bytes(token)
        costs.append(_cost(grammar, matcher, bits, number, before, 1 if within_budget else None))
    return tuple(costs)


def _cost(
    grammar: CompiledGrammar,
    matcher: Matcher,
    bits: npt.NDArray[np.int32],
    document: int,
    before: bytes,
    budget: int | None,
) -> MaskCost:
    if budget is not None:
        # `min_tokens` is an upper bound, which a document may undercut.
        budget = max(budget, matcher.min_tokens())
    counted = grammar.counters
    begin = perf_counter()
    matcher.fill_bitmask(bits, 0, budget)
    seconds = perf_counter() - begin
    more = _difference(counted, grammar.counters)
    return MaskCost(
        document,
        len(before),
        json_place(before.decode(errors="replace")),
        shown(before),
        seconds,
        len(unpacked(bits)),
        more["masks_found"] > 0 and not more["masks_built"],
        more["nodes_visited"],
        more["frames_walked"],
        more["rows_built"],
        budget is not None,
    )


def _difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in after.items()}


def _walks(grammar: CompiledGrammar, count: int, max_tokens: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    ids = {grammar.vocabulary.token_bytes(token): token for token in range(grammar.vocabulary.size)}
    return [_walk(grammar, max_tokens, rng, ids) for _ in range(count)]


def _walk(grammar: CompiledGrammar, max_tokens: int, rng: random.Random, ids: Mapping[bytes, int]) -> list[int]:
    """Return a random document, as tokens."""
    matcher, bits = grammar.matcher(), allocate_bitmask(1, grammar.vocabulary.size)
    ends = set(grammar.vocabulary.eos_token_ids)
    tokens: list[int] = []
    while not matcher.is_accepting() or (len(tokens) < max_tokens and rng.random() < 0.5):
        matcher.fill_bitmask(bits)
        allowed = [int(token) for token in unpacked(bits) if int(token) not in ends]
        if not allowed:
            break
        follows = len(tokens) >= max_tokens or rng.random() < 0.5
        completion = matcher.completion() if follows else b""
        token = _longest(completion, ids, set(allowed)) if completion else rng.choice(allowed)
        matcher.accept(token)
        tokens.append(token)
    return tokens


def _longest(text: bytes, ids: Mapping[bytes, int], allowed: set[int]) -> int:
    """Return the allowed token of the most bytes that begins a text."""
    lengths = range(len(text), 0, -1)
    return next(ids[text[:n]] for n in lengths if ids.get(text[:n]) in allowed)
