"""Quantised weights and settings that are damaged, not supported, or anything at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_models import AUTO_ROUND, COMPRESSED, FORMATS, GPTQ, KEY, load, quantise
from quantized_weights import Writer
from safetensors.torch import save_file

from constrain.errors import ConfigError, WeightsError
from constrain.kernels import InterleavedWeight
from constrain.model import ExLlamaV2Config
from constrain.model.config_reader import ConfigReader
from constrain.model.formats import read_quantization
from constrain.model.tensor_files import TensorFiles


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
