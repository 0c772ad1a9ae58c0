"""Buffers that masks are written to, and threads that write them."""

from __future__ import annotations

import random
import threading
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from constrain.engine import (
    CompiledGrammar,
    Matcher,
    Vocabulary,
    allocate_bitmask,
    compile_choices,
    compile_json_schema,
    fill_bitmasks,
)
from constrain.errors import BitmaskError

Allowed = Callable[[Matcher, int], list[int]]

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"enum": ["red", "green"]}}},
    "required": ["name"],
}
TEXTS = [
    b"",
    b"{",
    b'{"na',
    b'{"name": "Jo',
    b'{"name": "Jo", "tags": ["r',
    b'{"other": [1, {"a": "b"}], "x',
    b'{"name":""}',
]


@pytest.fixture(scope="module")
def grammar(bpe_vocab: Vocabulary) -> CompiledGrammar:
    return compile_json_schema(SCHEMA, bpe_vocab)


def at(grammar: CompiledGrammar, text: bytes) -> Matcher:
    matcher = grammar.matcher()
    assert matcher.accept_bytes(text)
    return matcher


@pytest.fixture
def matcher() -> Matcher:
    """Allows token 1 of 40, so that a row has two words: 2 and 0."""
    tokens = [b"a", b"b", *[b""] * 37, b""]
    return compile_choices(["b"], Vocabulary.from_tokens(tokens, [39])).matcher()


@pytest.mark.parametrize("size, words", [(1, 1), (32, 1), (33, 2), (64, 2), (65, 3)])
def test_a_new_bitmask_allows_everything(size: int, words: int) -> None:
    bits = allocate_bitmask(3, size)
    assert bits.shape == (3, words)
    assert bits.dtype == np.int32
    assert (bits == -1).all()


def test_one_row_or_many(matcher: Matcher) -> None:
    one = np.full(2, -1, dtype=np.int32)
    assert matcher.fill_bitmask(one) is True
    assert one.tolist() == [2, 0]
    many = np.full((3, 2), -1, dtype=np.int32)
    matcher.fill_bitmask(many, 1)
    assert many.tolist() == [[-1, -1], [2, 0], [-1, -1]]


def test_wider_rows_are_zero_at_the_end(matcher: Matcher) -> None:
    bits = np.full((2, 5), -1, dtype=np.int32)
    matcher.fill_bitmask(bits, 1)
    assert bits.tolist() == [[-1] * 5, [2, 0, 0, 0, 0]]


def test_unsigned_numbers_are_bits_as_well(matcher: Matcher) -> None:
    bits = np.zeros(2, dtype=np.uint32)
    matcher.fill_bitmask(bits)
    assert bits.tolist() == [2, 0]


def test_torch_tensors(matcher: Matcher) -> None:
    bits = torch.full((2, 3), -1, dtype=torch.int32)
    matcher.fill_bitmask(bits, 1)
    assert bits.tolist() == [[-1, -1, -1], [2, 0, 0]]
    row = torch.zeros(2, dtype=torch.int32)
    matcher.fill_bitmask(row)
    assert row.tolist() == [2, 0]


def test_rows_that_are_views_of_a_larger_buffer(matcher: Matcher) -> None:
    bits = torch.full((4, 2), -1, dtype=torch.int32)
    matcher.fill_bitmask(bits[2])
    matcher.fill_bitmask(bits[1:3], 0)
    assert bits.tolist() == [[-1, -1], [2, 0], [2, 0], [-1, -1]]


def read_only() -> Any:
    bits = np.zeros((1, 2), dtype=np.int32)
    bits.flags.writeable = False
    return bits


@pytest.mark.parametrize(
    "bits, row",
    [
        pytest.param(np.zeros((1, 2), dtype=np.int64), 0, id="int64"),
        pytest.param(np.zeros((1, 2), dtype=np.float32), 0, id="float32"),
        pytest.param(np.zeros((1, 8), dtype=np.int8), 0, id="int8"),
        pytest.param(np.zeros((1, 2), dtype=">i4"), 0, id="big-endian"),
        pytest.param(np.zeros((1, 2, 1), dtype=np.int32), 0, id="three-dimensions"),
        pytest.param(np.zeros((), dtype=np.int32), 0, id="no-dimension"),
        pytest.param(np.zeros((1, 1), dtype=np.int32), 0, id="too-narrow"),
        pytest.param(np.zeros((0, 2), dtype=np.int32), 0, id="no-rows"),
        pytest.param(np.zeros((1, 2), dtype=np.int32), 1, id="row-beyond"),
        pytest.param(np.zeros((1, 2), dtype=np.int32), -1, id="negative-row"),
        pytest.param(np.zeros(2, dtype=np.int32), 1, id="row-of-one-dimension"),
        pytest.param(np.zeros((2, 4), dtype=np.int32)[:, ::2], 0, id="strided"),
        pytest.param(np.zeros((2, 4), dtype=np.int32).T, 0, id="column-major"),
        pytest.param(read_only(), 0, id="read-only"),
        pytest.param(bytes(8), 0, id="bytes"),
        pytest.param(bytearray(8), 0, id="bytearray"),
        pytest.param([0, 0], 0, id="list"),
        pytest.param(None, 0, id="none"),
        pytest.param(torch.zeros((1, 2), dtype=torch.int64), 0, id="torch-int64"),
        pytest.param(torch.zeros((1, 2), dtype=torch.float32), 0, id="torch-float32"),
        pytest.param(torch.zeros((2, 2), dtype=torch.int32).T[:, :1], 0, id="torch-strided"),
        pytest.param(torch.zeros((1, 1), dtype=torch.int32), 0, id="torch-too-narrow"),
        pytest.param(torch.zeros((1, 2), dtype=torch.int32), 1, id="torch-row-beyond"),
        pytest.param(torch.zeros((1, 2), dtype=torch.int32, device="meta"), 0, id="torch-elsewhere"),
    ],
)
def test_buffers_that_do_not_fit(bits: Any, row: int, matcher: Matcher) -> None:
    with pytest.raises(BitmaskError):
        matcher.fill_bitmask(bits, row)
    with pytest.raises(BitmaskError):
        fill_bitmasks([matcher], bits, [row])


def test_nothing_is_restricted_where_every_token_is_allowed() -> None:
    matcher = compile_json_schema({"const": 1}, Vocabulary.from_tokens([b"1"], [0])).matcher()
    assert matcher.accept_bytes(b"1")
    assert matcher.fill_bitmask(np.zeros(1, dtype=np.int32)) is False


# ---- Threads.


def test_rows_filled_together_equal_rows_filled_one_by_one(grammar: CompiledGrammar, bpe_vocab: Vocabulary) -> None:
    matchers = [at(grammar, text) for text in TEXTS * 4]
    rows = random.Random(0).sample(range(40), len(matchers))
    expected = allocate_bitmask(40, bpe_vocab.size)
    for matcher, row in zip(matchers, rows, strict=True):
        matcher.fill_bitmask(expected, row)
    for threads in (None, 1, 2, 64):
        together = allocate_bitmask(40, bpe_vocab.size)
        fill_bitmasks(matchers, together, rows, threads)
        np.testing.assert_array_equal(together, expected)
    tensor = torch.full(expected.shape, -1, dtype=torch.int32)
    fill_bitmasks(matchers, tensor, rows)
    np.testing.assert_array_equal(tensor.numpy(), expected)


def test_by_default_the_first_rows_are_filled(grammar: CompiledGrammar, bpe_vocab: Vocabulary) -> None:
    bits = allocate_bitmask(3, bpe_vocab.size)
    fill_bitmasks([at(grammar, TEXTS[1]), at(grammar, TEXTS[3])], bits)
    assert (bits[:2] != -1).any(axis=1).all()
    assert (bits[2] == -1).all()
    fill_bitmasks([], bits)


def test_as_many_rows_as_matchers_are_needed(grammar: CompiledGrammar, bpe_vocab: Vocabulary) -> None:
    with pytest.raises(BitmaskError, match="one for each matcher"):
        fill_bitmasks([grammar.matcher()], allocate_bitmask(2, bpe_vocab.size), [0, 1])


@pytest.mark.parametrize(
    "wrong",
    [{"matchers": None}, {"matchers": [None]}, {"rows": 0}, {"rows": [0.5]}, {"budgets": [-1]}, {"threads": -1}],
    ids=str,
)
def test_arguments_of_the_wrong_type_are_named(
    grammar: CompiledGrammar, bpe_vocab: Vocabulary, wrong: dict[str, Any]
) -> None:
    arguments = {"matchers": [grammar.matcher()], "bits": allocate_bitmask(1, bpe_vocab.size), **wrong}
    with pytest.raises(BitmaskError, match="matchers must be a list"):
        fill_bitmasks(**arguments)


@pytest.mark.parametrize("size", [-1, 2.5, "32", None])
def test_a_bitmask_has_a_whole_number_of_tokens(size: Any) -> None:
    with pytest.raises(BitmaskError, match="size must be a whole number"):
        allocate_bitmask(1, size)


def masks_of_a_walk(grammar: CompiledGrammar, seed: int) -> list[bytes]:
    """The masks along a random walk of forty tokens, with a clone taken and dropped at each."""
    rng, matcher, size = random.Random(seed), grammar.matcher(), grammar.vocabulary.size
    bits, masks = allocate_bitmask(1, size), []
    for _ in range(40):
        matcher.clone().fill_bitmask(bits)
        masks.append(bits.tobytes())
        tokens = np.unpackbits(bits.view(np.uint8), bitorder="little").nonzero()[0]
        assert matcher.accept(int(rng.choice(tokens)))
    return masks


def test_eight_threads_sharing_a_grammar_equal_one(bpe_vocab: Vocabulary) -> None:
    shared = compile_json_schema(SCHEMA, bpe_vocab)
    found: dict[int, list[bytes]] = {}
    barrier = threading.Barrier(8)

    def work(seed: int) -> None:
        barrier.wait()
        found[seed] = masks_of_a_walk(shared, seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = compile_json_schema(SCHEMA, bpe_vocab)
    assert found == {seed: masks_of_a_walk(alone, seed) for seed in range(8)}


def test_clones_on_other_threads(grammar: CompiledGrammar, bpe_vocab: Vocabulary) -> None:
    """Clones share memory with one another, and may all be moved at once."""
    first = at(grammar, b'{"a": [')
    clones = [first.clone() for _ in range(8)]
    barrier = threading.Barrier(8)
    texts = [b"%d, " % i * 50 + b'"' + b"%c" % (97 + i) * 100 for i in range(8)]
    results = [False] * 8

    def work(i: int) -> None:
        barrier.wait()
        results[i] = all(clones[i].accept_bytes(texts[i][k : k + 1]) for k in range(len(texts[i])))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8
    expected, actual = allocate_bitmask(8, bpe_vocab.size), allocate_bitmask(8, bpe_vocab.size)
    for i, text in enumerate(texts):
        at(grammar, b'{"a": [' + text).fill_bitmask(expected, i)
        clones[i].fill_bitmask(actual, i)
    np.testing.assert_array_equal(actual, expected)
    assert first.accepted_tokens == 1


def test_a_refused_buffer_is_released(matcher: Matcher) -> None:
    for bits in (array("i", [0]), array("d", [0.0])):
        with pytest.raises(BitmaskError):
            matcher.fill_bitmask(bits)
        bits.append(0)  # a BufferError while something refers to the buffer
