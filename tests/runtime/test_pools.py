"""The mask pool on the device: masks are uploaded once, and the least recently used are evicted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from constrain.engine import Vocabulary, compile_choices
from constrain.filters.id_masks import pack
from constrain.filters.masks import RowMask, TokenMask, row, token_list
from constrain.kernels.graphs import Uploads
from constrain.runtime.sampler.params import TokenBias
from constrain.runtime.sampler.pools import BiasPool, MaskPool

CPU = torch.device("cpu")


def mask(*tokens: int) -> RowMask:
    return RowMask(pack(tokens, 2))


@pytest.fixture
def uploads() -> Uploads:
    return Uploads(CPU)


def test_a_mask_is_sent_once(uploads: Uploads) -> None:
    pool = MaskPool(4, 2, uploads, CPU)
    rows = pool.rows([mask(3), None, mask(40), mask(3)])
    assert rows == [0, -1, 1, 0] and uploads.bytes == 16
    assert pool.rows([mask(40), mask(3)]) == [1, 0] and uploads.bytes == 16
    assert pool.bits[:2].tolist() == [[8, 0], [0, 256]]


def test_the_least_recently_used_mask_is_overwritten(uploads: Uploads) -> None:
    pool = MaskPool(3, 2, uploads, CPU)
    assert pool.rows([mask(1), mask(2), mask(3)]) == [0, 1, 2]
    pool.rows([mask(1)])
    assert pool.rows([mask(4), mask(1)]) == [1, 0]
    assert pool.bits[1].tolist() == [16, 0]
    assert pool.rows([mask(2), mask(3)]) == [0, 2]


def test_biases_of_one_pass_do_not_overwrite_each_other(uploads: Uploads) -> None:
    pool = BiasPool(3, 4, uploads, CPU)
    first, second, third, fourth = biases = [TokenBias(torch.full((3,), float(number))) for number in range(4)]
    assert pool.rows([None]) == [-1] and not len(pool.biases)
    assert pool.rows([first, None, second, third]) == [0, -1, 1, 2]
    assert pool.rows([fourth, second]) == [0, 1], "the first is overwritten"
    rows = pool.rows(biases[:3])
    assert sorted(rows) == [0, 1, 2], "there is room for all of a pass"
    assert pool.biases[rows].tolist() == [[number] * 3 + [0] for number in (0.0, 1.0, 2.0)]


def test_masks_of_the_engine_are_named_by_it() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"b", b"ab", b""], [3])
    first, second = (compile_choices(choices, vocabulary).matcher() for choices in (["ab"], ["abb"]))
    masks: list[TokenMask | None] = [matcher.mask() for matcher in (first, second)]
    assert masks[0] is not None and masks[1] is not None
    assert masks[0].id == masks[1].id
    assert masks[0].count == 2 and masks[0].tokens == [0, 2] and row(masks[0], 3).tolist() == [5, 0, 0]
    assert first.accept(0)
    narrower = first.mask()
    assert narrower is not None and narrower.id != masks[0].id and narrower.tokens == [1]
    bits = np.full((2, 3), -1, dtype=np.int32)
    narrower.fill(bits, 1)
    assert bits.tolist() == [[-1] * 3, [2, 0, 0]]


@pytest.mark.parametrize("tokens", [[], [33], [31], [1, 2], [1, 40, 63]])
def test_a_row_knows_its_tokens(tokens: list[int]) -> None:
    made = mask(*tokens)
    assert made.count == len(tokens) and made.tokens == token_list(made) == tokens
    assert row(made, 2).tolist() == pack(tokens, 2).tolist()


def test_many_tokens_are_not_listed() -> None:
    assert token_list(RowMask(pack(range(64), 3))) == list(range(64))
    many = RowMask(pack(range(65), 3))
    assert many.count == 65 and token_list(many) is None and token_list(None) is None
