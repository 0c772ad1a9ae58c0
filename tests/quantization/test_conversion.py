"""A converted folder holds the model in fewer bits, and an interrupted conversion ends as any other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import FAMILIES, WIDE, make_checkpoint
from filelock import FileLock
from safetensors.torch import load_file, save_file

from constrain import ExLlamaV2, ExLlamaV2Config
from constrain.demo import model_dir
from constrain.demo.export import dequantized as dequantized_demo
from constrain.errors import ArgumentError, ModelError
from constrain.kernels import PackedWeight, multiplies_packed
from constrain.model.modules import find_linear
from constrain.quantization import Text, conversion, evaluate_model, quantize
from constrain.quantization.texts import Window

TEXTS = [Text(f"The quick brown fox {number} jumps over the lazy dog, hello héros of the café") for number in range(12)]

Tensors = dict[str, torch.Tensor]


def tensors_of(folder: Path) -> Tensors:
    """All tensors of a folder, by its index."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = {name: load_file(folder / name) for name in {*index["weight_map"].values()}}
    assert {name: file for file, tensors in files.items() for name in tensors} == index["weight_map"]
    found = {name: tensor for tensors in files.values() for name, tensor in tensors.items()}
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in found.values())
    return found


def dequantized(tensors: Tensors, bits_of: dict[str, int]) -> Tensors:
    """The weights by the formula of compressed-tensors, in plain arithmetic; ``bits_of`` by layer."""
    plain = {}
    for name, tensor in tensors.items():
        key, _, part = name.rpartition(".")
        if part == "weight_packed":
            bits, (rows, inputs) = bits_of.get(key, bits_of["*"]), tensors[f"{key}.weight_shape"].tolist()
            words = tensor.to(torch.int64) & 0xFFFFFFFF
            codes = torch.stack([words >> shift & (1 << bits) - 1 for shift in range(0, 32, bits)], -1).flatten(1)
            scales = tensors[f"{key}.weight_scale"].float()
            wide = scales.repeat_interleave(inputs // scales.shape[1], 1)
            plain[f"{key}.weight"] = (codes[:, :inputs] - (1 << bits - 1)) * wide
            assert plain[f"{key}.weight"].shape == (rows, inputs)
        elif part not in ("weight_scale", "weight_shape"):
            plain[name] = tensor
    return plain


def as_plain_model(folder: Path, copy: Path, bits: int = 4, **bits_of: int) -> Path:
    """A copy of a converted model with plain weights."""
    weights = dequantized(tensors_of(folder), {"*": bits, **bits_of})
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.safetensors", "*.index.json"))
    save_file(weights, str(copy / "model.safetensors"))
    config = json.loads((copy / "config.json").read_text())
    del config["quantization_config"]
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def converted(tiny_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in four bits."""
    folder = tmp_path_factory.mktemp("converted") / "tiny"
    quantize(tiny_dir, folder, bits=4, calibration=TEXTS)
    return folder


def test_projections_are_packed_and_the_rest_is_as_before(tiny_dir: Path, converted: Path) -> None:
    before, after = load_file(tiny_dir / "model.safetensors"), tensors_of(converted)
    for name, tensor in before.items():
        if "_proj." in name:
            key = name.removesuffix(".weight")
            assert name not in after
            assert after[f"{key}.weight_packed"].shape == (tensor.shape[0], tensor.shape[1] // 8)
            assert after[f"{key}.weight_scale"].shape == (tensor.shape[0], tensor.shape[1] // 32)
            assert after[f"{key}.weight_scale"].dtype is tensor.dtype
        else:
            assert torch.equal(after[name], tensor)
    plain = dequantized(after, {"*": 4})
    assert plain.keys() == before.keys()
    errors = [float((plain[name] - tensor).norm() / tensor.norm()) for name, tensor in before.items()]
    assert 0.05 < max(errors) < 0.25


def test_the_config_says_what_is_packed(tiny_dir: Path, converted: Path) -> None:
    config = json.loads((converted / "config.json").read_text())
    quantization = config.pop("quantization_config")
    assert config == json.loads((tiny_dir / "config.json").read_text())
    assert (quantization["quant_method"], quantization["format"]) == ("compressed-tensors", "pack-quantized")
    assert quantization["ignore"] == ["lm_head"]
    (group,) = quantization["config_groups"].values()
    assert group["targets"] == ["Linear"]
    assert group["weights"] == {
        "num_bits": 4,
        "type": "int",
        "symmetric": True,
        "strategy": "group",
        "group_size": 32,
        "dynamic": False,
        "actorder": "weight",
    }


def test_other_files_are_copied(tiny_dir: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(tiny_dir, source)
    (source / "chat_template.jinja").write_text("{{ messages }}")
    (source / "pytorch_model.bin").write_bytes(b"weights")
    (source / ".hidden").write_text("")
    (source / "folder").mkdir()
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "rag.jinja").write_text("{{ documents }}")
    quantize(source, tmp_path / "out", bits=8)
    copied = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "additional_chat_templates/rag.jinja")
    for name in copied:
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()
    assert not {"pytorch_model.bin", ".hidden", "folder", "model.safetensors"} & contents(tmp_path / "out").keys()
    assert {(tmp_path / "out" / name).stat().st_mode & 0o777 for name in contents(tmp_path / "out")} == {
        (tmp_path / "out" / "config.json").stat().st_mode & 0o777
    }


@pytest.mark.parametrize("bits", [4, 8])
def test_the_files_are_read_and_stay_packed(tiny_dir: Path, tmp_path: Path, bits: int) -> None:
    quantize(tiny_dir, tmp_path / "out", bits=bits, head_bits=8, calibration=TEXTS)
    as_plain_model(tmp_path / "out", tmp_path / "plain", bits, lm_head=8)
    ids, logits = torch.arange(40).view(2, 20), []
    for folder in (tmp_path / "out", tmp_path / "plain"):
        model = ExLlamaV2(ExLlamaV2Config(folder))
        model.load()
        logits.append(model.forward(ids))
        packed = all(isinstance(layer.weight, PackedWeight) for layer in find_linear(model.modules).values())
        assert packed == (folder.name == "out" and multiplies_packed(torch.device("cpu"), torch.float32))
    assert (logits[0] - logits[1]).abs().max() < 1e-3


def test_calibration_helps(tiny_dir: Path, converted: Path, tmp_path: Path) -> None:
    nearest = quantize(tiny_dir, tmp_path / "nearest", bits=4)
    assert (nearest.tokens, nearest.group_size) == (0, 32)
    divergences = []
    for folder in (converted, tmp_path / "nearest"):
        found = evaluate_model(folder, TEXTS, against=tiny_dir).divergence
        assert found is not None
        divergences.append(found.mean)
    assert divergences[0] < 0.5 * divergences[1]


def test_the_figures(tiny_dir: Path, tmp_path: Path) -> None:
    found = quantize(tiny_dir, tmp_path / "out", bits=8, calibration=TEXTS, activation_order=False)
    tensors = tensors_of(tmp_path / "out")
    assert (found.bits, found.group_size, found.folder) == (8, 32, str(tmp_path / "out"))
    assert found.bytes == sum(tensor.nbytes for tensor in tensors.values()) < found.source_bytes
    assert found.source_bytes == sum(tensor.nbytes for tensor in load_file(tiny_dir / "model.safetensors").values())
    assert len(found.errors) == 14 and all(0 < error < 0.01 for error in found.errors.values())
    assert json.loads(json.dumps(found.to_json()))["errors"] == found.errors
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["config_groups"]["group_0"]["weights"]["actorder"] is None
    assert quantize(tiny_dir, tmp_path / "out", bits=8, calibration=TEXTS, activation_order=False) == found


def test_the_tokens_are_spread_evenly(tiny_dir: Path, tmp_path: Path) -> None:
    found = quantize(tiny_dir, tmp_path / "out", calibration=TEXTS, max_tokens=100)
    whole = quantize(tiny_dir, tmp_path / "whole", calibration=TEXTS, context=16)
    assert 60 <= found.tokens <= 100 < whole.tokens


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("steps", [1, 9, 25, 60, 95])
def test_an_interrupted_conversion_goes_on(tiny_dir: Path, converted: Path, tmp_path: Path, steps: int) -> None:
    out = tmp_path / "out"

    def interrupt(done: int, total: int) -> None:
        if done >= total * steps / 100:
            raise Interrupted

    with pytest.raises(Interrupted):
        quantize(tiny_dir, out, bits=4, calibration=TEXTS, progress=interrupt)
    assert not (out / "config.json").exists()
    done = {path: path.stat().st_mtime_ns for path in out.glob("*.safetensors")}
    (out / "model-00003-of-00005.safetensors.partial").write_bytes(b"half")
    quantize(tiny_dir, out, bits=4, calibration=TEXTS)
    assert contents(out) == contents(converted)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert bool(done) == (steps >= 25)


def test_a_damaged_file_is_written_again(tiny_dir: Path, converted: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(converted, out)
    damaged = out / "model-00002-of-00005.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-4] + b"\0\1\0\1")
    (out / "model-00005-of-00005.safetensors").unlink()
    quantize(tiny_dir, out, bits=4, calibration=TEXTS)
    assert contents(out) == contents(converted)


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"bits": 8}, "projections"), ({"calibration": None}, "calibration"), ({"damping": 0.1}, "projections")],
)
def test_other_settings_are_refused(tiny_dir: Path, converted: Path, changes: dict[str, Any], name: str) -> None:
    before = contents(converted)
    with pytest.raises(ArgumentError, match=rf"has a conversion with other settings \(.*{name}"):
        quantize(tiny_dir, converted, **{"bits": 4, "calibration": TEXTS, **changes})
    assert contents(converted) == before


def test_another_model_is_refused(tiny_dir: Path, converted: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_dir, other)
    weights = load_file(other / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"] *= 2
    save_file(weights, str(other / "model.safetensors"))
    with pytest.raises(ArgumentError, match=r"other settings \(model\)"):
        quantize(other, converted, bits=4, calibration=TEXTS)


def test_a_folder_of_which_only_the_record_was_begun_is_taken(tiny_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "quantization.json.partial").write_text('{"settings": {')
    quantize(tiny_dir, out)
    assert ExLlamaV2Config(str(out)).quantization is not None
    assert not list(out.glob("*.partial"))


def test_folders_in_use_are_refused(tiny_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    with pytest.raises(ArgumentError, match="not an empty folder, and not one of an interrupted conversion"):
        quantize(tiny_dir, tmp_path / "letters")
    with (
        FileLock(tmp_path / ".out.lock"),
        pytest.raises(ArgumentError, match="another process is writing to this folder"),
    ):
        quantize(tiny_dir, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 3}, "bits must be 4 or 8, not 3"),
        ({"head_bits": 4}, "head_bits must be 8 or None, not 4"),
        ({"group_size": 48}, r"group_size 48 does not divide the 32 inputs of model\.layers\.0\..*; take 32"),
        ({"group_size": -1}, "group_size must be a whole number of at least 0"),
        ({"damping": 2}, "damping must be a finite number from 0 to 1"),
        ({"max_tokens": 0}, "max_tokens must be a whole number of at least 1"),
        ({"calibration": ""}, "the texts to calibrate with are too short"),
    ],
)
def test_mistakes_are_named(tiny_dir: Path, tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        quantize(tiny_dir, tmp_path / "out", **arguments)
    with pytest.raises(ModelError, match="windows of 999 tokens are longer than the context"):
        quantize(tiny_dir, tmp_path / "out", calibration=TEXTS, context=999)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_named(tiny_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match=r"file/out: the quantised model cannot be written"):
        quantize(tiny_dir, tmp_path / "file" / "out")


@pytest.mark.parametrize(
    ("name", "calibration", "message"),
    [
        ("model.embed_tokens", TEXTS, r"model\.layers\.0\.self_attn\.\w+: the inputs of this layer .* are not finite"),
        ("model.layers.0.mlp.up_proj", TEXTS, r"layers\.0\.mlp\.up_proj: the weights of this layer are not all finite"),
        ("model.layers.0.mlp.up_proj", None, r"layers\.0\.mlp\.up_proj: the weights of this layer are not all finite"),
    ],
)
def test_what_is_not_finite_is_named(tiny_dir: Path, tmp_path: Path, name: str, calibration: Any, message: str) -> None:
    source = tmp_path / "source"
    shutil.copytree(tiny_dir, source)
    weights = load_file(source / "model.safetensors")
    weights[f"{name}.weight"] *= torch.inf
    save_file(weights, str(source / "model.safetensors"))
    with pytest.raises(ModelError, match=message):
        quantize(source, tmp_path / "out", calibration=calibration)


def test_the_head_in_eight_bits(tiny_dir: Path, tmp_path: Path) -> None:
    quantize(tiny_dir, tmp_path / "out", bits=4, head_bits=8)
    tensors = tensors_of(tmp_path / "out")
    assert tensors["lm_head.weight_packed"].shape == (
        load_file(tiny_dir / "model.safetensors")["lm_head.weight"].shape[0],
        8,
    )
    head = dequantized(tensors, {"*": 4, "lm_head": 8})["lm_head.weight"]
    before = load_file(tiny_dir / "model.safetensors")["lm_head.weight"]
    assert (head - before).norm() < 0.01 * before.norm()
    quantization = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert quantization["ignore"] == []
    group = quantization["config_groups"]["group_1"]
    assert (group["targets"], group["weights"]["num_bits"]) == (["lm_head"], 8)


def test_a_tied_head_stays(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "tied", FAMILIES["llama_tied"].config())
    with pytest.raises(ArgumentError, match="the head has the weight of the embedding"):
        quantize(checkpoint.folder, tmp_path / "out", head_bits=8)
    found = quantize(checkpoint.folder, tmp_path / "out")
    assert found.group_size is None
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["ignore"] == ["lm_head"]
    assert config["quantization_config"]["config_groups"]["group_0"]["weights"]["strategy"] == "channel"


@pytest.mark.parametrize(
    ("family", "ignored"),
    [
        ("llama_biases", ["lm_head"]),
        ("phi3", ["lm_head"]),
        ("gemma2", ["lm_head"]),
        ("cohere", ["lm_head"]),
        ("starcoder2", ["lm_head"]),
        ("mixtral", ["lm_head", *(f"model.layers.{i}.block_sparse_moe.gate" for i in range(3))]),
        (
            "qwen2_moe",
            ["lm_head", *(f"model.layers.{i}.mlp.{name}" for i in range(3) for name in ("gate", "shared_expert_gate"))],
        ),
        ("granite_moe", None),
        ("deepseek_v3", None),
    ],
)
def test_families(family: str, ignored: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In eight bits, calibrated, a model says nearly the same; routers are as before."""
    random = torch.Generator().manual_seed(0)
    windows = [Window(torch.randint(99, (20,), generator=random), 1) for _ in range(8)]
    monkeypatch.setattr(conversion, "_calibration_windows", lambda *_: windows)
    checkpoint = make_checkpoint(tmp_path / "source", FAMILIES[family].config())
    found = quantize(checkpoint.folder, tmp_path / "out", bits=8, calibration="random tokens")
    assert found.tokens == 160 and max(found.errors.values()) < 0.02
    quantization = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert ignored is None or quantization["ignore"] == ignored
    plain = as_plain_model(tmp_path / "out", tmp_path / "plain", bits=8)
    logits = []
    for folder in (checkpoint.folder, plain):
        model = ExLlamaV2(ExLlamaV2Config(folder))
        model.load()
        logits.append(model.forward(torch.stack([window.ids[:1] for window in windows]))[..., :99])
    # A token in a mixture of experts may go to another one, which is as good, but different.
    assert ((logits[1] - logits[0]).norm(dim=-1) / logits[0].norm(dim=-1)).median() < 0.05
    packed = {name.removesuffix(".weight_packed") for name in tensors_of(tmp_path / "out") if name.endswith("_packed")}
    assert packed == found.errors.keys() and not packed & {*quantization["ignore"]}


def test_quantised_weights_are_dequantised_first(tiny_dir: Path, tmp_path: Path) -> None:
    """Those that are quantised again, and those that are not, of which nothing packed is left."""
    first, second = tmp_path / "first", tmp_path / "second"
    quantize(tiny_dir, first, bits=8, head_bits=8)
    quantize(first, second, bits=4)
    before, after = load_file(tiny_dir / "model.safetensors"), dequantized(tensors_of(second), {"*": 4})
    assert after.keys() == before.keys()
    assert (after["lm_head.weight"] - before["lm_head.weight"]).norm() < 0.01 * before["lm_head.weight"].norm()
    assert "lm_head.weight" in tensors_of(second)
    assert (second / "quantization.json").read_text() != (first / "quantization.json").read_text()


def test_experts_in_blocks_become_plain(tmp_path: Path) -> None:
    """Experts that are one tensor stay as they are, but not in the form of a config that is no longer there."""
    checkpoint = make_checkpoint(tmp_path / "source", WIDE["gpt_oss_wide"].config())
    weights = load_file(checkpoint.folder / "model.safetensors")
    key = next(name for name in weights if name.endswith("mlp.experts.down_proj"))
    experts, outputs, inputs = weights[key].transpose(1, 2).shape
    blocks = torch.randint(256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
    del weights[key]
    weights |= {f"{key}_blocks": blocks, f"{key}_scales": torch.full(blocks.shape[:3], 124, dtype=torch.uint8)}
    save_file(weights, str(checkpoint.folder / "model.safetensors"))
    quantize(checkpoint.folder, tmp_path / "out", bits=8)
    after = tensors_of(tmp_path / "out")
    assert key in after and not [name for name in after if name.endswith(("_blocks", "_scales"))]


def test_the_built_in_model_is_dequantised_first(tmp_path: Path) -> None:
    found = quantize(model_dir(), tmp_path / "out", bits=8)
    assert found.group_size == 64
    before = dequantized_demo(load_file(model_dir() / "model.safetensors"))
    after = dequantized(tensors_of(tmp_path / "out"), {"*": 8})
    assert after.keys() == before.keys()
    for name, weight in before.items():
        assert (after[name].float() - weight).norm() < 0.01 * weight.norm()
