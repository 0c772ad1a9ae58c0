from __future__ import annotations

import pytest
import torch

import constrain
from constrain.errors import CacheError
from constrain.generator import ExLlamaV2BaseGenerator, ExLlamaV2DynamicGenerator, ExLlamaV2Sampler
from constrain.model import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
    ExLlamaV2CacheBase,
    ExLlamaV2Config,
)

KINDS: list[type[ExLlamaV2CacheBase]] = [ExLlamaV2Cache_8bit, ExLlamaV2Cache_Q4, ExLlamaV2Cache_Q6, ExLlamaV2Cache_Q8]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> type[ExLlamaV2CacheBase]:
    found: type[ExLlamaV2CacheBase] = request.param
    return found


def error(model: ExLlamaV2, cache: ExLlamaV2CacheBase, ids: torch.Tensor) -> float:
    """Largest error of the probabilities after each token, against those of an exact cache."""
    exact = model.forward(ids, ExLlamaV2Cache(model, len(ids))).softmax(dim=-1)
    return float((model.forward(ids, cache).softmax(dim=-1) - exact).abs().max())


def test_more_bits_are_more_exact(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    errors = {kind: error(llama_model, kind(llama_model, 2), ids) for kind in KINDS}
    assert 0 < errors[ExLlamaV2Cache_Q8] < 0.03 < errors[ExLlamaV2Cache_Q4] < 0.4
    assert errors[ExLlamaV2Cache_Q8] < errors[ExLlamaV2Cache_Q6] < 0.4
    assert errors[ExLlamaV2Cache_8bit] < 0.4


def test_the_split_into_passes_changes_nothing(
    llama_model: ExLlamaV2, kind: type[ExLlamaV2CacheBase], ids: torch.Tensor
) -> None:
    whole, parts = kind(llama_model, 2), kind(llama_model, 2)
    expected = llama_model.forward(ids, whole)
    logits = [llama_model.forward(part, parts) for part in ids.split([9, 1, 1, 10], dim=1)]
    torch.testing.assert_close(torch.cat(logits, dim=1), expected, rtol=0, atol=0.02)
    assert parts.current_seq_len == whole.current_seq_len == 21


def test_a_clone_is_of_the_same_kind(llama_model: ExLlamaV2, kind: type[ExLlamaV2CacheBase], ids: torch.Tensor) -> None:
    cache = kind(llama_model, 2)
    llama_model.forward(ids, cache)
    clone = cache.clone()
    assert type(clone) is kind and clone.current_seq_len == 21
    assert all(map(torch.equal, clone.all_tensors(), cache.all_tensors()))


def test_states_are_read_and_stored_by_hand(
    llama_model: ExLlamaV2, kind: type[ExLlamaV2CacheBase], ids: torch.Tensor
) -> None:
    """By programs that compute attention themselves, over rows or over pages of the cache."""
    cache = kind(llama_model, 2)
    llama_model.forward(ids, cache)
    keys, values = cache.get_kv_state(1, 2, 3, 18)
    assert keys.shape == values.shape == (2, cache.max_seq_len, cache.num_key_value_heads, cache.head_dim)
    expected = cache.key_quantization.dequantize(cache.parts(1)[0], llama_model.compute_dtype)
    assert torch.equal(keys[:, 3:21], expected[:, 3:21]) and expected[:, 3:21].any()
    new = torch.randn(2, 2, *keys.shape[2:], generator=torch.Generator().manual_seed(0))
    keys[:, 21:23], values[:, 21:23] = new, -new
    cache.store_kv_state(1, 2, 21, 2)
    pages, lengths = torch.arange(2 * cache.max_seq_len // 16, dtype=torch.int).view(2, -1), torch.tensor([23, 21])
    keys, values = (each.clone() for each in cache.get_kv_state(1, 2, 0, 0, 16, lengths, pages))
    torch.testing.assert_close(keys[:1, 21:23].float(), new[:1], rtol=0.3, atol=0.5)
    torch.testing.assert_close(values[0, 21:23], -keys[0, 21:23], rtol=0.3, atol=0.5)
    other = kind(llama_model, 2)
    copies = other.get_kv_state(1, 2, 0, 0)
    copies[0].copy_(keys)
    copies[1].copy_(values)
    other.store_kv_state(1, 2, 0, 21, 16, torch.tensor([2, 0]), pages)
    again, _ = other.get_kv_state(1, 2, 0, 23)
    torch.testing.assert_close(again[0, 2:23], keys[0, 2:23], rtol=0.3, atol=0.5)
    assert not again[0, :2].any() and not again[1, 21:23].any()
    with pytest.raises(CacheError, match="lacks these positions"):
        cache.get_kv_state(0, 3, 0, 1)
    with pytest.raises(CacheError, match="together"):
        cache.get_kv_state(0, 1, 0, 1, page_size=16)


def test_shapes(llama_model: ExLlamaV2) -> None:
    cache = ExLlamaV2Cache_Q6(llama_model, 1, 64)
    assert cache.has_scales and cache.dtype == torch.uint8
    # Heads of 12 elements: groups of 4.
    assert [tensor.shape[-1] for tensor in cache.all_tensors()] == [12] * 3 + [6] * 3 + [3] * 6
    assert cache.footprint() == [3 * cache.layer_bytes()] == [3 * 64 * 2 * (12 + 6 + 2 * 3 * 2)]
    assert cache.key_scales[0] is not None and cache.key_scales[0].dtype == torch.half


def test_lengths_are_rounded_up_to_blocks(llama_model: ExLlamaV2) -> None:
    # 24 elements a token, of which 64 tokens make three blocks of 512.
    assert ExLlamaV2Cache_Q4(llama_model, max_seq_len=65).max_seq_len == 128
    assert ExLlamaV2Cache_8bit(llama_model, max_seq_len=65).max_seq_len == 65


def test_heads_that_do_not_fill_bytes_are_refused(llama_model: ExLlamaV2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_model.config, "head_dim", 5)
    with pytest.raises(CacheError, match="heads of 5 elements"):
        ExLlamaV2Cache_Q4(llama_model)


def test_autosplit_gives_a_lazy_cache_its_memory(llama_model: ExLlamaV2, kind: type[ExLlamaV2CacheBase]) -> None:
    model = ExLlamaV2(ExLlamaV2Config(llama_model.config.model_dir))
    cache = kind(model, lazy=True)
    assert cache.all_tensors() == []
    model.load_autosplit(cache)
    assert len(cache.all_tensors()) == 3 * (4 if cache.has_scales else 2)


def test_states_move_between_rows_and_positions(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    cache, target = ExLlamaV2Cache_Q4(llama_model, 2), ExLlamaV2Cache_Q4(llama_model, 1)
    llama_model.forward(ids[:, :10], cache)
    cache.copy_states(target, 0, 10, 0, 10, 1, 1, 0, 1)
    target.current_seq_len = 10
    expected = llama_model.forward(ids[:, 10:11], cache)[1:]
    torch.testing.assert_close(llama_model.forward(ids[1:, 10:11], target), expected)


@pytest.fixture(scope="module")
def llm() -> constrain.LLM:
    return constrain.load()


PROMPT = "Q: What is the capital of France?\nA:"
GREEDY = ExLlamaV2Sampler.Settings.greedy()


def written(llm: constrain.LLM, kind: type[ExLlamaV2CacheBase]) -> str:
    generator = ExLlamaV2BaseGenerator(llm.model, kind(llm.model), llm.tokenizer)
    return generator.generate_simple(PROMPT, GREEDY, 24, stop_token=None)


def test_generation_through_eight_bits_is_that_through_an_exact_cache(llm: constrain.LLM) -> None:
    assert written(llm, ExLlamaV2Cache_Q8) == written(llm, ExLlamaV2Cache)


def test_generation_over_pages_of_quantised_caches(llm: constrain.LLM, kind: type[ExLlamaV2CacheBase]) -> None:
    generator = ExLlamaV2DynamicGenerator(llm.model, kind(llm.model, max_seq_len=1024), llm.tokenizer)
    expected = written(llm, kind)
    # The second time, the prompt is in the cache.
    for _ in range(2):
        assert generator.generate([PROMPT, "else", PROMPT], 24, gen_settings=GREEDY)[::2] == [expected] * 2
