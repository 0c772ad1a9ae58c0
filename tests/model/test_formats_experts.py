"""Quantised weights of mixtures of experts, which stay packed, and their damage."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from quantized_models import (
    FORMATS,
    assert_same,
    load,
    load_plain,
    matrices,
    pretend_tensor_cores,
    quantise,
    store_experts,
)

from constrain.errors import WeightsError
from constrain.kernels import PackedWeight, multiplies_packed
from constrain.model.memory import module_sizes, packed_forms
from constrain.model.mixture import Mixture


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
    pretend_tensor_cores(monkeypatch)
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
