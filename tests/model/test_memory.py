"""Estimates of memory agree with load_autosplit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from constrain.errors import ModelError
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Cache_Q4, ExLlamaV2CacheBase
from constrain.model.memory import (
    longest_cache,
    module_sizes,
    place,
    place_with_cache,
    token_bytes,
    working_bytes,
)

RESERVES = 192 * 1024**2, 64 * 1024**2


def give_gpus(monkeypatch: pytest.MonkeyPatch, *free: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free[index] + RESERVES[index], 0))


def test_bytes_of_a_token(llama_model: ExLlamaV2) -> None:
    # Three layers, and two heads of 12 of keys and of values; codes have groups of 4.
    assert token_bytes(llama_model, ExLlamaV2Cache) == 3 * 2 * 2 * 12 * 4
    assert token_bytes(llama_model, ExLlamaV2Cache_Q4) == 3 * 2 * 2 * (6 + 3 * 2)


@pytest.mark.parametrize("kind", [ExLlamaV2Cache, ExLlamaV2Cache_Q4])
@pytest.mark.parametrize("shares", [(1.0,), (0.4, 0.6), (0.05, 0.95)])
def test_the_longest_cache_fits_and_no_longer_one(
    llama_model: ExLlamaV2,
    kind: type[ExLlamaV2CacheBase],
    shares: tuple[float, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = sum(module_sizes(llama_model)) + 5000 * token_bytes(llama_model, kind)
    working = working_bytes(llama_model, kind(llama_model, max_seq_len=5000, lazy=True))
    give_gpus(monkeypatch, *(int(room * share) + working for share in shares))
    tokens = longest_cache(llama_model, kind)
    assert 0 < tokens <= 5000 and tokens % 512 == 0

    def placed(length: int) -> list[torch.device]:
        return place_with_cache(llama_model, kind(llama_model, max_seq_len=length, lazy=True))

    assert len(placed(tokens)) == len(llama_model.modules)
    with pytest.raises(ModelError, match="Insufficient VRAM"):
        placed(tokens + 512)


@pytest.mark.parametrize("kind", [ExLlamaV2Cache, ExLlamaV2Cache_Q4])
def test_passes_need_room_too(
    llama_model: ExLlamaV2, kind: type[ExLlamaV2CacheBase], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = kind(llama_model, max_seq_len=512, lazy=True)
    needed = sum(module_sizes(llama_model, cache.layer_bytes()))
    working = working_bytes(llama_model, cache)
    # Gate, up and their product, of all tokens of a pass, of which there are no more than positions.
    assert working > 64 * 3 * 80 * 4
    give_gpus(monkeypatch, needed + working)
    place_with_cache(llama_model, cache)
    give_gpus(monkeypatch, needed + working - 1)
    with pytest.raises(ModelError, match="Insufficient VRAM"):
        place_with_cache(llama_model, cache)
    llama_model.config.max_input_len = 32
    place_with_cache(llama_model, cache)


def test_a_tied_head_takes_memory_only_where_the_embedding_is_not(
    checkpoint: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = checkpoint("llama_tied").load()
    sizes, gigabyte = module_sizes(model), 1024**3
    assert sizes[-1] == 0 and sum(sizes) == sum(tensor_bytes(model))
    give_gpus(monkeypatch, 0, 0)
    one, embedding = sum(sizes) / gigabyte, sizes[0] / gigabyte
    assert {*place(model, [one])} == {torch.device("cuda:0")}
    assert place(model, [embedding, one])[-1] == torch.device("cuda:1")
    with pytest.raises(ModelError, match="Insufficient VRAM"):
        place(model, [embedding, one - embedding])


def tensor_bytes(model: ExLlamaV2) -> Iterator[int]:
    """Of the tensors that the files have, but for the norms in layers, which the model counts twice."""
    for key, shape in model.config.layout.tensors():
        size = torch.Size(shape).numel() * 4
        rounded = 128 * 48 * 4 if "embed" in key else size
        yield 2 * rounded if "layers" in key and "norm" in key else rounded


def test_where_the_weights_do_not_fit_no_cache_does(llama_model: ExLlamaV2, monkeypatch: pytest.MonkeyPatch) -> None:
    working = working_bytes(llama_model, ExLlamaV2Cache(llama_model, max_seq_len=512, lazy=True))
    give_gpus(monkeypatch, sum(module_sizes(llama_model)) // 2 + working)
    assert longest_cache(llama_model, ExLlamaV2Cache) == 0


def test_without_a_gpu_the_machine_counts(llama_model: ExLlamaV2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    available = 160_000_000
    monkeypatch.setattr("constrain.model.devices._available_memory", lambda: available)
    longest = longest_cache(llama_model, ExLlamaV2Cache)
    assert longest > 512

    def needed(tokens: int) -> int:
        cache = ExLlamaV2Cache(llama_model, max_seq_len=tokens, lazy=True)
        return sum(module_sizes(llama_model, cache.layer_bytes())) + working_bytes(llama_model, cache)

    assert needed(longest) <= available < needed(longest + 512)
