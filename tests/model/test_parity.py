"""Every family against transformers: the same logits at every position, however the tokens come in."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from constrain.model import ExLlamaV2Cache

VOCAB = 99
TOLERANCE = 1e-4


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.shape[:-1] == expected.shape[:-1] and actual.shape[-1] == 128
    assert (actual[..., VOCAB:] == -65504).all()
    torch.testing.assert_close(actual[..., :VOCAB], expected, atol=TOLERANCE, rtol=0)
    # Logits that hardly differ from each other would agree whatever was left out.
    assert expected.std() > 0.5


def test_prefill(family: Any, ids: torch.Tensor) -> None:
    model = family.load()
    expected = family.logits(ids)
    assert_same(model.forward(ids), expected)
    assert_same(model.forward(ids, ExLlamaV2Cache(model, batch_size=2, max_seq_len=32)), expected)


def test_token_by_token(family: Any, ids: torch.Tensor) -> None:
    model = family.load()
    cache = ExLlamaV2Cache(model, batch_size=2, max_seq_len=21)
    steps = [model.forward(ids[:, i : i + 1], cache) for i in range(ids.shape[1])]
    assert cache.current_seq_len == ids.shape[1]
    assert_same(torch.cat(steps, dim=1), family.logits(ids))


def test_in_uneven_chunks(family: Any, ids: torch.Tensor) -> None:
    model = family.load(max_input_len=4)
    cache = ExLlamaV2Cache(model, batch_size=2, max_seq_len=32)
    first = model.forward(ids[:, :13], cache)
    second = model.forward(ids[:, 13:], cache)
    assert_same(torch.cat((first, second), dim=1), family.logits(ids))


def test_left_padding(family: Any, ids: torch.Tensor) -> None:
    model = family.load()
    padding = torch.tensor([0, 8])
    padded = ids.clone()
    padded[1, :8] = 0
    expected = family.logits(padded, padding)
    mask = torch.zeros(2, 21, dtype=torch.half)
    mask[1, :8] = -torch.inf

    cache = ExLlamaV2Cache(model, batch_size=2, max_seq_len=32)
    offsets = -padding.to(torch.int)
    prefill = model.forward(padded[:, :17], cache, input_mask=mask[:, :17], position_offsets=offsets)
    steps = [
        model.forward(padded[:, i : i + 1], cache, input_mask=mask[:, :17], position_offsets=offsets)
        for i in range(17, 21)
    ]
    logits = torch.cat((prefill, *steps), dim=1)
    assert_same(logits[:1], expected[:1])
    assert_same(logits[1:, 8:], expected[1:, 8:])


@pytest.mark.parametrize("name", ["phi3_longrope", "phi4_mini"])
def test_longrope_beyond_the_original_length(name: str, checkpoint: Any, ids: torch.Tensor) -> None:
    """Keys stay in the cache as they are, so those of the first positions are rotated as those of the last."""
    family = checkpoint(name)
    long = ids.repeat(1, 4)
    model = family.load(max_seq_len=128, max_input_len=16)
    cache = ExLlamaV2Cache(model, batch_size=2)
    parts = [model.forward(long[:, :70], cache), *(model.forward(long[:, i : i + 1], cache) for i in range(70, 84))]
    assert_same(torch.cat(parts, dim=1), family.logits(long))
