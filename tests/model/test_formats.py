"""Checkpoints of every quantised format are the models that their dequantised weights make, and stay small."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_models import (
    AUTO_ROUND,
    COMPRESSED,
    FORMATS,
    GPTQ,
    Write,
    exl2_of_two_widths,
    load,
    load_plain,
    matrices,
    quantise,
    store_experts,
    weight_of,
)
from quantized_weights import (
    Writer,
    awq,
    fp8,
    gptq,
    mxfp4_experts,
    pack_quantized,
)
from safetensors.torch import save_file

from constrain.cli.inspect import info
from constrain.errors import ConfigError, WeightsError
from constrain.kernels import InterleavedWeight, JoinedWeight, PackedWeight, TensorCoreWeight, multiplies_packed
from constrain.model import ExLlamaV2, ExLlamaV2Config, ExLlamaV2Lora
from constrain.model.config_reader import ConfigReader
from constrain.model.formats import read_quantization
from constrain.model.forward_context import ForwardContext
from constrain.model.latent_attention import LatentAttention
from constrain.model.memory import module_sizes, packed_forms
from constrain.model.mixture import Mixture
from constrain.model.modules import Head
from constrain.model.sharding import ShardingPlan
from constrain.model.tensor_files import TensorFiles

kept_packed = pytest.mark.skipif(
    not multiplies_packed(torch.device("cpu"), torch.float32),
    reason="weights stay packed on processors with AVX2 or AVX-512",
)


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    spread = expected[..., :99].std()
    assert expected.isfinite().all()
    torch.testing.assert_close(found[..., :99] / spread, expected[..., :99] / spread, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", FORMATS)
def test_a_model_is_what_its_dequantised_weights_make(llama_wide: Any, ids: torch.Tensor, name: str) -> None:
    config, write, form = FORMATS[name]
    plain = quantise(llama_wide, matrices(llama_wide), write, config)
    model = load(llama_wide)
    assert model.is_quant()
    found, sizes = model.forward(ids), module_sizes(model)
    if multiplies_packed(torch.device("cpu"), torch.float32):
        assert packed_forms(model) == [form]
        assert all(isinstance(weight_of(model, key.removesuffix(".weight")), PackedWeight) for key in plain)
        packed = [model.modules_dict[f"model.layers.1.{part}"].weight for part in ("mlp.up_proj", "mlp.down_proj")]  # type: ignore[attr-defined]
        norms = 2 * 64 * 4
        assert sizes[4] - norms == sum(weight.nbytes for weight in packed)
        assert sum(sizes[1:]) < sum(weight.numel() for weight in plain.values()) * 4 * 0.4
    assert_same(found, load_plain(llama_wide, plain).forward(ids))


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
    _pretend_tensor_cores(monkeypatch)
    _check_split(llama_wide, ids, *FORMATS[name][:2])
    model = _split(llama_wide, 2)
    for part in ("mlp.down_proj", "self_attn.o_proj"):
        linears = model.modules_dict[f"model.layers.0.{part}"]._parts.values()  # type: ignore[attr-defined]
        weights = [linear.weight for linear in linears]
        assert len(weights) == 2 and all(isinstance(weight, TensorCoreWeight) for weight in weights)


@pytest.mark.parametrize("name", ["exl2", "exl2 of one order"])
def test_codes_of_several_widths_for_tensor_cores(
    qwen2_wide: Any, ids: torch.Tensor, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that share an order of inputs are stored as one."""
    config, write, _ = FORMATS[name]
    plain = quantise(qwen2_wide, matrices(qwen2_wide), write, config)
    _pretend_tensor_cores(monkeypatch)
    model = load(qwen2_wide)
    for key in ("self_attn.q_proj", "mlp.gate_proj", "mlp.down_proj"):
        alone = name == "exl2 of one order" or key == "mlp.down_proj"
        assert type(weight_of(model, f"model.layers.0.{key}")) is (TensorCoreWeight if alone else JoinedWeight)
    monkeypatch.setattr("constrain.model.memory.first_device", lambda: torch.device("cuda"))
    modules = [model.modules_dict[f"model.layers.0.{key}"] for key in ("mlp.gate_proj", "mlp.down_proj")]
    norms = 2 * 64 * 4
    assert module_sizes(model)[2] == norms + sum(module.weight.nbytes for module in modules)  # type: ignore[attr-defined]
    found = model.forward(ids)
    assert_same(found, load_plain(qwen2_wide, plain).forward(ids))


def test_a_head_that_is_tied_to_a_packed_embedding_is_split(
    llama_wide: Any, ids: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend_tensor_cores(monkeypatch)
    del llama_wide.tensors["lm_head.weight"]
    llama_wide.config["tie_word_embeddings"] = True
    quantise(llama_wide, ["model.embed_tokens"], partial(pack_quantized, size=32), COMPRESSED)
    whole, model = load(llama_wide), _split(llama_wide, 2)
    parts = [part.weight for _, _, part in model.modules[-1]._shards]  # type: ignore[attr-defined]
    assert [weight.shape[0] for weight in parts] == [64, 64]
    assert all(isinstance(weight, TensorCoreWeight) for weight in parts)
    assert_same(model.forward(ids), whole.forward(ids))


def _pretend_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU arrange weights as a GPU does; their products are computed by dequantisation."""
    for module in ("devices", "grouped", "interleaved"):
        monkeypatch.setattr(f"constrain.kernels.weights.{module}.multiplies_fragments", lambda *_: True)
    for module in ("devices", "grouped"):
        monkeypatch.setattr(f"constrain.kernels.weights.{module}.multiplies_interleaved", lambda *_: False)


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


@pytest.mark.parametrize("name", FORMATS)
def test_dequantised_weights_are_exact(llama_wide: Any, name: str) -> None:
    config, write, _ = FORMATS[name]
    plain = quantise(llama_wide, matrices(llama_wide), write, config)
    files = ExLlamaV2Config(llama_wide.write()).files
    assert files is not None
    for key, weight in plain.items():
        found = torch.empty_like(weight)
        files.copy(key, found)
        # The order of two multiplications is a matter of the last bit.
        torch.testing.assert_close(found, weight, rtol=2e-7 if "fp4" in name else 0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_are_dequantised_where_no_kernel_multiplies_them(
    llama_wide: Any, ids: torch.Tensor, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("constrain.model.modules.weight_loading.multiplies_packed", lambda *_: False)
    monkeypatch.setattr("constrain.model.memory.multiplies_packed", lambda *_: False)
    plain = quantise(llama_wide, matrices(llama_wide), partial(pack_quantized, size=32), COMPRESSED)
    model = load(llama_wide, compute_dtype=dtype)
    assert packed_forms(model) == []
    weight = weight_of(model, "model.layers.0.mlp.down_proj")
    assert torch.equal(weight, plain["model.layers.0.mlp.down_proj.weight"].to(dtype))
    assert model.forward(ids).isfinite().all()


@pytest.mark.parametrize("name", ["int4 zeros", "gptq 4 bits, ordered v2", "exl2"])
def test_a_model_with_biases(qwen2_wide: Any, ids: torch.Tensor, name: str) -> None:
    config, write, _ = FORMATS[name]
    plain = quantise(qwen2_wide, matrices(qwen2_wide), write, config)
    found = load(qwen2_wide).forward(ids)
    assert_same(found, load_plain(qwen2_wide, plain).forward(ids))


def test_layers_may_differ_or_be_left_out(llama_wide: Any, ids: torch.Tensor) -> None:
    """Several groups of the config, its ``ignore`` list, and a fused product of more than one form."""
    keys = [key for key in matrices(llama_wide) if "layers.1" in key]
    int8 = partial(pack_quantized, bits=8)
    plain = quantise(llama_wide, [key for key in keys if "v_proj" in key or "o_proj" in key], int8, COMPRESSED)
    rest = [key for key in keys if "mlp" in key or "q_proj" in key or "k_proj" in key]
    plain |= quantise(llama_wide, rest, partial(pack_quantized, size=32, zeros=True), COMPRESSED)
    llama_wide.config["quantization_config"] |= {"ignore": ["lm_head", "re:.*layers.0.*"]}
    model = load(llama_wide)
    found = model.forward(ids)
    if multiplies_packed(torch.device("cpu"), torch.float32):
        assert packed_forms(model) == ["int4", "int8"]
        joined = weight_of(model, "model.layers.1.self_attn.q_proj")
        assert isinstance(joined, JoinedWeight) and len(joined.parts) == 3
        assert isinstance(weight_of(model, "model.layers.0.mlp.up_proj"), torch.Tensor)
        attention = joined.nbytes + weight_of(model, "model.layers.1.self_attn.o_proj").nbytes
        assert module_sizes(model)[3] == attention + 2 * 64 * 4
    assert_same(found, load_plain(llama_wide, plain).forward(ids))


@pytest.mark.parametrize("write", [partial(pack_quantized, size=32), partial(fp8, block=(1, 0))])
def test_a_tied_head_and_its_embedding_are_one_packed_weight(llama_wide: Any, ids: torch.Tensor, write: Write) -> None:
    del llama_wide.tensors["lm_head.weight"]
    llama_wide.config["tie_word_embeddings"] = True
    plain = quantise(llama_wide, ["model.embed_tokens"], write, COMPRESSED)
    model = load(llama_wide)
    found, head = model.forward(ids), model.modules[-1]
    assert isinstance(head, Head)
    if isinstance(head.weight, PackedWeight):
        assert module_sizes(model)[0] == head.weight.nbytes and module_sizes(model)[-1] == 0
        shared, embedding = head.weight._tensors(), model.modules[0].weight._tensors()  # type: ignore[attr-defined]
        assert [tensor.data_ptr() for _, tensor in shared] == [tensor.data_ptr() for _, tensor in embedding]
    assert_same(found, load_plain(llama_wide, plain).forward(ids))


@pytest.mark.parametrize("name", ["int4 zeros", "nvfp4", "exl2", "gptq 3 bits v1"])
def test_logits_of_chosen_tokens_are_those_of_all(llama_wide: Any, ids: torch.Tensor, name: str) -> None:
    config, write, _ = FORMATS[name]
    quantise(llama_wide, ["lm_head"], write, config)
    model = load(llama_wide)
    found, states = model.forward(ids, return_last_state=True)
    context = ForwardContext(attention=None)  # type: ignore[arg-type]  # which a head does not use
    tokens = torch.tensor([3, 98, 41])
    torch.testing.assert_close(model.head(states, context, tokens), found[..., tokens])


def test_an_adapter_of_a_packed_model(llama_wide: Any, ids: torch.Tensor, tmp_path: Path) -> None:
    key, generator = "model.layers.1.mlp.gate_proj", torch.Generator().manual_seed(1)
    down, up = (torch.randn(size, generator=generator) / 5 for size in ((4, 64), (128, 4)))
    adapter = {f"base_model.model.{key}.lora_A.weight": down, f"base_model.model.{key}.lora_B.weight": up}
    save_file(adapter, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 4}))
    plain = quantise(llama_wide, matrices(llama_wide), partial(pack_quantized, size=32), COMPRESSED)
    model = load(llama_wide)
    found = model.forward(ids, loras=ExLlamaV2Lora.from_directory(model, tmp_path))
    plain[f"{key}.weight"] += up @ down
    assert_same(found, load_plain(llama_wide, plain).forward(ids))


@pytest.mark.parametrize("name", ["int4 groups", "fp8 rows", "awq"])
def test_packed_experts(mixtral_copy: Any, ids: torch.Tensor, name: str) -> None:
    config, write, _ = FORMATS[name]
    if config is not None and "group_size" in config:
        config = config | {"group_size": 16}
    small = partial(write, size=16) if "size" in getattr(write, "keywords", {}) or name == "awq" else write
    experts = [key for key in matrices(mixtral_copy) if "experts" in key]
    plain = quantise(mixtral_copy, experts, small, config)
    model = load(mixtral_copy)
    found = model.forward(ids)
    if multiplies_packed(torch.device("cpu"), torch.float32):
        weights = model.modules[2].gate_up.weight  # type: ignore[attr-defined]
        assert all(isinstance(weight, PackedWeight) for weight in weights)
    assert_same(found, load_plain(mixtral_copy, plain).forward(ids))


@pytest.mark.parametrize("name", ["exl2 of one order", "exl2", "gptq 4 bits, ordered v2"])
def test_memory_of_experts_with_an_order_of_inputs(
    copy_of: Callable[[str], Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU has them packed if gate and up of an expert share it; else it has both products plain."""
    copy = copy_of("mixtral_wide")
    config, write, _ = FORMATS[name]
    quantise(copy, [key for key in matrices(copy) if "experts" in key], write, config)
    _pretend_tensor_cores(monkeypatch)
    model = load(copy)
    mixture: Any = model.modules[2]
    together = name == "exl2 of one order"
    assert all((part.layout.records is not None) is together for part in (mixture.gate_up, mixture.down))
    for place in ("memory", "mixture"):
        monkeypatch.setattr(f"constrain.model.{place}.first_device", lambda: torch.device("cuda"))
    weights = [weight for part in (mixture.gate_up, mixture.down) for weight in part.weight]
    plain = 4 * sum(math.prod(part.layout.shape) for part in (mixture.gate_up, mixture.down))
    experts = sum(weight.nbytes for weight in weights) if together else plain
    assert module_sizes(model)[2] == experts + 4 * (2 * 64 + 8 * 64)


@pytest.mark.parametrize("write", [exl2_of_two_widths, None], ids=["exl2", "plain"])
def test_projections_may_be_stored_apart(
    copy_of: Callable[[str], Any], ids: torch.Tensor, write: Write | None, tmp_path: Path
) -> None:
    """EXL2 has queries, keys and values of Phi-3 apart, and gate and up."""
    copy = copy_of("phi3_wide")
    fused = load(copy)
    apart = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
    for key in [key for key in copy.tensors if key.endswith((".qkv_proj.weight", ".gate_up_proj.weight"))]:
        whole, name = copy.tensors.pop(key), key.split(".")[-2]
        sizes = (64, 32, 32) if name == "qkv_proj" else (128, 128)
        for part, tensor in zip(apart[name], whole.split(sizes), strict=True):
            copy.tensors[key.replace(name, part)] = tensor.contiguous()
    if write is None:
        assert torch.equal(load(copy).forward(ids), fused.forward(ids))
        return
    plain = quantise(copy, matrices(copy), write, {"quant_method": "exl2"})
    model = load(copy)
    adapter = {
        f"model.layers.1.self_attn.qkv_proj.lora_{name}.weight": torch.randn(size) / 5
        for name, size in (("A", (4, 64)), ("B", (128, 4)))
    }
    save_file(adapter, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 4}))
    lora = ExLlamaV2Lora.from_directory(model, tmp_path)
    found = model.forward(ids, loras=lora)
    expected = load_plain(copy, plain)
    assert_same(found, expected.forward(ids, loras=ExLlamaV2Lora.from_directory(expected, tmp_path)))


@pytest.mark.parametrize("kept", [True, False])
def test_experts_of_gpt_oss(gpt_oss_wide: Any, ids: torch.Tensor, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kept:
        monkeypatch.setattr("constrain.model.mixture.multiplies_packed", lambda *_: False)
    plain = store_experts(gpt_oss_wide)
    model = load(gpt_oss_wide)
    found, mixture = model.forward(ids), model.modules[2]
    if kept and multiplies_packed(torch.device("cpu"), torch.float32):
        assert isinstance(mixture, Mixture) and packed_forms(model) == ["mxfp4"]
        weights = [*mixture.gate_up.weight, *mixture.down.weight]
        assert all(isinstance(weight, PackedWeight) for weight in weights)
        biases, norms, router = 8 * (256 + 64), 2 * 64, 8 * 64 + 8
        assert module_sizes(model)[2] == sum(weight.nbytes for weight in weights) + 4 * (biases + norms + router)
    gpt_oss_wide.tensors = {key: tensor for key, tensor in gpt_oss_wide.tensors.items() if key[:-7] not in plain}
    gpt_oss_wide.tensors |= plain
    del gpt_oss_wide.config["quantization_config"]
    assert_same(found, load(gpt_oss_wide).forward(ids))


@pytest.mark.parametrize(
    ("part", "tensor", "message"),
    [
        ("scales", None, "experts.down_proj has no scales, which MXFP4 weights need"),
        ("scales", torch.zeros(8, 64, 3).byte(), r"down_proj_scales has shape \[8, 64, 3\], not \[8, 64, 4\]"),
        ("scales", torch.full((8, 64, 4), 255).byte(), "down_proj_scales has values that are not numbers"),
        ("scales", torch.zeros(8, 64, 4), "down_proj_scales is of type F32; read are U8"),
        ("blocks", torch.zeros(8, 64, 4, 8).byte(), r"has shape \[8, 64, 64\], but config.json asks for"),
        ("blocks", torch.zeros(8, 64, 2, 32).byte(), r"down_proj_blocks has shape \[8, 64, 2, 32\], not"),
        ("blocks", torch.zeros(8, 64).byte(), "not one of 4 dimensions"),
    ],
)
def test_damaged_experts(gpt_oss_wide: Any, part: str, tensor: torch.Tensor | None, message: str) -> None:
    store_experts(gpt_oss_wide)
    key = "model.layers.1.mlp.experts.down_proj"
    del gpt_oss_wide.tensors[f"{key}_{part}"]
    if tensor is not None:
        gpt_oss_wide.tensors[f"{key}_{part}"] = tensor
    with pytest.raises(WeightsError, match=message) as caught:
        load(gpt_oss_wide)
    assert "model.safetensors: " in str(caught.value)


def test_blocks_of_deepseek(copy_of: Callable[[str], Any], ids: torch.Tensor) -> None:
    """The projection that is plain in memory is counted so."""
    copy = copy_of("deepseek_v3_wide")
    keys = [key for key in matrices(copy) if not key.endswith(("norm", "mlp.gate", "lm_head"))]
    write = partial(fp8, block=(32, 32), name="weight_scale_inv")
    plain = quantise(copy, keys, write, {"quant_method": "fp8", "weight_block_size": [32, 32]})
    model = load(copy)
    found, attention = model.forward(ids), model.modules[1]
    if multiplies_packed(torch.device("cpu"), torch.float32):
        assert isinstance(attention, LatentAttention) and isinstance(attention.expand.weight, torch.Tensor)
        linears = {id(linear): linear for _, linear in attention.submodules()}
        weights = sum(linear.weight.nbytes for linear in linears.values())
        norms = sum(count for names, count in attention.weights() if names and "norm" in names[0])
        assert module_sizes(model)[1] == weights + 4 * norms
    assert_same(found, load_plain(copy, plain).forward(ids))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"quant_method": "hqq"},
            r"quant_method: 'hqq' is not supported; supported are auto-round, awq, compressed-tensors, .*gptq",
        ),
        ({"bits": 4}, r"quantization_config\.quant_method: missing"),
        ({**COMPRESSED, "format": "marlin-24"}, r"format: 'marlin-24' is not supported; supported are dense"),
        ({**COMPRESSED, "config_groups": {"a": {"format": "x"}}}, r"config_groups\.a\.format: 'x' is not supported"),
        ({**COMPRESSED, "config_groups": {"a": 3}}, r"config_groups\.a: must be an object"),
        ({**COMPRESSED, "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse weights are not supported"),
        ({**COMPRESSED, "transform_config": {"config_groups": {"R1": {}}}}, "transforms of activations"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "'e5m2' is not supported; supported is 'e4m3'"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "must be a list of two sizes"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "must be a list of two sizes"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "'marlin' is not supported; supported are gptq and gptq_v2"),
        ({**GPTQ, "group_size": 0}, "group_size: must not be 0"),
        ({"quant_method": "awq", "version": "gemv"}, "'gemv' is not supported; supported is 'gemm'"),
        (
            {**AUTO_ROUND, "packing_format": "auto_round:x"},
            "'auto_round:x' is not supported; supported are auto",
        ),
        ({"quant_method": "awq", "bits": 3}, "AWQ of 3 bits is not supported"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "'W4A8_AWQ' is not supported; supported are FP8"),
    ],
)
def test_what_is_not_supported_is_named(llama_wide: Any, config: dict[str, Any], message: str) -> None:
    llama_wide.config["quantization_config"] = config
    with pytest.raises(ConfigError, match=message):
        ExLlamaV2Config(llama_wide.write())


KEY = "model.layers.0.self_attn.q_proj"

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
_KEYS = [
    *("format", "config_groups", "sparsity_config", "transform_config", "fmt", "weight_block_size", "bits", "w_bit"),
    *("checkpoint_format", "dynamic", "group_size", "q_group_size", "sym", "desc_act", "version", "quant_algo"),
]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    method=st.sampled_from(["awq", "compressed-tensors", "exl2", "fp8", "gptq", "modelopt", "mxfp4"]), data=st.data()
)
def test_any_config_is_read_or_refused(method: str, data: st.DataObject) -> None:
    section = data.draw(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=4))
    groups = data.draw(st.just({}) | st.fixed_dictionaries({"a": st.fixed_dictionaries({"weights": _JSON})}))
    config = {"config_groups": groups, **section, "quant_method": method}
    reader = ConfigReader(Path("x"), [{"quantization_config": config}])
    try:
        found = read_quantization(reader)
    except ConfigError as error:
        assert "x: quantization_config." in str(error)
    else:
        assert found is not None and found.method == method


def test_info_shows_the_memory_of_packed_weights(llama_wide: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrain.extract.prompts.choose.choose_form", lambda _: type("Form", (), {"description": ""}))
    monkeypatch.setattr("constrain.tokenizer.ExLlamaV2Tokenizer", lambda _: None)
    count = sum(tensor.numel() for tensor in llama_wide.tensors.values())
    quantise(llama_wide, matrices(llama_wide), partial(pack_quantized, size=32), COMPRESSED)
    output = " ".join(CliRunner().invoke(info, [str(llama_wide.write())]).output.split())
    assert f"parameters │ {count:,}" in output
    if multiplies_packed(torch.device("cpu"), torch.float32):
        assert "0.1 MiB of weights in int4 and float32" in output


def test_a_source_for_gpus_keeps_files_open(llama_wide: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = quantise(llama_wide, matrices(llama_wide), partial(pack_quantized, size=32), COMPRESSED)
    model = load(llama_wide)
    opened: list[Path] = []
    with model._source([torch.device("cuda")]) as source, monkeypatch.context() as patch:
        patch.setattr("constrain.model.tensor_files._opened", opened.append)
        for module in model.modules:
            module.load(source, torch.device("cpu"), torch.bfloat16)
    assert not opened
    key = "model.layers.1.mlp.down_proj"
    assert torch.equal(weight_of(model, key), plain[f"{key}.weight"].bfloat16())


@pytest.mark.parametrize("name", FORMATS)
def test_weights_are_dequantised_on_the_device_that_they_go_to(llama_wide: Any, name: str) -> None:
    """On torch's ``meta`` device, an operation with a tensor that was left on the CPU is an error."""
    config, write, _ = FORMATS[name]
    quantise(llama_wide, [KEY], write, config)
    files = ExLlamaV2Config(llama_wide.write()).files
    assert files is not None
    packed = files.quantized[f"{KEY}.weight"].packed().to(torch.device("meta"))
    found = packed.dequantized(slice(3, 40), torch.bfloat16)
    assert found.device.type == "meta" and found.shape == (37, 64) and found.dtype is torch.bfloat16


Damage = Callable[[dict[str, torch.Tensor]], object]


def _at(part: str, index: int, value: float) -> Damage:
    def damage(parts: dict[str, torch.Tensor]) -> None:
        flat = parts[part].view(torch.uint8) if parts[part].dtype == torch.float8_e4m3fn else parts[part]
        flat.view(-1)[index] = value

    return damage


def _with(part: str, tensor: torch.Tensor) -> Damage:
    return lambda parts: parts.update({part: tensor})


def _without(part: str) -> Damage:
    return lambda parts: parts.pop(part)


_EXL2_GROUPS = [8, 0, 4, 8]


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("int4 groups", _without("weight_scale"), "q_proj has no weight_scale, which pack-quantized weights need"),
        ("int4 groups", _without("weight_shape"), "q_proj has no weight_shape"),
        ("int4 groups", _with("weight_shape", torch.tensor([64])), r"weight_shape has shape \[1\], not \[2\]"),
        ("int4 groups", _with("weight_shape", torch.tensor([64, 1 << 60])), "but config.json asks for"),
        ("int4 groups", _with("weight_shape", torch.tensor([-64, -64])), "but config.json asks for"),
        (
            "int4 groups",
            _with("weight_packed", torch.zeros(64, 7).int()),
            "2, 3, 4, 5, 6 or 8 bits does not have",
        ),
        ("int4 groups", _with("weight_packed", torch.zeros(64, 8)), "weight_packed is of type F32; read are I32"),
        ("int4 groups", _with("weight_scale", torch.zeros(64, 3)), "which makes no groups"),
        ("int4 groups", _with("weight_scale", torch.zeros(64, 64)), "which makes no groups"),
        ("int4 groups", _with("weight_scale", torch.zeros(0)), "which makes no groups"),
        ("int4 groups", _with("weight_scale", torch.zeros(64, 2).int()), "weight_scale is of type I32"),
        ("int4 groups", _at("weight_scale", 5, torch.nan), "weight_scale has values that are not finite"),
        ("int4 zeros", _with("weight_zero_point", torch.zeros(8, 3).int()), r"has shape \[8, 3\], not \[8, 4\]"),
        ("int4 zeros", _with("weight_zero_point", torch.zeros(8, 4)), "weight_zero_point is of type F32"),
        ("int4 ordered", _at("weight_g_idx", 3, 9), "weight_g_idx does not name a group for each input"),
        ("int4 ordered", _at("weight_g_idx", 3, -5), "weight_g_idx does not name a group for each input"),
        ("int4 ordered", _with("weight_g_idx", torch.zeros(63).int()), r"has shape \[63\], not \[64\]"),
        ("int8 bytes", _at("weight_scale", 0, torch.inf), "weight_scale has values that are not finite"),
        ("int8 bytes, zeros", _with("weight_zero_point", torch.zeros(64, 2).char()), "weight_zero_point has shape"),
        ("fp8 rows", _without("weight_scale"), "there is no weight_scale or weight_scale_inv"),
        ("fp8 rows", _at("weight", 7, 255), "weight has values that are not numbers"),
        ("fp8 rows", _at("weight_scale", 7, torch.nan), "weight_scale has values that are not finite"),
        ("fp8 rows", _with("weight_scale", torch.zeros(5, 5)), r"which fits no blocks of \[128, 128\]"),
        ("fp8 blocks", _with("weight_scale_inv", torch.zeros(1, 1, 1)), "which fits no blocks"),
        ("mxfp4", _at("weight_scale", 3, 255), "weight_scale has values that are not numbers"),
        ("mxfp4", _with("weight_scale", torch.zeros(64, 3, dtype=torch.uint8)), r"not \[64, 2\]"),
        ("nvfp4", _with("weight_global_scale", torch.zeros(1)), "weight_global_scale is zero"),
        ("nvfp4", _with("weight_global_scale", torch.zeros(2)), "weight_global_scale has shape"),
        ("nvfp4", _at("weight_scale", 3, 127), "weight_scale has values that are not finite"),
        ("nvfp4 of ModelOpt", _without("weight_scale_2"), "q_proj has no weight_scale_2"),
        ("gptq 4 bits v1", _with("qzeros", torch.zeros(2, 12).int()), "has 12 words for 64 outputs, which is none of"),
        ("gptq 4 bits v1", _with("qzeros", torch.zeros(2).int()), "not one of 2 dimensions"),
        ("gptq 4 bits v1", _with("scales", torch.ones(3, 64)), r"has shape \[3, 64\], not \[2, 64\]"),
        ("gptq 4 bits v1", _with("qweight", torch.ones(7, 64).int()), r"has shape \[64, 56\], but config.json asks"),
        ("gptq 4 bits v1", _without("qzeros"), "q_proj has no qzeros, which GPTQ weights need"),
        ("gptq 4 bits v1", _with("bias", torch.ones(64)), "bias, which a LlamaForCausalLM"),
        ("gptq 4 bits, ordered v2", _at("g_idx", 3, 9), "g_idx does not name a group for each input, each group 32"),
        ("gptq 4 bits, ordered v2", _at("scales", 3, torch.nan), "scales has values that are not finite"),
        (
            "awq",
            _with("qweight", torch.ones(64, 9).int()),
            r"has shape \[72, 64\], but config.json asks for \[64, 64\]",
        ),
        ("awq", _with("scales", torch.ones(3, 64)), r"has shape \[3, 64\], not \[2, 64\]"),
        ("awq", _with("qzeros", torch.ones(2, 7).int()), r"has shape \[2, 7\], not \[2, 8\]"),
        ("exl2", _without("q_scale_max"), "q_proj has no q_scale_max, which EXL2 weights need"),
        ("exl2", _with("q_weight", torch.zeros(11, 64).int()), "q_groups does not divide 64 inputs into groups"),
        ("exl2", _with("q_scale", torch.zeros(3, 8).int()), r"q_scale_max has shape \[2\], not \[3\]"),
        ("exl2", _with("q_invperm", torch.zeros(64).int()), "q_invperm is not a permutation"),
        ("exl2", _at("q_invperm", 5, -1), "q_invperm is not a permutation"),
        ("exl2", _at("q_invperm", 5, 64), "q_invperm is not a permutation"),
        ("exl2", _with("q_invperm", torch.arange(40).int()), r"shape \[64, 40\], but config.json asks for \[64, 64\]"),
        *[
            ("exl2", _at("q_groups", place, value), "q_groups does not divide")
            for place in range(4)
            for value in (7, 0, -1, 30000)
            if value != _EXL2_GROUPS[place]
        ],
        ("exl2", _with("q_groups", torch.tensor([8, 0, 4]).short()), r"q_groups has shape \[3\], not \[4\]"),
        ("exl2", _at("q_scale_max", 1, torch.nan), "q_scale_max has values that are not finite"),
    ],
)
def test_damage_is_named(llama_wide: Any, name: str, damage: Damage, message: str) -> None:
    config, write, _ = FORMATS[name]
    quantise(llama_wide, [KEY], write, config)
    parts = {part: llama_wide.tensors.pop(f"{KEY}.{part}") for part in write(Writer(), 64, 64).parts}
    damage(parts)
    llama_wide.tensors |= {f"{KEY}.{part}": tensor.contiguous() for part, tensor in parts.items()}
    with pytest.raises(WeightsError, match=message) as caught:
        load(llama_wide)
    assert "model.safetensors: " in str(caught.value) and KEY in str(caught.value)


def _read(folder: Path, parts: dict[str, torch.Tensor], *shape: int) -> torch.Tensor:
    """The dequantised weight of the parts."""
    save_file({f"x.{part}": tensor for part, tensor in parts.items()}, folder / "x.safetensors")
    found = torch.empty(shape)
    TensorFiles([folder / "x.safetensors"]).copy("x.weight", found)
    return found


@pytest.mark.parametrize(("outputs", "bits"), [(16, 2), (8, 4), (4, 8)])
def test_zero_points_may_fill_one_word(tmp_path: Path, outputs: int, bits: int) -> None:
    made = pack_quantized(Writer(), outputs, 64, bits=bits, size=32, zeros=True)
    torch.testing.assert_close(_read(tmp_path, made.parts, outputs, 64), made.dense)


def test_one_zero_point_of_a_whole_weight(tmp_path: Path) -> None:
    made = pack_quantized(Writer(), 8, 64, size=-1)
    parts = made.parts | {"weight_zero_point": torch.tensor([3], dtype=torch.int8)}
    torch.testing.assert_close(_read(tmp_path, parts, 8, 64), made.dense - 3 * made.parts["weight_scale"].float())


def test_gptq_of_one_word(tmp_path: Path) -> None:
    made = gptq(Writer(), 32, 8, size=8)
    torch.testing.assert_close(_read(tmp_path, made.parts, 32, 8), made.dense)


def test_awq_is_not_read_as_gptq(llama_wide: Any) -> None:
    quantise(llama_wide, [KEY], awq, {**GPTQ})
    with pytest.raises(WeightsError, match=r"qzeros has 8 words for 8 outputs, which is none of"):
        load(llama_wide)


def test_gptq_of_other_bits_than_the_config_says(llama_wide: Any) -> None:
    quantise(llama_wide, [KEY], partial(gptq, bits=8), {**GPTQ})
    with pytest.raises(WeightsError, match=r"has codes of 8 bits, but config\.json says 4"):
        load(llama_wide)


def test_gptq_with_settings_of_their_own_for_some_layers(llama_wide: Any, ids: torch.Tensor) -> None:
    config = {**GPTQ, "dynamic": {"+:.*q_proj": {"bits": 8, "group_size": 16}}}
    plain = quantise(llama_wide, [KEY], partial(gptq, bits=8, size=16), config)
    plain |= quantise(llama_wide, ["model.layers.0.mlp.up_proj"], gptq, config)
    found = load(llama_wide).forward(ids)
    assert_same(found, load_plain(llama_wide, plain).forward(ids))


def test_old_gptq_with_an_order_of_zeros_has_groups_of_neighbours(llama_wide: Any, ids: torch.Tensor) -> None:
    plain = quantise(llama_wide, [KEY], gptq, GPTQ)
    llama_wide.tensors[f"{KEY}.g_idx"].zero_()
    llama_wide.tensors[f"{KEY}.bias"] = torch.zeros(64)
    found = load(llama_wide).forward(ids)
    del llama_wide.tensors[f"{KEY}.bias"]
    assert_same(found, load_plain(llama_wide, plain).forward(ids))


def holds_all_that_is_read(weight: InterleavedWeight) -> bool:
    """Whether the tensors are as large as the compiled product takes them to be, which trusts that."""
    outputs, inputs = weight.shape
    blocks, words = -(-outputs // 32), sum(size * (kind % 100) // 32 for kind, size in weight.groups)
    groups = (blocks, len(weight.groups), 32)
    zeros, order, factors = weight.zeros, weight.order, weight.factors
    return (
        weight.words.shape == (blocks, words, 32)
        and weight.scales.shape == groups
        and (zeros is None or zeros.shape == groups)
        and (factors is None or factors.shape == (blocks * 32,))
        and (order is None or (order.shape == (inputs,) and 0 <= int(order.min()) <= int(order.max()) < inputs))
        and all(tensor.is_contiguous() for _, tensor in weight._tensors())
    )


_SHAPES = st.lists(st.integers(0, 70), min_size=0, max_size=3).map(tuple)
_TYPES = st.sampled_from([torch.int32, torch.uint8, torch.int8, torch.int16, torch.float16, torch.float32, torch.int64])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(name=st.sampled_from(list(FORMATS)), number=st.integers(0, 9), shape=_SHAPES, dtype=_TYPES, data=st.data())
def test_any_part_may_be_anything(
    name: str, number: int, shape: tuple[int, ...], dtype: torch.dtype, data: st.DataObject, tmp_path_factory: Any
) -> None:
    """A weight with a part of another shape, type or content is read or refused with an error of ours."""
    config, write, _ = FORMATS[name]
    parts = write(Writer(), 64, 64).parts
    part = list(parts)[number % len(parts)]
    if data.draw(st.booleans()):
        values = data.draw(st.binary(min_size=parts[part].nbytes, max_size=parts[part].nbytes))
        tensor = torch.frombuffer(bytearray(values), dtype=torch.uint8)
        parts[part] = tensor.view(parts[part].dtype).view(parts[part].shape)
    else:
        parts[part] = torch.full(shape, data.draw(st.integers(0, 100))).to(dtype)
    file = tmp_path_factory.mktemp("hostile") / "model.safetensors"
    save_file({f"a.{part}": tensor.contiguous() for part, tensor in parts.items()}, file)
    reader = ConfigReader(file, [{"quantization_config": config}])
    try:
        weight = TensorFiles([file], read_quantization(reader)).packed("a.weight", (64, 64), torch.device("cpu"))
    except WeightsError as error:
        assert str(file.name) in str(error) or "no tensor a.weight" in str(error)
        return
    if weight is not None:
        prepared = weight.prepared(torch.float32)
        assert not isinstance(prepared, InterleavedWeight) or holds_all_that_is_read(prepared)
        assert prepared.product(torch.zeros(1, 64)).shape == (1, 64)
