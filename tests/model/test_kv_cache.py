from __future__ import annotations

from typing import Any

import pytest
import torch

from constrain.errors import CacheError
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Cache_8bit, ExLlamaV2Config


@pytest.fixture
def filled(llama_model: ExLlamaV2, ids: torch.Tensor) -> ExLlamaV2Cache:
    cache = ExLlamaV2Cache(llama_model, batch_size=2, max_seq_len=24)
    llama_model.forward(ids[:, :10], cache)
    return cache


def test_shape(llama_model: ExLlamaV2) -> None:
    cache = ExLlamaV2Cache(llama_model)
    assert (cache.batch_size, cache.max_seq_len, cache.current_seq_len) == (1, 64, 0)
    assert (cache.num_hidden_layers, cache.num_key_value_heads, cache.head_dim) == (3, 2, 12)
    assert [tensor.shape for tensor in cache.all_tensors()] == [(1, 64, 2, 12)] * 6
    assert cache.dtype == torch.float32 and not cache.has_scales
    assert cache.footprint() == [6 * 64 * 2 * 12 * 4] == [3 * cache.layer_bytes()]


def test_a_clone_is_independent(llama_model: ExLlamaV2, filled: ExLlamaV2Cache, ids: torch.Tensor) -> None:
    clone = filled.clone()
    filled.reset()
    llama_model.forward(ids.flip(1)[:, :10], filled)
    assert isinstance(clone, ExLlamaV2Cache) and clone.current_seq_len == 10
    torch.testing.assert_close(llama_model.forward(ids[:, 10:12], clone), llama_model.forward(ids[:, :12])[:, 10:])


def test_copies_between_rows(llama_model: ExLlamaV2, filled: ExLlamaV2Cache, ids: torch.Tensor) -> None:
    target = ExLlamaV2Cache(llama_model, batch_size=3, max_seq_len=16)
    filled.copy_states(target, 0, 10, 0, 10, 1, 1, 1, 2)
    target.current_seq_len = 10
    next_token = ids[1:, 10:11].expand(3, 1)
    logits = llama_model.forward(next_token, target)
    expected = llama_model.forward(ids[1:, :11])[:, -1:]
    torch.testing.assert_close(logits[1:2], expected)
    torch.testing.assert_close(logits[2:], expected)
    assert not torch.allclose(logits[:1], expected)
    for wrong in [
        (0, 10, 0, 9, 0, 1, 0, 1),
        (0, 10, 0, 10, 0, 2, 0, 1),
        (0, 10, 7, 10, 0, 1, 0, 1),
        (0, 9, 0, 9, 0, 1, 3, 1),
    ]:
        with pytest.raises(CacheError):
            filled.copy_states(target, *wrong)


def test_copies_within_a_cache_may_overlap(filled: ExLlamaV2Cache) -> None:
    before = [tensor.clone() for tensor in filled.all_tensors()]
    filled.copy_states(filled, 0, 8, 3, 8, 1, 1, 1, 1)
    for old, new in zip(before, filled.all_tensors(), strict=True):
        assert torch.equal(new[1, 3:11], old[1, :8]) and torch.equal(new[0], old[0])


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ((-1, 1, 0, 1, 0, 1, 0, 1), "from_column must be a whole number of at least 0, not -1"),
        ((0, -1, 0, -1, 0, 1, 0, 1), "from_columns must be"),
        ((0, 1, 0, 1, 0, 1, 0, 1.0), "to_rows must be"),
    ],
)
def test_places_of_copies_are_whole_numbers(filled: ExLlamaV2Cache, place: tuple[Any, ...], message: str) -> None:
    with pytest.raises(CacheError, match=message):
        filled.copy_states(filled, *place)


def test_states_are_not_copied_to_a_cache_of_another_kind(llama_model: ExLlamaV2, filled: ExLlamaV2Cache) -> None:
    """Of eight bits, the tensors have the same shapes, but other numbers in them."""
    other = ExLlamaV2Cache_8bit(llama_model, 2, 24)
    lazy = ExLlamaV2Cache(llama_model, 2, 24, lazy=True)
    for target in (other, lazy):
        with pytest.raises(CacheError, match="target must be a cache of the same kind"):
            filled.copy_states(target, 0, 1, 0, 1, 0, 1, 0, 1)
    with pytest.raises(CacheError, match="target must be a KV cache, not None"):
        filled.copy_states(None, 0, 1, 0, 1, 0, 1, 0, 1)  # type: ignore[arg-type]
    with pytest.raises(CacheError, match="copy_from must be a cache of the same shape and kind"):
        ExLlamaV2Cache_8bit(llama_model, 2, 24, copy_from=filled)


def test_a_cache_wants_a_loaded_model(llama: Any) -> None:
    with pytest.raises(CacheError, match="the model is not loaded; load it first, or make a lazy cache"):
        ExLlamaV2Cache(ExLlamaV2(ExLlamaV2Config(llama.folder)))


def test_rolling_drops_the_first_position(filled: ExLlamaV2Cache) -> None:
    before = [tensor.clone() for tensor in filled.all_tensors()]
    filled.roll_left()
    assert filled.current_seq_len == 9
    for old, new in zip(before, filled.all_tensors(), strict=True):
        assert torch.equal(new[:, :9], old[:, 1:10]) and old[:, :10].any()


def test_copying_on_construction(llama_model: ExLlamaV2, filled: ExLlamaV2Cache) -> None:
    copy = ExLlamaV2Cache(llama_model, 2, 24, filled)
    assert all(map(torch.equal, copy.all_tensors(), filled.all_tensors())) and copy.all_tensors()[0].any()
    assert copy.current_seq_len == filled.current_seq_len == 10
    with pytest.raises(CacheError, match="same shape"):
        ExLlamaV2Cache(llama_model, 2, 25, filled)
    with pytest.raises(CacheError, match="lazy"):
        ExLlamaV2Cache(llama_model, 2, 24, filled, lazy=True)


def test_a_lazy_cache_has_nothing_to_write_to(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    cache = ExLlamaV2Cache(llama_model, batch_size=2, lazy=True)
    with pytest.raises(CacheError, match=r"load_autosplit\(cache\)"):
        llama_model.forward(ids, cache)


@pytest.mark.parametrize(("rows", "length"), [(0, 16), (1, 0), (1, -2)])
def test_a_cache_holds_something(llama_model: ExLlamaV2, rows: int, length: int) -> None:
    with pytest.raises(CacheError, match="must be a whole number of at least 1"):
        ExLlamaV2Cache(llama_model, rows, length)


@pytest.mark.parametrize("device", ["xyz", "cuda:99"])
def test_a_cache_is_on_a_device_that_there_is(llama_model: ExLlamaV2, device: str) -> None:
    with pytest.raises(CacheError, match=f"fixed_device='{device}' is no device"):
        ExLlamaV2Cache(llama_model, fixed_device=device)


def test_absurd_sizes_take_no_memory(llama_model: ExLlamaV2) -> None:
    with pytest.raises(CacheError, match=r"1 rows of 1000000000000 tokens needs \d+\.\d GiB, more than there is"):
        ExLlamaV2Cache(llama_model, 1, 10**12)
    with pytest.raises(CacheError, match="more than there is"):
        ExLlamaV2Cache(llama_model, 10**6, 1 << 27)


def test_caches_made_in_inference_mode_can_be_changed_outside(llama: Any, ids: torch.Tensor) -> None:
    with torch.inference_mode():
        model = llama.load()
        cache = ExLlamaV2Cache(model, batch_size=2, max_seq_len=24)
    model.forward(ids[:, :10], cache)
    cache.copy_states(cache, 0, 5, 10, 5, 0, 1, 1, 1)
    cache.roll_left()
    assert cache.clone().current_seq_len == 9


def test_scaling_may_be_left_out(llama: Any, ids: torch.Tensor) -> None:
    expected = llama.load().forward(ids)
    assert torch.equal(llama.load(scale_pos_emb=None, scale_alpha_value=None).forward(ids), expected)


def test_states_of_an_exact_cache_are_those_it_stores(filled: ExLlamaV2Cache) -> None:
    keys, values = filled.get_kv_state(1, 1, 0, 8)
    assert keys is filled.key_states[1] and values is filled.value_states[1]
    before = keys.clone()
    filled.store_kv_state(1, 1, 0, 8)
    assert torch.equal(keys, before)
