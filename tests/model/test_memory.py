"""What fits is what load_autosplit can place."""

from __future__ import annotations

import pytest
import torch

from constrain.errors import ModelError
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Cache_Q4, ExLlamaV2CacheBase
from constrain.model.devices import split_by_free_memory
from constrain.model.memory import longest_cache, module_sizes, token_bytes

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
    give_gpus(monkeypatch, *(int(room * share) for share in shares))
    tokens = longest_cache(llama_model, kind)
    assert 0 < tokens <= 5000 and tokens % 512 == 0

    def place(length: int) -> list[torch.device]:
        layer_bytes = kind(llama_model, max_seq_len=length, lazy=True).layer_bytes()
        return split_by_free_memory(module_sizes(llama_model, layer_bytes), None)

    assert len(place(tokens)) == len(llama_model.modules)
    with pytest.raises(ModelError, match="Insufficient VRAM"):
        place(tokens + 512)


def test_where_the_weights_do_not_fit_no_cache_does(llama_model: ExLlamaV2, monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(monkeypatch, sum(module_sizes(llama_model)) // 2)
    assert longest_cache(llama_model, ExLlamaV2Cache) == 0


def test_without_a_gpu_the_machine_counts(llama_model: ExLlamaV2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 3000, "SC_PAGE_SIZE": 4096}.__getitem__)
    room = 3000 * 4096 - sum(module_sizes(llama_model))
    longest = longest_cache(llama_model, ExLlamaV2Cache)
    assert (
        longest * token_bytes(llama_model, ExLlamaV2Cache)
        <= room
        < (longest + 512) * token_bytes(llama_model, ExLlamaV2Cache)
    )
