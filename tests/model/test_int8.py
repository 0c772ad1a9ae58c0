"""Weights of eight bits with a scale for each row, as the built-in model has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from constrain.errors import WeightsError
from constrain.kernels import Int8Weight, JoinedWeight, multiplies_packed
from constrain.model import ExLlamaV2, ExLlamaV2Config
from constrain.model.forward_context import ForwardContext
from constrain.model.memory import module_sizes, packed_forms

kept_in_int8 = pytest.mark.skipif(
    not multiplies_packed(torch.device("cpu"), torch.float32) or torch.cuda.is_available(),
    reason="weights of eight bits are kept on processors with AVX2 or AVX-512",
)


def replace(copy: Any, key: str, parts: dict[str, torch.Tensor]) -> None:
    del copy.tensors[f"{key}.weight"]
    copy.tensors |= {f"{key}.{part}": tensor for part, tensor in parts.items()}


def logits(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    model = ExLlamaV2(ExLlamaV2Config(folder))
    model.load()
    result: torch.Tensor = model.forward(ids)
    return result


def int8_parts(outputs: int, inputs: int) -> dict[str, torch.Tensor]:
    weight = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8)
    return {"weight": weight, "weight_scale": torch.rand(outputs, 1) / 1000}


def store_in_int8(copy: Any, names: Callable[[str], bool]) -> dict[str, torch.Tensor]:
    """Replace the matrices with certain names by random ones of eight bits, and return what these stand for."""
    plain = {}
    for name in [name for name, tensor in copy.tensors.items() if tensor.ndim == 2 and names(name)]:
        key = name.removesuffix(".weight")
        parts = int8_parts(*copy.tensors[name].shape)
        replace(copy, key, parts)
        plain[name] = parts["weight"].float() * parts["weight_scale"]
    return plain


def some(name: str) -> bool:
    """All of some layers, parts of fused ones of others, and an embedding."""
    return "embed" in name or "layers.0" in name or "layers.1.self_attn.q_proj" in name


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("names", [some, lambda _: True], ids=["some", "all"])
@pytest.mark.parametrize("products", [False, True], ids=["dequantised", "kept"])
def test_int8_with_a_scale_for_each_row(
    llama_copy: Any,
    ids: torch.Tensor,
    names: Callable[[str], bool],
    tied: bool,
    products: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not products:
        monkeypatch.setattr("constrain.model.modules.weight_loading.multiplies_packed", lambda *_: False)
    if tied:
        del llama_copy.tensors["lm_head.weight"]
        llama_copy.config["tie_word_embeddings"] = True
    plain = store_in_int8(llama_copy, names)
    model = ExLlamaV2(ExLlamaV2Config(llama_copy.write()))
    model.load()
    assert model.is_quant()
    found = model.forward(ids)
    for name in plain:
        del llama_copy.tensors[f"{name}_scale"]
    llama_copy.tensors |= plain
    torch.testing.assert_close(found, logits(llama_copy.write(), ids), atol=1e-5, rtol=1e-5)


@kept_in_int8
def test_weights_that_are_kept_take_a_byte_each(llama_copy: Any) -> None:
    dense = ExLlamaV2(ExLlamaV2Config(llama_copy.write()))
    store_in_int8(llama_copy, some)
    model = ExLlamaV2(ExLlamaV2Config(llama_copy.write()))
    assert packed_forms(model) == ["int8"] and not packed_forms(dense)
    embedding, first, *_ = module_sizes(model)
    # Rows are added up to a multiple of 32, and each has a scale of four bytes.
    assert embedding == 128 * (48 + 4)
    assert first == (96 + 64) * (48 + 4) + 2 * 48 * 4
    # Of queries, keys and values, only the first have eight bits.
    assert module_sizes(model)[3] == 64 * (48 + 4) + 4 * (48 * 48 + 48 * 48 + 2 * 48)
    assert module_sizes(model)[4:] == module_sizes(dense)[4:]
    model.load()
    assert isinstance(model.modules[0].weight, Int8Weight)  # type: ignore[attr-defined]
    joined = model.modules_dict["model.layers.1.self_attn.q_proj"].weight
    assert isinstance(joined, JoinedWeight) and [type(part) for part in joined.parts[1:]] == [torch.Tensor] * 2


@kept_in_int8
def test_other_dtypes_are_dequantised(llama_copy: Any, ids: torch.Tensor) -> None:
    store_in_int8(llama_copy, some)
    config = ExLlamaV2Config(llama_copy.write())
    config.compute_dtype = torch.bfloat16
    model = ExLlamaV2(config)
    model.load()
    assert not packed_forms(model) and isinstance(model.modules[0].weight, torch.Tensor)  # type: ignore[attr-defined]
    assert model.forward(ids).isfinite().all()


@kept_in_int8
def test_logits_of_chosen_tokens_are_those_of_all(llama_copy: Any, ids: torch.Tensor) -> None:
    store_in_int8(llama_copy, lambda _: True)
    model = ExLlamaV2(ExLlamaV2Config(llama_copy.write()))
    model.load()
    found, states = model.forward(ids, return_last_state=True)
    context = ForwardContext(attention=None)  # type: ignore[arg-type]  # which a head does not use
    tokens = torch.tensor([3, 98, 41])
    assert torch.equal(model.head(states, context, tokens), found[..., tokens])


def test_int8_with_scales_for_other_rows(llama_copy: Any) -> None:
    key = "model.layers.0.mlp.down_proj"
    parts = int8_parts(*llama_copy.tensors[f"{key}.weight"].shape)
    replace(llama_copy, key, {**parts, "weight_scale": torch.ones(3, 1)})
    with pytest.raises(WeightsError, match=r"down_proj\.weight_scale has shape \[3, 1\], which makes no groups"):
        ExLlamaV2(ExLlamaV2Config(llama_copy.write())).load()


def test_the_index_of_other_weights_is_ignored(llama_copy: Any, ids: torch.Tensor) -> None:
    store_in_int8(llama_copy, some)
    folder = llama_copy.write()
    llama_copy.write_index({"model.norm.weight": "model-00001-of-00002.safetensors"})
    assert logits(folder, ids).isfinite().all()
