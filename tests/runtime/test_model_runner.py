"""Passes over scattered sequences give what each sequence gives by itself in a cache of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from constrain.model import ExLlamaV2Cache, ExLlamaV2Cache_8bit
from constrain.model.paged import PagedRow

SIZE = 8


def row(ids: torch.Tensor, past: int, pages: list[int], logits: int) -> PagedRow:
    return PagedRow(ids[past:], past, pages, SIZE, logits)


@pytest.mark.parametrize("name", ["llama", "mistral_window", "gemma2", "gemma3", "qwen2", "phi3_longrope"])
@pytest.mark.parametrize("kind", [ExLlamaV2Cache, ExLlamaV2Cache_8bit])
def test_rows_are_independent_of_one_another_and_of_where_they_lie(
    checkpoint: Any, name: str, kind: type[ExLlamaV2Cache]
) -> None:
    model = checkpoint(name).load()
    random = torch.Generator().manual_seed(1)
    first, second = (torch.randint(3, 99, (n,), generator=random) for n in (29, 13))
    cache = kind(model, max_seq_len=64)
    # Scattered, and side by side; in two passes of different widths.
    assert model.forward_paged([row(first[:20], 0, [5, 1, 6, 0], 0)], cache) is None
    got = model.forward_paged([row(first, 20, [5, 1, 6, 0], 9), row(second, 0, [2, 3], 1)], cache)
    expected = []
    for ids, wanted, cut in ((first, 9, 20), (second, 1, 0)):
        alone = kind(model, max_seq_len=64)
        if cut:
            model.forward(ids[None, :cut], alone, preprocess_only=True)
        expected.append(model.forward(ids[None, cut:], alone)[0, -wanted:])
    torch.testing.assert_close(got, torch.cat(expected), atol=2e-5, rtol=1e-4)
