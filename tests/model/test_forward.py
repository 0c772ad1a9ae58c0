"""The arguments of a forward pass, and of loading."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from constrain.errors import ArgumentError, GenerationError, ModelError
from constrain.model import EMBEDDING_INDEX, ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2MMEmbedding
from constrain.model.forward_context import chunk_widths


def test_preprocessing_fills_the_cache_and_returns_nothing(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    whole = llama_model.forward(ids)
    cache = ExLlamaV2Cache(llama_model, batch_size=2)
    assert llama_model.forward(ids[:, :-1], cache, preprocess_only=True) is None
    assert cache.current_seq_len == ids.shape[1] - 1
    torch.testing.assert_close(llama_model.forward(ids[:, -1:], cache), whole[:, -1:])


@pytest.mark.parametrize("max_input_len", [4, 2048])
def test_logits_of_the_last_position_only(llama: Any, ids: torch.Tensor, max_input_len: int) -> None:
    model = llama.load(max_input_len=max_input_len)
    last = model.forward(ids, ExLlamaV2Cache(model, batch_size=2), last_id_only=True)
    assert last.shape == (2, 1, 128)
    torch.testing.assert_close(last[..., :99], llama.logits(ids)[:, -1:], atol=1e-4, rtol=0)


def test_a_rewound_cache_forgets(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    cache = ExLlamaV2Cache(llama_model, batch_size=2)
    llama_model.forward(ids, cache)
    cache.current_seq_len = 5
    again = llama_model.forward(ids[:, 5:8], cache)
    torch.testing.assert_close(again, llama_model.forward(ids[:, :8])[:, 5:])


def test_fewer_rows_than_the_cache_has(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    cache = ExLlamaV2Cache(llama_model, batch_size=3)
    first = llama_model.forward(ids[:1, :9], cache)
    second = llama_model.forward(ids[:1, 9:], cache)
    torch.testing.assert_close(torch.cat((first, second), 1), llama_model.forward(ids[:1]))


@pytest.mark.parametrize("max_input_len", [6, 2048])
def test_the_state_before_the_head(llama: Any, ids: torch.Tensor, max_input_len: int) -> None:
    model = llama.load(max_input_len=max_input_len)
    logits, state = model.forward(ids, ExLlamaV2Cache(model, batch_size=2), return_last_state=True)
    assert state.shape == (2, 21, 48)
    torch.testing.assert_close(state @ model.modules[-1].weight.T[:, :99], logits[..., :99])


def test_states_that_enter_modules(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    result = llama_model.forward_chunk(ids, extract_state_indices=[1, 4])
    embedding = llama_model.modules[0].weight[:99]  # type: ignore[attr-defined]
    assert torch.equal(result["states"][1], embedding[ids])
    assert result["states"].keys() == {1, 4} and result["states"][4].shape == (2, 21, 48)
    assert "last_state" not in result


def test_logits_may_be_changed_by_the_caller(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    logits = llama_model.forward(ids)
    logits.mul_(2).requires_grad_()
    assert logits.device == torch.device("cpu")
    assert llama_model.forward(ids, cpu_logits=True).shape == logits.shape


def test_negative_ids_are_padding(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    padded = ids.clone()
    padded[:, 3] = -1
    zeros = padded.clamp(min=0)
    assert torch.equal(llama_model.forward(padded), llama_model.forward(zeros))


def test_no_tokens_are_no_work(llama_model: ExLlamaV2) -> None:
    cache = ExLlamaV2Cache(llama_model)
    assert llama_model.forward(torch.zeros(1, 0, dtype=torch.long), cache) is None
    assert cache.current_seq_len == 0


def test_a_row_of_nothing_but_padding_harms_nobody(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    mask = torch.zeros(2, 21, dtype=torch.half)
    mask[1] = -torch.inf
    cache = ExLlamaV2Cache(llama_model, batch_size=2)
    logits = llama_model.forward(ids, cache, input_mask=mask)
    torch.testing.assert_close(logits[:1], llama_model.forward(ids[:1]))
    assert llama_model.forward(ids[:, :1], cache, input_mask=mask).isfinite().all()


@pytest.mark.parametrize(
    ("past", "total", "limit", "bound", "expected"),
    [
        (0, 0, 4, 100, []),
        (0, 9, 4, 10**6, [4, 4, 1]),
        (0, 10, 100, 36, [6, 3, 1]),
        (50, 3, 100, 9, [1, 1, 1]),
        (0, 6, 100, 36, [6]),
    ],
)
def test_widths_of_passes(past: int, total: int, limit: int, bound: int, expected: list[int]) -> None:
    assert list(chunk_widths(past, total, limit, bound)) == expected


def test_attention_stays_within_its_bound(llama: Any, ids: torch.Tensor) -> None:
    model = llama.load(max_attention_size=40)
    logits = model.forward(ids, ExLlamaV2Cache(model, batch_size=2))
    torch.testing.assert_close(logits[..., :99], llama.logits(ids), atol=1e-4, rtol=0)


def test_an_abort_leaves_off(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    event = threading.Event()
    assert llama_model.forward(ids, abort_event=event) is not None
    event.set()
    cache = ExLlamaV2Cache(llama_model, batch_size=2)
    assert llama_model.forward(ids, cache, abort_event=event) is None
    assert cache.current_seq_len == 0


def test_what_cannot_be_done_is_said(llama: Any, llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    with pytest.raises(GenerationError, match="not loaded"):
        ExLlamaV2(ExLlamaV2Config(llama.folder)).forward(ids)
    with pytest.raises(GenerationError, match="token id 99 is outside the model's vocabulary of 99"):
        llama_model.forward(torch.tensor([[99]]))
    with pytest.raises(GenerationError, match=r"2 rows of 0 \+ 21 tokens do not fit into a cache of 2 rows of 20"):
        llama_model.forward(ids, ExLlamaV2Cache(llama_model, batch_size=2, max_seq_len=20))
    with pytest.raises(GenerationError, match="do not fit into a cache of 1 rows"):
        llama_model.forward(ids, ExLlamaV2Cache(llama_model))
    cache = ExLlamaV2Cache(llama_model, batch_size=2)
    cache.current_seq_len -= 3
    for length, shown in ((-3, "-3"), (2.0, "2.0"), (None, "None")):
        cache.current_seq_len = length  # type: ignore[assignment]
        with pytest.raises(
            GenerationError, match=rf"current_seq_len must be a whole number of at least 0, not {shown}"
        ):
            llama_model.forward(ids, cache)
    with pytest.raises(GenerationError, match="21 tokens without a cache; one pass takes 5"):
        llama.load(max_input_len=10).forward(ids)
    few = llama.load(max_output_len=4)
    with pytest.raises(GenerationError, match="max_output_len is 4"):
        few.forward(ids)
    assert few.forward(ids, last_id_only=True).shape == (2, 1, 128)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_ids": torch.ones(2, 3, dtype=torch.bool)}, "input_ids must be ids"),
        ({"cache": 5}, "cache must be a KV cache, not 5"),
        ({"input_mask": torch.zeros(3, 21)}, r"input_mask must be floats .*, of shape \(2, positions\)"),
        ({"input_mask": torch.ones(2, 21, dtype=torch.bool)}, "input_mask must be floats to be added to scores"),
        ({"position_offsets": torch.zeros(3).int()}, r"position_offsets must be whole numbers of shape \(2,\)"),
        ({"position_offsets": [0, 0]}, "position_offsets must be whole numbers"),
    ],
)
def test_arguments_of_other_types_and_shapes(
    llama_model: ExLlamaV2, ids: torch.Tensor, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        llama_model.forward(**{"input_ids": ids, **arguments})


def test_a_cache_of_another_model_is_refused(llama_model: ExLlamaV2, checkpoint: Any, ids: torch.Tensor) -> None:
    other = checkpoint("llama_wide_heads").load()
    with pytest.raises(GenerationError, match="the cache is one of another model"):
        llama_model.forward(ids, ExLlamaV2Cache(other, batch_size=2))


@pytest.mark.parametrize("method", ["forward", "forward_chunk"])
def test_other_keywords_are_ignored_unless_they_would_change_what_is_computed(
    llama_model: ExLlamaV2, ids: torch.Tensor, method: str
) -> None:
    forward = getattr(llama_model, method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forward(ids, attn_params=None, a_keyword_of_another_version=True)
    with pytest.warns(UserWarning, match="there is no 'cahce', which is ignored; did you mean 'cache'") as warned:
        forward(ids, cahce=None)
    assert warned[0].filename == __file__
    with pytest.raises(ArgumentError, match="attn_params is not supported: give input_mask"):
        forward(ids, attn_params=object())


def test_no_rows_are_no_work(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    assert llama_model.forward(ids[:0]) is None


def test_embeddings_stand_in_for_tokens(llama_model: ExLlamaV2, ids: torch.Tensor) -> None:
    table = llama_model.modules[0].weight[:99]  # type: ignore[attr-defined]
    block = ExLlamaV2MMEmbedding(llama_model, table[ids[0, 3:7]])
    other = ExLlamaV2MMEmbedding(llama_model, table[ids[1, :2]], text_alias="<other>")
    assert block.first_index >= EMBEDDING_INDEX and other.first_index == block.first_index + block.length
    assert (block.text_alias, other.text_alias) == (f"<$EMB_{block.first_index}$>", "<other>")
    assert block.get_ids_tensor().tolist() == [block.get_ids()]
    mixed = ids.clone()
    mixed[0, 3:7] = block.get_ids_tensor()[0]
    mixed[1, :2] = other.get_ids_tensor()[0]
    torch.testing.assert_close(llama_model.forward(mixed, indexed_embeddings=[block, other]), llama_model.forward(ids))
    with pytest.raises(GenerationError, match=f"id {other.first_index} is in none of the 1"):
        llama_model.forward(mixed, indexed_embeddings=[block])
    with pytest.raises(GenerationError, match=r"must be \[length, 48\]"):
        ExLlamaV2MMEmbedding(llama_model, torch.zeros(3, 47))


def test_embeddings_are_not_scaled(checkpoint: Any) -> None:
    model = checkpoint("gemma2").load()
    block = ExLlamaV2MMEmbedding(model, torch.randn(2, 48, generator=torch.Generator().manual_seed(0)))
    states = model.forward_chunk(block.get_ids_tensor(), extract_state_indices=[1], indexed_embeddings=[block])[
        "states"
    ][1]
    assert torch.equal(states[0], block.embeddings)
    assert block.get_vision_token_range() == (block.first_index, block.first_index + 2)
    assert block.get_size_in_bytes() == 2 * 48 * 4


def test_loaders_report_their_progress(llama: Any) -> None:
    model = ExLlamaV2(ExLlamaV2Config(llama.folder))
    seen: list[tuple[int, int]] = []
    total = len(model.modules)
    model.load(callback=lambda index, of: seen.append((index, of)))
    assert model.loaded and seen == [(index, total) for index in range(total + 1)]

    def twice(index: int, of: int) -> Iterator[tuple[int, str]]:
        yield index, "a"
        yield index, "b"

    yielded = list(ExLlamaV2(ExLlamaV2Config(llama.folder)).load_gen(callback_gen=twice))
    assert yielded == [(index, letter) for index in range(total + 1) for letter in "ab"]


def test_autosplit_gives_a_lazy_cache_its_memory(llama: Any, ids: torch.Tensor) -> None:
    model = ExLlamaV2(ExLlamaV2Config(llama.folder))
    cache = ExLlamaV2Cache(model, batch_size=2, lazy=True)
    assert not model.loaded and cache.all_tensors() == []
    model.load_autosplit(cache)
    assert model.loaded and len(cache.all_tensors()) == 6 and model.config.max_input_len == 64
    torch.testing.assert_close(model.forward(ids, cache)[..., :99], llama.logits(ids), atol=1e-4, rtol=0)


def test_autosplit_needs_a_cache(llama: Any) -> None:
    with pytest.raises(ArgumentError, match="cache must be a lazy KV cache, not None"):
        ExLlamaV2(ExLlamaV2Config(llama.folder)).load_autosplit(None)  # type: ignore[arg-type]


def test_a_lazy_load_decides_on_devices_only(llama: Any) -> None:
    model = ExLlamaV2(ExLlamaV2Config(llama.folder))
    model.load(lazy=True)
    assert not model.loaded and model.get_cache_devices() == [model.cache_map[0]]


def test_an_unloaded_model_is_empty(llama: Any) -> None:
    model = llama.load()
    model.unload()
    assert (model.loaded, model.modules, model.modules_dict) == (False, [], {})
    with pytest.raises(GenerationError, match="not loaded"):
        model.forward(torch.tensor([[1]]))
    for load in (model.load, model.load_tp, lambda: model.load_autosplit(ExLlamaV2Cache(model, lazy=True))):
        with pytest.raises(ModelError, match="has been unloaded, and cannot be loaded again; make another one"):
            load()


def test_modules_by_name(llama_model: ExLlamaV2) -> None:
    modules = llama_model.modules
    assert [modules[0].key, modules[-1].key] == ["model.embed_tokens", "lm_head"]
    assert len(modules) == 2 * 3 + 3 and llama_model.get_modules() is modules
    assert modules[llama_model.head_layer_idx].key == "lm_head"
    assert modules[llama_model.last_kv_layer_idx].key == "model.layers.2.self_attn"
    by_name = llama_model.modules_dict
    assert by_name["model.layers.1.mlp"] is modules[4]
    assert by_name["model.layers.1.mlp.up_proj"] is by_name["model.layers.1.mlp.gate_proj"]
    assert not llama_model.is_quant()
