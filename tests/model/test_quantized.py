"""Checkpoints with quantised weights are the models that their plain weights make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from constrain.errors import WeightsError
from constrain.kernels import Int8Weight, dequantize_exl2, dequantize_gptq, multiplies_packed
from constrain.model import ExLlamaV2, ExLlamaV2Config
from constrain.model.forward_context import ForwardContext
from constrain.model.memory import has_int8, module_sizes

LAYERS = ["model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj", "lm_head"]
FIRST = LAYERS[0]

kept_in_int8 = pytest.mark.skipif(
    not multiplies_packed(torch.device("cpu"), torch.float32) or torch.cuda.is_available(),
    reason="weights of eight bits are kept on processors with AVX2 or AVX-512",
)


def integers(*shape: int, high: int = 1 << 31) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-high, high, shape, generator=generator).to(torch.int32)


def exl2_parts(outputs: int, inputs: int) -> dict[str, torch.Tensor]:
    """A random weight: a group of 16 rows of 6 bits, and one of 4 bits; outputs rounded up."""
    columns = -(-outputs // 32) * 32
    return {
        "q_weight": integers(3 + (inputs - 16) // 8, columns),
        "q_groups": torch.tensor([6, 0, 4, 3], dtype=torch.int16),
        "q_scale": integers(2, columns // 8),
        "q_scale_max": torch.tensor([0.2, 0.3]).half(),
        "q_invperm": torch.randperm(inputs, generator=torch.Generator().manual_seed(1)).to(torch.int32),
    }


def exl2_weight(parts: dict[str, torch.Tensor]) -> torch.Tensor:
    bits, starts = [6, 4], [0, 3]
    order = parts["q_invperm"].long()
    return dequantize_exl2(parts["q_weight"], bits, starts, parts["q_scale"], parts["q_scale_max"], order)


def gptq_parts(outputs: int, inputs: int, ordered: bool) -> dict[str, torch.Tensor]:
    """A random weight with groups of 16; the last may be shorter."""
    groups = -(-inputs // 16)
    parts = {
        "qweight": integers(inputs // 8, outputs),
        "qzeros": integers(groups, outputs // 8),
        "scales": (torch.rand(groups, outputs, generator=torch.Generator().manual_seed(2)) / 50).half(),
        "g_idx": torch.zeros(inputs, dtype=torch.int32),
        "bias": torch.zeros(outputs).half(),
    }
    if ordered:
        parts["g_idx"] = torch.randperm(inputs, generator=torch.Generator().manual_seed(3)).to(torch.int32) // 16
    return parts


def gptq_weight(parts: dict[str, torch.Tensor], ordered: bool, zero_offset: int) -> torch.Tensor:
    inputs = len(parts["g_idx"])
    groups = parts["g_idx"].long() if ordered else torch.arange(inputs) // 16
    return dequantize_gptq(parts["qweight"], parts["qzeros"], parts["scales"], groups, zero_offset)


def replace(copy: Any, key: str, parts: dict[str, torch.Tensor]) -> None:
    del copy.tensors[f"{key}.weight"]
    copy.tensors |= {f"{key}.{part}": tensor for part, tensor in parts.items()}


def logits(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    model = ExLlamaV2(ExLlamaV2Config(folder))
    model.load()
    result: torch.Tensor = model.forward(ids)
    return result


def assert_same(copy: Any, plain: dict[str, torch.Tensor], ids: torch.Tensor) -> None:
    """The quantised checkpoint of ``copy`` gives what it would with these weights."""
    found = logits(copy.write(), ids)
    names = [name for name in copy.tensors if any(name.startswith(f"{key}.") for key in plain)]
    for name in names:
        del copy.tensors[name]
    copy.tensors |= {f"{key}.weight": weight.float().contiguous() for key, weight in plain.items()}
    copy.config.pop("quantization_config", None)
    assert torch.equal(found, logits(copy.write(), ids)) and found.isfinite().all()


def test_exl2(llama_copy: Any, ids: torch.Tensor) -> None:
    plain = {}
    for key in LAYERS:
        outputs, inputs = llama_copy.tensors[f"{key}.weight"].shape
        parts = exl2_parts(outputs, inputs)
        replace(llama_copy, key, parts)
        plain[key] = exl2_weight(parts)[:outputs]
    assert ExLlamaV2(ExLlamaV2Config(llama_copy.write())).is_quant()
    assert_same(llama_copy, plain, ids)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("form", ["gptq", "gptq_v2"])
def test_gptq(llama_copy: Any, ids: torch.Tensor, ordered: bool, form: str) -> None:
    llama_copy.config["quantization_config"] = {"quant_method": "gptq", "checkpoint_format": form}
    plain = {}
    for key in LAYERS[:2]:
        parts = gptq_parts(*llama_copy.tensors[f"{key}.weight"].shape, ordered)
        replace(llama_copy, key, parts)
        plain[key] = gptq_weight(parts, ordered, zero_offset=int(form == "gptq"))
    assert_same(llama_copy, plain, ids)


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
        monkeypatch.setattr("constrain.model.modules.multiplies_packed", lambda *_: False)
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
    assert has_int8(model) and not has_int8(dense)
    embedding, first, *_ = module_sizes(model)
    assert embedding == 128 * 48
    assert first == (48 + 24 + 24 + 48) * 48 + 2 * 48 * 4
    # Queries, keys and values are one weight in memory, so it has eight bits only if all are stored so.
    assert module_sizes(model)[3:] == module_sizes(dense)[3:]
    model.load()
    assert isinstance(model.modules[0].weight, Int8Weight)  # type: ignore[attr-defined]
    assert isinstance(model.modules_dict["model.layers.1.self_attn.q_proj"].weight, torch.Tensor)


@kept_in_int8
def test_other_dtypes_are_dequantised(llama_copy: Any, ids: torch.Tensor) -> None:
    store_in_int8(llama_copy, some)
    config = ExLlamaV2Config(llama_copy.write())
    config.compute_dtype = torch.bfloat16
    model = ExLlamaV2(config)
    model.load()
    assert not has_int8(model) and isinstance(model.modules[0].weight, torch.Tensor)  # type: ignore[attr-defined]
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
    with pytest.raises(WeightsError, match=r"down_proj: the tensors of this int8 weight do not fit together"):
        ExLlamaV2(ExLlamaV2Config(llama_copy.write())).load()


def test_the_index_of_other_weights_is_ignored(llama_copy: Any, ids: torch.Tensor) -> None:
    replace(llama_copy, FIRST, exl2_parts(48, 48))
    folder = llama_copy.write()
    llama_copy.write_index({"model.norm.weight": "model-00001-of-00002.safetensors"})
    assert logits(folder, ids).isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q_scale_max": None}, f"no tensor {FIRST}.weight"),
        ({"q_weight": integers(6, 64)}, f"{FIRST}: the tensors of this exl2 weight do not fit together"),
        ({"q_scale": integers(3, 8)}, "do not fit together"),
        ({"q_invperm": torch.zeros(48, dtype=torch.int32)}, "not a permutation"),
        ({"q_invperm": torch.arange(40, dtype=torch.int32)}, r"shape \[64, 40\], but config.json asks for \[48, 48\]"),
        ({"q_groups": torch.tensor([7, 0, 4, 3], dtype=torch.int16)}, r"groups of \[7, 4\] bits"),
        ({"q_groups": torch.tensor([6, 3, 4, 0], dtype=torch.int16)}, "from rows"),
        ({"q_groups": torch.tensor([6, 0, 4], dtype=torch.int16)}, "do not fit together"),
        ({"q_groups": torch.tensor([6, 0, 4, 999], dtype=torch.int16)}, "do not fit together"),
    ],
)
def test_damaged_exl2(llama_copy: Any, change: dict[str, torch.Tensor | None], message: str) -> None:
    parts = {part: tensor for part, tensor in (exl2_parts(48, 48) | change).items() if tensor is not None}
    replace(llama_copy, FIRST, parts)
    with pytest.raises(WeightsError, match=message):
        ExLlamaV2(ExLlamaV2Config(llama_copy.write())).load()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"g_idx": torch.full((48,), 9, dtype=torch.int32)}, "do not fit together"),
        ({"g_idx": torch.ones(40, dtype=torch.int32)}, "g_idx does not name a group"),
        ({"qzeros": integers(3, 12)}, "not of four bits"),
        ({"scales": torch.ones(3, 40).half()}, "do not fit together"),
        ({"bias": torch.ones(48).half()}, "has tensor .*bias, which a LlamaForCausalLM"),
    ],
)
def test_damaged_gptq(llama_copy: Any, change: dict[str, torch.Tensor], message: str) -> None:
    replace(llama_copy, FIRST, gptq_parts(48, 48, False) | change)
    with pytest.raises(WeightsError, match=message):
        ExLlamaV2(ExLlamaV2Config(llama_copy.write())).load()
