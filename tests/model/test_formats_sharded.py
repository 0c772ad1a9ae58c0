"""Weights of every quantised format that are split over devices, with tensor parallelism."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from quantized_models import COMPRESSED, FORMATS, Write, assert_same, load, matrices, pretend_tensor_cores, quantise
from quantized_weights import Writer, mxfp4_experts, pack_quantized

from constrain.kernels import TensorCoreWeight
from constrain.model import ExLlamaV2, ExLlamaV2Config
from constrain.model.sharding import ShardingPlan


@pytest.mark.parametrize(
    "name", ["int4 groups", "int4 zeros", "int6 groups", "int8 bytes", "fp8 rows", "nvfp4", "awq", "gptq 4 bits v1"]
)
def test_groups_of_inputs_are_split_over_devices(llama_wide: Any, ids: torch.Tensor, name: str) -> None:
    plan = _check_split(llama_wide, ids, *FORMATS[name][:2])
    assert plan.layers[0].attention_outputs is None and plan.layers[0].mlp_outputs is None


@pytest.mark.parametrize("name", ["gptq 4 bits, ordered v2", "int3 groups", "int8 ordered", "exl2"])
def test_inputs_in_another_order_stay_together(llama_wide: Any, ids: torch.Tensor, name: str) -> None:
    plan = _check_split(llama_wide, ids, *FORMATS[name][:2])
    assert plan.layers[0].attention_outputs == (range(32), range(32, 64), range(64, 64))
    assert [len(part) for part in plan.layers[0].mlp_outputs or ()] == [24, 20, 20]


@pytest.mark.parametrize("name", ["int4 groups", "int6 groups", "fp8 rows", "nvfp4", "gptq 4 bits, ordered v2", "exl2"])
def test_weights_for_tensor_cores_are_split_first(
    llama_wide: Any, ids: torch.Tensor, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_tensor_cores(monkeypatch)
    _check_split(llama_wide, ids, *FORMATS[name][:2])
    model = _split(llama_wide, 2)
    for part in ("mlp.down_proj", "self_attn.o_proj"):
        linears = model.modules_dict[f"model.layers.0.{part}"]._parts.values()  # type: ignore[attr-defined]
        weights = [linear.weight for linear in linears]
        assert len(weights) == 2 and all(isinstance(weight, TensorCoreWeight) for weight in weights)


def test_a_head_that_is_tied_to_a_packed_embedding_is_split(
    llama_wide: Any, ids: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_tensor_cores(monkeypatch)
    del llama_wide.tensors["lm_head.weight"]
    llama_wide.config["tie_word_embeddings"] = True
    quantise(llama_wide, ["model.embed_tokens"], partial(pack_quantized, size=32), COMPRESSED)
    whole, model = load(llama_wide), _split(llama_wide, 2)
    parts = [part.weight for _, _, part in model.modules[-1]._shards]  # type: ignore[attr-defined]
    assert [weight.shape[0] for weight in parts] == [64, 64]
    assert all(isinstance(weight, TensorCoreWeight) for weight in parts)
    assert_same(model.forward(ids), whole.forward(ids))


def _split(copy: Any, shards: int) -> ExLlamaV2:
    model = ExLlamaV2(ExLlamaV2Config(copy.folder))
    model.load_tp(devices=["cpu"] * shards)
    return model


def test_experts_in_four_bits_are_split_over_devices(gpt_oss_wide: Any, ids: torch.Tensor) -> None:
    writer = Writer()
    for key in [key for key in gpt_oss_wide.tensors if key.endswith("_proj") and "experts" in key]:
        experts, inputs, outputs = gpt_oss_wide.tensors.pop(key).shape
        written = mxfp4_experts(writer, experts, outputs, inputs)
        gpt_oss_wide.tensors |= {f"{key}_{part}": tensor for part, tensor in written.parts.items()}
    gpt_oss_wide.config["quantization_config"] = {"quant_method": "mxfp4"}
    _check_split(gpt_oss_wide, ids)


@pytest.mark.parametrize("name", ["int4 groups", "gptq 4 bits, ordered v2", "exl2"])
def test_experts_that_are_stored_one_by_one_are_split(
    copy_of: Callable[[str], Any], ids: torch.Tensor, name: str
) -> None:
    config, write, _ = FORMATS[name]
    plan = _check_split(copy_of("mixtral_wide"), ids, config, write)
    assert [len(part) for part in plan.layers[0].inner] == [64, 32, 32]


def _check_split(copy: Any, ids: torch.Tensor, config: Any = None, write: Write | None = None) -> ShardingPlan:
    """Load a model on one device and split over several, compare, and return the plan of the latter."""
    if write is not None:
        quantise(copy, matrices(copy), write, config)
    whole = load(copy)
    for shards in (2, 3):
        model = _split(copy, shards)
        assert_same(model.forward(ids), whole.forward(ids))
    assert model.tp_context is not None
    return model.tp_context
