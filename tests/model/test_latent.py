"""The cache of latent attention. Parity is in test_parity.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from constrain.model import ExLlamaV2Cache, ExLlamaV2Cache_8bit, ExLlamaV2Cache_Q8, ExLlamaV2CacheBase

RANK, ROTATED = 24, 8


def test_a_token_has_one_state_for_all_heads(checkpoint: Callable[[str], Any], ids: torch.Tensor) -> None:
    model = checkpoint("deepseek_v3").load()
    assert (model.config.num_attention_heads, model.config.num_key_value_heads) == (4, 1)
    cache = ExLlamaV2Cache(model, batch_size=2, max_seq_len=32)
    assert cache.layer_bytes() == 2 * 32 * 2 * (ROTATED + RANK) * 4
    model.forward(ids, cache)
    keys, values = (states[1] for states in (cache.key_states, cache.value_states))
    # The key is the value, but for the features that are rotated.
    assert torch.equal(keys[..., ROTATED:], values[..., ROTATED:])
    assert not torch.allclose(keys[:, 1:21, :, :ROTATED], values[:, 1:21, :, :ROTATED])


@pytest.mark.parametrize(("kind", "tolerance"), [(ExLlamaV2Cache_8bit, 0.5), (ExLlamaV2Cache_Q8, 0.04)])
def test_in_fewer_bits(
    kind: type[ExLlamaV2CacheBase], tolerance: float, checkpoint: Callable[[str], Any], ids: torch.Tensor
) -> None:
    family = checkpoint("deepseek_v3")
    model = family.load()
    expected = family.logits(ids)
    error = model.forward(ids, kind(model, batch_size=2, max_seq_len=32))[..., :99] - expected
    # The median, since a token may be given other experts.
    assert 1e-4 < float((error.norm(dim=-1) / expected.norm(dim=-1)).median()) < tolerance
