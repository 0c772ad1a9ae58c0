"""The same modules on a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from constrain.model import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
    ExLlamaV2CacheBase,
    ExLlamaV2Config,
    ExLlamaV2Lora,
    ExLlamaV2MMEmbedding,
    memory,
)
from constrain.model.memory import module_sizes

pytestmark = pytest.mark.gpu
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@pytest.fixture(autouse=True)
def _exact_products() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def test_parity(family: Any, ids: torch.Tensor) -> None:
    model = family.load(compute_dtype=torch.float32)
    expected = family.logits(ids)
    assert model.get_cache_devices() == ["cuda:0"]
    cache = ExLlamaV2Cache(model, batch_size=2, max_seq_len=32)
    prefill = model.forward(ids[:, :15], cache)
    steps = [model.forward(ids[:, i : i + 1], cache) for i in range(15, 21)]
    logits = torch.cat((prefill, *steps), dim=1)
    assert logits.is_cuda
    torch.testing.assert_close(logits.cpu()[..., :99], expected, atol=5e-4, rtol=0)


def test_left_padding(family: Any, ids: torch.Tensor) -> None:
    model = family.load(compute_dtype=torch.float32)
    mask = torch.zeros(2, 21, dtype=torch.half)
    mask[1, :8] = -torch.inf
    offsets = torch.tensor([0, -8], dtype=torch.int)
    logits = model.forward(
        ids, ExLlamaV2Cache(model, batch_size=2), input_mask=mask, position_offsets=offsets, cpu_logits=True
    )
    expected = family.logits(ids, torch.tensor([0, 8]))
    torch.testing.assert_close(logits[1, 8:, :99], expected[1, 8:], atol=5e-4, rtol=0)


def test_half_precision_by_default(llama: Any, ids: torch.Tensor) -> None:
    model = llama.load()
    logits = model.forward(ids, ExLlamaV2Cache(model, batch_size=2))
    assert logits.dtype == model.compute_dtype == torch.float16
    torch.testing.assert_close(logits.cpu().float()[..., :99], llama.logits(ids), atol=0.1, rtol=0.05)


def test_layers_on_several_devices(llama: Any, ids: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_turn(sizes: list[int], split: object) -> list[torch.device]:
        return [torch.device("cpu" if number % 4 < 2 else "cuda:0") for number in range(len(sizes))]

    monkeypatch.setattr(memory, "split_by_size", in_turn)
    model = llama.load(compute_dtype=torch.float32)
    assert {*model.cache_map.values()} == {"cpu", "cuda:0"}
    cache = ExLlamaV2Cache(model, batch_size=2)
    logits = torch.cat((model.forward(ids[:, :15], cache), model.forward(ids[:, 15:], cache)), dim=1)
    torch.testing.assert_close(logits.cpu()[..., :99], llama.logits(ids), atol=5e-4, rtol=0)


def test_autosplit(llama: Any, ids: torch.Tensor) -> None:
    model = ExLlamaV2(ExLlamaV2Config(llama.folder))
    cache = ExLlamaV2Cache(model, batch_size=2, lazy=True)
    model.load_autosplit(cache)
    assert all(tensor.is_cuda for tensor in cache.all_tensors())
    assert model.forward(ids, cache).is_cuda


@pytest.mark.parametrize(
    ("kind", "bound"),
    [(ExLlamaV2Cache_8bit, 0.4), (ExLlamaV2Cache_Q4, 0.4), (ExLlamaV2Cache_Q6, 0.4), (ExLlamaV2Cache_Q8, 0.03)],
)
def test_quantised_caches(llama: Any, ids: torch.Tensor, kind: type[ExLlamaV2CacheBase], bound: float) -> None:
    model = llama.load(compute_dtype=torch.float32)
    cache = kind(model, batch_size=2)
    logits = torch.cat((model.forward(ids[:, :15], cache), model.forward(ids[:, 15:], cache)), dim=1)
    assert all(tensor.is_cuda for tensor in cache.all_tensors())
    error = logits.cpu()[..., :99].softmax(dim=-1) - llama.logits(ids).softmax(dim=-1)
    assert 0 < error.abs().max() < bound


def test_embeddings_and_adapters(llama: Any, ids: torch.Tensor, tmp_path: Path) -> None:
    model = llama.load(compute_dtype=torch.float32)
    block = ExLlamaV2MMEmbedding(model, model.modules[0].weight[ids[0, :4]].cpu())
    mixed = torch.cat((block.get_ids_tensor(), ids[:1, 4:]), dim=1)
    torch.testing.assert_close(model.forward(mixed, indexed_embeddings=[block]), model.forward(ids[:1]))
    name = "model.layers.0.mlp.down_proj"
    save_file(
        {f"{name}.lora_A.weight": torch.ones(1, 80), f"{name}.lora_B.weight": torch.ones(48, 1)},
        tmp_path / "adapter_model.safetensors",
    )
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 1, "lora_alpha": 1}))
    lora = ExLlamaV2Lora.from_directory(model, tmp_path)
    assert not torch.allclose(model.forward(ids[:1], loras=[lora]), model.forward(ids[:1]))


def random_adapter(model: ExLlamaV2, folder: Path, rank: int) -> ExLlamaV2Lora:
    """An adapter of every linear layer, the same each time."""
    torch.manual_seed(0)
    tensors = {}
    for layer in model.config.layout.layers:
        for linear in layer.linears():
            for key, outputs in linear.parts():
                tensors[f"{key}.lora_A.weight"] = torch.randn(rank, linear.inputs) * 0.2
                tensors[f"{key}.lora_B.weight"] = torch.randn(outputs, rank) * 0.2
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "lora_alpha": rank}))
    return ExLlamaV2Lora.from_directory(model, folder)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float16, 0.04), (torch.bfloat16, 0.1)])
@pytest.mark.parametrize("family_name", ["llama", "llama_biases", "gemma2"])
def test_adapters_in_half_precision(
    checkpoint: Callable[[str], Any],
    family_name: str,
    dtype: torch.dtype,
    bound: float,
    ids: torch.Tensor,
    tmp_path: Path,
) -> None:
    """Alone, in few rows and in many, each of which has kernels of its own."""
    source = checkpoint(family_name)
    exact, model = source.load(compute_dtype=torch.float32), source.load(compute_dtype=dtype)
    loras = [random_adapter(each, tmp_path, rank=5) for each in (exact, model)]
    plain, expected = (exact.forward(ids[:1], loras=active)[..., :99] for active in ([], [loras[0]]))
    assert (plain - expected).norm() > 0.5 * expected.norm()
    for width in (1, 8, 9, 21):
        logits = model.forward(ids[:1, :width], loras=[loras[1]])[..., :99].float()
        assert (logits - expected[:, :width]).norm() < bound * expected[:, :width].norm()


@two_gpus
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_layers_on_two_gpus(llama: Any, ids: torch.Tensor, dtype: torch.dtype) -> None:
    config = ExLlamaV2Config(llama.folder)
    config.compute_dtype = dtype
    model = ExLlamaV2(config)
    sizes = module_sizes(model)
    model.load(gpu_split=[sum(sizes) / 2 / 1024**3, 1.0])
    assert {*model.cache_map.values()} == {"cuda:0", "cuda:1"}
    cache = ExLlamaV2Cache(model, batch_size=2)
    logits = torch.cat((model.forward(ids[:, :15], cache), model.forward(ids[:, 15:], cache)), dim=1)
    atol, rtol = (5e-4, 0.0) if dtype is torch.float32 else (0.1, 0.05)
    torch.testing.assert_close(logits.cpu().float()[..., :99], llama.logits(ids), atol=atol, rtol=rtol)


@two_gpus
@pytest.mark.parametrize("family_name", ["llama", "qwen3", "gemma2"])
@pytest.mark.parametrize("kind", [ExLlamaV2Cache, ExLlamaV2Cache_Q4])
def test_autosplit_over_two_gpus(
    checkpoint: Callable[[str], Any],
    family_name: str,
    kind: type[ExLlamaV2CacheBase],
    ids: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = checkpoint(family_name)
    config = ExLlamaV2Config(source.folder)
    config.compute_dtype = torch.float32
    model = ExLlamaV2(config)
    cache = kind(model, batch_size=2, lazy=True)
    model.choose_dtype()
    working = memory.working_bytes(model, cache)
    half = sum(module_sizes(model, cache.layer_bytes())) // 2
    # The first has room for half of it.
    free = [working + half + 192 * 1024**2, torch.cuda.mem_get_info(1)[0]]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free[index], 0))
    model.load_autosplit(cache)
    assert {*model.cache_map.values()} <= {"cuda:0", "cuda:1"} and model.modules[-1].device.index == 1
    assert [str(tensor.device) for tensor in cache.key_states] == [model.cache_map[i] for i in range(3)]
    sizes = [0, 0]
    for module, size in zip(model.modules, module_sizes(model, cache.layer_bytes()), strict=True):
        sizes[module.device.index] += size
    assert sizes[0] <= half
    one = source.load(compute_dtype=torch.float32)
    expected = one.forward(ids, kind(one, batch_size=2))
    logits = torch.cat((model.forward(ids[:, :15], cache), model.forward(ids[:, 15:], cache)), dim=1)
    bound = 5e-4 if kind is ExLlamaV2Cache else 0.2
    torch.testing.assert_close(logits.cpu()[..., :99], expected.cpu()[..., :99], atol=bound, rtol=0)
