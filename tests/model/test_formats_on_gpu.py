"""Quantised weights stay packed on a GPU, and make the logits of the weights that they dequantise to."""

from __future__ import annotations

import json
import logging
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from quantized_models import FORMATS, GPTQ, load, load_plain, matrices, quantise, store_experts, weight_of
from quantized_weights import Writer, Written, exl2, gptq
from safetensors.torch import save_file

from constrain.kernels import JoinedWeight, StackedWeight, TensorCoreWeight
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Lora
from constrain.model.memory import module_sizes, packed_forms
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import ModelRunner

pytestmark = pytest.mark.gpu

#: Formats whose groups no kernel takes: of 16 or 48 inputs.
DEQUANTISED = {"int4 zeros", "int8 ordered", "fp8 blocks"}
#: Relative errors of logits.
BOUNDS = {torch.float16: 0.02, torch.bfloat16: 0.1}
PAGE = 16


def exact_logits(copy: Any, plain: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """Logits of the dequantised weights, in float32."""
    model = load_plain(copy, plain, compute_dtype=torch.float32)
    assert isinstance(weight_of(model, "model.layers.0.mlp.down_proj"), torch.Tensor)
    return model.forward(ids)[..., :99].cpu()


def check(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, what: str = "") -> None:
    """Compare logits; where greedy decoding is sure of its choice, the token is the same."""
    given = found[..., :99].float().cpu()
    error = float((given - expected).norm() / expected.norm())
    # Not so of what is not a number.
    assert error < BOUNDS[dtype], f"{what}: error {error:.1e}"
    first, second = expected.topk(2).values.unbind(dim=-1)
    sure = first - second > 2 * (given - expected).abs().amax(dim=-1)
    assert sure.float().mean() >= 0.4 or sure.numel() < 9
    assert torch.equal(given.argmax(dim=-1)[sure], expected.argmax(dim=-1)[sure])


def steps(model: ExLlamaV2, ids: torch.Tensor, prompt: int) -> torch.Tensor:
    """Logits ``[rows, width - prompt, vocabulary]`` of decode steps, which are graphs."""
    rows, width = ids.shape
    pages = -(-width // PAGE)
    cache = ExLlamaV2Cache(model, max_seq_len=rows * pages * PAGE)
    runner = ModelRunner(model, cache, PAGE)
    tables = [range(row * pages, (row + 1) * pages) for row in range(rows)]
    for each, table in zip(ids.tolist(), tables, strict=True):
        runner.prefill([BatchRow(tuple(each[:prompt]), 0, table)])
    found = []
    for place in range(prompt, width):
        batch = [BatchRow((each[place],), place, table) for each, table in zip(ids.tolist(), tables, strict=True)]
        out = runner.decode(batch)
        assert out.static is not None
        found.append(model.head(out.states, out.context)[:rows].clone())
    return torch.stack(found, dim=1)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("name", FORMATS)
def test_logits_and_memory(llama_wide: Any, ids: torch.Tensor, name: str, dtype: torch.dtype) -> None:
    """With 1, 8, 21, 42 and 84 rows, each of which is computed in a way of its own."""
    config, write, form = FORMATS[name]
    plain = quantise(llama_wide, matrices(llama_wide), write, config)
    model = load(llama_wide, compute_dtype=dtype)
    sizes = module_sizes(model)
    weights = [weight_of(model, f"model.layers.1.mlp.{part}") for part in ("up_proj", "down_proj")]
    if name in DEQUANTISED:
        assert packed_forms(model) == [] and all(isinstance(weight, torch.Tensor) for weight in weights)
    else:
        assert packed_forms(model) == [form]
        assert all(isinstance(weight, (TensorCoreWeight, JoinedWeight)) for weight in weights)
        assert weights[0].device.type == "cuda"
    assert sizes[4] == sum(weight.nbytes for weight in weights) + 2 * 64 * dtype.itemsize
    found = {width: model.forward(ids[:1, :width]) for width in (1, 8, 21)}
    twice, fourfold = model.forward(ids), model.forward(ids.repeat(2, 1))
    expected = exact_logits(llama_wide, plain, ids)
    for width, logits in found.items():
        check(logits, expected[:1, :width], dtype, f"{width} rows")
    check(twice, expected, dtype, "42 rows")
    check(fourfold, expected.repeat(2, 1, 1), dtype, "84 rows")


@pytest.mark.parametrize("rows", [1, 2, 20])
@pytest.mark.parametrize(
    "name", ["int4 groups", "gptq 4 bits, ordered v2", "int8 bytes", "fp8 rows", "mxfp4", "nvfp4", "exl2 of one order"]
)
def test_decode_steps_are_graphs(llama_wide: Any, ids: torch.Tensor, name: str, rows: int) -> None:
    config, write, _ = FORMATS[name]
    plain = quantise(llama_wide, matrices(llama_wide), write, config)
    texts = ids.repeat(10, 1)[:rows]
    found = steps(load(llama_wide, compute_dtype=torch.bfloat16), texts, 13)
    expected = exact_logits(llama_wide, plain, ids).repeat(10, 1, 1)[:rows, 13:]
    check(found, expected, torch.bfloat16)


def test_biases_an_adapter_and_chosen_tokens(qwen2_wide: Any, ids: torch.Tensor, tmp_path: Path) -> None:
    key, generator = "model.layers.1.mlp.gate_proj", torch.Generator().manual_seed(1)
    down, up = (torch.randn(size, generator=generator) / 5 for size in ((4, 64), (128, 4)))
    adapter = {f"base_model.model.{key}.lora_A.weight": down, f"base_model.model.{key}.lora_B.weight": up}
    save_file(adapter, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 4}))
    config, write, _ = FORMATS["int4 groups"]
    plain = quantise(qwen2_wide, matrices(qwen2_wide), write, config)
    model = load(qwen2_wide, compute_dtype=torch.float16)
    found = model.forward(ids, loras=ExLlamaV2Lora.from_directory(model, tmp_path))
    logits, output = model.forward(ids, return_last_state=True)
    tokens = torch.tensor([3, 98, 41], device="cuda")
    context = model.modules[-1].forward(output, _context(), tokens)  # type: ignore[arg-type]
    torch.testing.assert_close(context, logits[..., tokens], atol=2e-2, rtol=2e-2)
    plain[f"{key}.weight"] += up @ down
    check(found, exact_logits(qwen2_wide, plain, ids), torch.float16)


def _context() -> Any:
    from constrain.model.forward_context import ForwardContext

    return ForwardContext(attention=None)  # type: ignore[arg-type]  # which a head does not use


def test_a_tied_head(llama_wide: Any, ids: torch.Tensor) -> None:
    del llama_wide.tensors["lm_head.weight"]
    llama_wide.config["tie_word_embeddings"] = True
    config, write, _ = FORMATS["int8 groups"]
    plain = quantise(llama_wide, ["model.embed_tokens"], write, config)
    model = load(llama_wide, compute_dtype=torch.bfloat16)
    assert isinstance(model.modules[-1].weight, TensorCoreWeight)  # type: ignore[attr-defined]
    found = model.forward(ids)
    check(found, exact_logits(llama_wide, plain, ids), torch.bfloat16)


@pytest.mark.parametrize("name", ["int4 groups", "int8 bytes", "fp8 rows", "nvfp4", "exl2"])
def test_packed_weights_are_split_over_devices(llama_wide: Any, ids: torch.Tensor, name: str) -> None:
    config, write, _ = FORMATS[name]
    plain = quantise(llama_wide, matrices(llama_wide), write, config)
    settings = ExLlamaV2Config(llama_wide.write())
    settings.compute_dtype = torch.bfloat16
    model = ExLlamaV2(settings)
    model.load_tp(devices=["cuda:0", "cuda:0"])
    down: Any = model.modules_dict["model.layers.0.mlp.down_proj"]
    assert {type(part.weight) for part in down._parts.values()} == {
        torch.Tensor if name in DEQUANTISED else TensorCoreWeight
    }
    found = model.forward(ids)
    check(found, exact_logits(llama_wide, plain, ids), torch.bfloat16)


@pytest.mark.parametrize("name", ["int4 groups", "fp8 rows", "nvfp4", "exl2 in order", "gptq in order"])
def test_packed_experts_are_split_over_devices(mixtral_wide: Any, ids: torch.Tensor, name: str) -> None:
    plain = quantise_experts(mixtral_wide, name)
    settings = ExLlamaV2Config(mixtral_wide.write())
    settings.compute_dtype = torch.bfloat16
    model = ExLlamaV2(settings)
    model.load_tp(devices=["cuda:0", "cuda:0"])
    found = model.forward(ids)
    expected = load_plain(mixtral_wide, plain, compute_dtype=torch.float32).forward(ids)[..., :99].cpu()
    check(found, expected, torch.bfloat16)


EXPERTS = [
    *("int2 groups", "int4 groups", "int4 zeros in bytes", "int4 rows", "int8 groups", "int8 bytes", "fp8 rows"),
    *("mxfp4", "nvfp4", "gptq 4 bits v1", "awq"),
]


def _exl2(writer: Writer, outputs: int, inputs: int, order: np.ndarray) -> Written:
    wide = ((8, 32), (4, inputs - 32)) if outputs % 128 == 0 else ((5, 32), (3, 32), (2, inputs - 64))
    return exl2(writer, outputs, inputs, wide, order)


#: As in FORMATS, but the writer is given the position of each input, which gate and up of an expert share.
ORDERED_EXPERTS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "exl2 in order": ({"quant_method": "exl2", "bits": 4.2}, _exl2, "exl2"),
    "gptq in order": (GPTQ | {"desc_act": True}, gptq, "int4"),
    "gptq of 8 bits in order": (
        GPTQ | {"desc_act": True, "bits": 8, "sym": True},
        partial(gptq, bits=8, symmetric=True),
        "int8",
    ),
}


def quantise_experts(copy: Any, name: str) -> dict[str, torch.Tensor]:
    """Quantise the experts, all of which every token passes through: where logits of a router are close, rounding would
    choose."""
    copy.config["num_experts_per_tok"] = 8
    keys = sorted(key for key in matrices(copy) if "experts" in key)
    if name in FORMATS:
        config, write, _ = FORMATS[name]
        return quantise(copy, keys, write, config)
    config, in_order, _ = ORDERED_EXPERTS[name]
    calls = count()

    def of_expert(writer: Writer, outputs: int, inputs: int) -> Written:
        expert = next(calls) // 3
        order = np.random.default_rng((expert, inputs)).permutation(inputs)
        return in_order(writer, outputs, inputs, order=order)  # type: ignore[no-any-return]

    return quantise(copy, keys, of_expert, config)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("name", [*EXPERTS, *ORDERED_EXPERTS])
def test_experts_stay_packed(mixtral_wide: Any, ids: torch.Tensor, name: str, dtype: torch.dtype) -> None:
    """With 1, 8, 21, 42 and 84 rows, and in steps that are graphs."""
    plain = quantise_experts(mixtral_wide, name)
    model = load(mixtral_wide, compute_dtype=dtype)
    mixture: Any = model.modules[2]
    weights = (mixture.gate_up.weight, mixture.down.weight)
    assert all(isinstance(weight, StackedWeight) for weight in weights) and mixture.capturable
    assert packed_forms(model) == [(FORMATS | ORDERED_EXPERTS)[name][2]]
    assert module_sizes(model)[2] == sum(weight.nbytes for weight in weights) + dtype.itemsize * (2 * 64 + 8 * 64)
    found = {width: model.forward(ids[:1, :width]) for width in (1, 8, 21)}
    twice, fourfold = model.forward(ids), model.forward(ids.repeat(2, 1))
    decoded = {rows: steps(model, ids.repeat(10, 1)[:rows], 13) for rows in (1, 20)}
    expected = load_plain(mixtral_wide, plain, compute_dtype=torch.float32).forward(ids)[..., :99].cpu()
    for width, logits in found.items():
        check(logits, expected[:1, :width], dtype, f"{width} rows")
    check(twice, expected, dtype, "42 rows")
    check(fourfold, expected.repeat(2, 1, 1), dtype, "84 rows")
    for rows, logits in decoded.items():
        check(logits, expected.repeat(10, 1, 1)[:rows, 13:], dtype, f"steps of {rows}")


def test_experts_of_gpt_oss_stay_packed(gpt_oss_wide: Any, ids: torch.Tensor) -> None:
    plain = store_experts(gpt_oss_wide)
    model = load(gpt_oss_wide, compute_dtype=torch.bfloat16)
    mixture: Any = model.modules[2]
    assert isinstance(mixture.gate_up.weight, StackedWeight) and isinstance(mixture.down.weight, StackedWeight)
    found = model.forward(ids)
    gpt_oss_wide.tensors = {key: tensor for key, tensor in gpt_oss_wide.tensors.items() if key[:-7] not in plain}
    gpt_oss_wide.tensors |= plain
    del gpt_oss_wide.config["quantization_config"]
    expected = load(gpt_oss_wide, compute_dtype=torch.float32).forward(ids)[..., :99].cpu()
    check(found, expected, torch.bfloat16)


@pytest.mark.parametrize("name", ["int4 groups", "exl2 in order"])
def test_an_adapter_of_packed_experts(mixtral_wide: Any, ids: torch.Tensor, tmp_path: Path, name: str) -> None:
    """With few rows, whose experts are dequantised in one step of fixed shape, and with more."""
    key, generator = "model.layers.1.block_sparse_moe.experts.3.w1", torch.Generator().manual_seed(1)
    down, up = (torch.randn(size, generator=generator) / 5 for size in ((4, 64), (128, 4)))
    adapter = {f"base_model.model.{key}.lora_A.weight": down, f"base_model.model.{key}.lora_B.weight": up}
    save_file(adapter, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 4}))
    plain = quantise_experts(mixtral_wide, name)
    model = load(mixtral_wide, compute_dtype=torch.float16)
    lora = ExLlamaV2Lora.from_directory(model, tmp_path)
    few, many = model.forward(ids[:1, :5], loras=lora), model.forward(ids.repeat(2, 1), loras=lora)
    plain[f"{key}.weight"] += up @ down
    expected = load_plain(mixtral_wide, plain, compute_dtype=torch.float32).forward(ids)[..., :99].cpu()
    check(few, expected[:1, :5], torch.float16)
    check(many, expected.repeat(2, 1, 1), torch.float16)


@pytest.mark.parametrize("name", ["exl2", "int3 groups", "gptq 4 bits, ordered v2", "int4 zeros"])
def test_experts_that_are_dequantised_which_is_said(
    mixtral_wide: Any, ids: torch.Tensor, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of which gate and up have other orders of inputs, or with groups that no kernel takes."""
    plain = quantise_experts(mixtral_wide, name)
    with caplog.at_level(logging.WARNING):
        model = load(mixtral_wide, compute_dtype=torch.bfloat16)
    assert f"48 in {FORMATS[name][2]}" in caplog.text
    mixture: Any = model.modules[2]
    assert isinstance(mixture.gate_up.weight, torch.Tensor) and mixture.capturable
    assert module_sizes(model)[2] >= mixture.gate_up.weight.nbytes + mixture.down.weight.nbytes
    found = model.forward(ids)
    expected = load_plain(mixtral_wide, plain, compute_dtype=torch.float32).forward(ids)[..., :99].cpu()
    check(found, expected, torch.bfloat16)
