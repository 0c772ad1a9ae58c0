"""Checkpoints of every quantised format are the models that their dequantised weights make, and stay small."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from quantized_models import (
    COMPRESSED,
    FORMATS,
    KEY,
    Write,
    assert_same,
    exl2_of_two_widths,
    load,
    load_plain,
    matrices,
    pretend_tensor_cores,
    quantise,
    weight_of,
)
from quantized_weights import fp8, pack_quantized
from safetensors.torch import save_file

from constrain.cli.inspect import info
from constrain.kernels import JoinedWeight, PackedWeight, TensorCoreWeight, multiplies_packed
from constrain.model import ExLlamaV2Config, ExLlamaV2Lora
from constrain.model.forward_context import ForwardContext
from constrain.model.latent_attention import LatentAttention
from constrain.model.memory import module_sizes, packed_forms
from constrain.model.modules import Head


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


@pytest.mark.parametrize("name", ["exl2", "exl2 of one order"])
def test_codes_of_several_widths_for_tensor_cores(
    qwen2_wide: Any, ids: torch.Tensor, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that share an order of inputs are stored as one."""
    config, write, _ = FORMATS[name]
    plain = quantise(qwen2_wide, matrices(qwen2_wide), write, config)
    pretend_tensor_cores(monkeypatch)
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
