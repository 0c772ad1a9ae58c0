"""Files of weights: however they are cut, and whatever is wrong with them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from checkpoints import SIZES
from safetensors.torch import load_file, save_file

from constrain.errors import ConstrainError, WeightsError
from constrain.model import ExLlamaV2, ExLlamaV2Config

IDS = torch.tensor([[1, 50, 3, 98]])
SHARDS = ["model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"]


def load(folder: Path) -> ExLlamaV2:
    model = ExLlamaV2(ExLlamaV2Config(folder))
    model.load()
    return model


@pytest.mark.parametrize("index", [True, False])
def test_shards_make_the_same_model(llama_copy: Any, llama_model: ExLlamaV2, index: bool) -> None:
    model = load(llama_copy.write_shards(SHARDS, index))
    assert torch.equal(model.forward(IDS), llama_model.forward(IDS))
    assert len(model.config.tensor_files) == 3


def test_an_index_leaves_other_files_out(llama_copy: Any, llama_model: ExLlamaV2) -> None:
    folder = llama_copy.write_shards(SHARDS, index=True)
    save_file({"model.norm.weight": torch.zeros(48)}, folder / "consolidated.safetensors")
    assert torch.equal(load(folder).forward(IDS), llama_model.forward(IDS))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_weights_are_widened(llama_copy: Any, dtype: torch.dtype) -> None:
    llama_copy.tensors = {key: tensor.to(dtype) for key, tensor in llama_copy.tensors.items()}
    model = load(llama_copy.write())
    weight = model.modules_dict["model.layers.0.self_attn.k_proj"].weight[48:72]  # type: ignore[index]
    assert torch.equal(weight, llama_copy.tensors["model.layers.0.self_attn.k_proj.weight"].float())
    assert model.forward(IDS).dtype == torch.float32


@pytest.mark.parametrize("head", [False, True])
def test_a_tied_head_shares_memory_and_one_of_its_own_is_used(llama_copy: Any, head: bool) -> None:
    llama_copy.config["tie_word_embeddings"] = True
    if not head:
        del llama_copy.tensors["lm_head.weight"]
    model = load(llama_copy.write())
    shared = model.modules[0].weight.data_ptr() == model.modules[-1].weight.data_ptr()  # type: ignore[attr-defined]
    assert shared is not head
    expected = "lm_head.weight" if head else "model.embed_tokens.weight"
    assert torch.equal(model.modules[-1].weight[:99], llama_copy.tensors[expected])  # type: ignore[index]


def test_a_second_form_of_the_weights_is_left_out(llama_copy: Any, caplog: pytest.LogCaptureFixture) -> None:
    folder = llama_copy.write()
    save_file({"layers.0.attention.wq.weight": torch.zeros(48, 48)}, folder / "consolidated.safetensors")
    config = ExLlamaV2Config(folder)
    assert [Path(file).name for file in config.tensor_files] == ["model.safetensors"] and not caplog.text
    (folder / "model.safetensors").rename(folder / "consolidated.safetensors")
    assert [Path(file).name for file in ExLlamaV2Config(folder).tensor_files] == ["consolidated.safetensors"]


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "LlamaModel"])
def test_the_files_of_a_base_model(llama_copy: Any, llama_model: ExLlamaV2, architecture: str) -> None:
    """Names without a prefix; without a head they only predict tokens if it is the embedding."""
    llama_copy.config["architectures"] = [architecture]
    llama_copy.tensors = {key.removeprefix("model."): tensor for key, tensor in llama_copy.tensors.items()}
    assert torch.equal(load(llama_copy.write()).forward(IDS), llama_model.forward(IDS))
    del llama_copy.tensors["lm_head.weight"]
    with pytest.raises(WeightsError, match=r"no tensor lm_head\.weight; the files of a base model cannot predict tok"):
        load(llama_copy.write())
    llama_copy.config["tie_word_embeddings"] = True
    model = load(llama_copy.write())
    assert torch.equal(model.modules[-1].weight, model.modules[0].weight)  # type: ignore[arg-type]
    assert model.forward(IDS).shape == (1, 4, 128)


@pytest.mark.parametrize("saved_by", ["older", "newer"])
def test_the_text_model_of_a_multimodal_gemma_3(
    saved_by: str, checkpoint: Callable[[str], Any], tmp_path: Path
) -> None:
    text = checkpoint("gemma3")
    config = text.reference.config.to_dict()
    written = transformers.Gemma3Config(text_config=config, vision_config={"num_hidden_layers": 1})
    written.architectures = ["Gemma3ForConditionalGeneration"]
    written.save_pretrained(tmp_path)
    tensors = load_file(text.folder / "model.safetensors")
    prefix = {"older": "language_model.model.", "newer": "model.language_model."}[saved_by]
    moved = {key.replace("model.", prefix, 1): tensor for key, tensor in tensors.items()}
    save_file({**moved, "vision_tower.something.weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert torch.equal(load(tmp_path).forward(IDS), text.load().forward(IDS))


@pytest.mark.parametrize(
    ("architecture", "text", "prefix"),
    [
        ("Mistral3ForConditionalGeneration", "mistral_window", "language_model.model."),
        ("Mistral3ForConditionalGeneration", "mistral_window", "model.language_model."),
        ("Qwen2VLForConditionalGeneration", "qwen2", "model."),
        ("Qwen2_5_VLForConditionalGeneration", "qwen2", "model.language_model."),
        ("Qwen3VLForConditionalGeneration", "qwen3", "model.language_model."),
    ],
)
def test_the_text_model_of_a_multimodal_one(
    architecture: str,
    text: str,
    prefix: str,
    checkpoint: Callable[[str], Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = checkpoint(text)
    inner = json.loads((source.folder / "config.json").read_text())
    del inner["architectures"]
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture], "text_config": inner}))
    head = prefix.removesuffix("model.") if prefix.startswith("language") else ""
    tensors = load_file(source.folder / "model.safetensors")
    moved = {
        key.replace("model.", prefix, 1) if key.startswith("model.") else head + key: tensor
        for key, tensor in tensors.items()
    }
    save_file({**moved, "visual.something.weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert torch.equal(load(tmp_path).forward(IDS), source.load().forward(IDS))
    assert f"of a {architecture}, the text model is read; the rest is left out" in caplog.text


def test_text_in_qwen_2_5_vl(tmp_path: Path) -> None:
    """Positions have three axes (time, height, width), which are equal for tokens of text."""
    rope = {"rope_type": "default", "mrope_section": [2, 2, 2], "rope_theta": 10_000.0}
    sizes = {**SIZES, "vocab_size": 120, "rope_parameters": rope, "layer_types": ["full_attention"] * 3}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 48}
    config = transformers.Qwen2_5_VLConfig(text_config=sizes, vision_config=vision)
    torch.manual_seed(0)
    reference = transformers.Qwen2_5_VLForConditionalGeneration(config).eval().float()
    reference.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = reference(IDS).logits
    torch.testing.assert_close(load(tmp_path).forward(IDS)[..., :120], expected, atol=1e-4, rtol=0)


def _missing(copy: Any) -> None:
    del copy.tensors["model.layers.1.mlp.up_proj.weight"]
    copy.write()


def _wrong_shape(copy: Any) -> None:
    copy.tensors["model.layers.2.self_attn.o_proj.weight"] = torch.zeros(48, 47)
    copy.write()


def _wrong_type(copy: Any) -> None:
    copy.tensors["model.norm.weight"] = torch.zeros(48, dtype=torch.int64)
    copy.write()


def _undeclared_bias(copy: Any) -> None:
    copy.tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(48)
    copy.write()


def _undeclared_head_norm(copy: Any) -> None:
    copy.tensors["model.layers.0.self_attn.q_norm.weight"] = torch.zeros(12)
    copy.write()


def _truncated(copy: Any) -> None:
    os.truncate(copy.write() / "model.safetensors", 20_000)


def _empty(copy: Any) -> None:
    (copy.write() / "model.safetensors").write_bytes(b"")


def _huge_header(copy: Any) -> None:
    (copy.write() / "model.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")


def _pointer(copy: Any) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 5368709120\n"
    (copy.write() / "model.safetensors").write_text(text)


def _no_file(copy: Any) -> None:
    (copy.write() / "model.safetensors").unlink()


def _pickle_only(copy: Any) -> None:
    (copy.write() / "model.safetensors").rename(copy.folder / "pytorch_model.bin")


def _twice(copy: Any) -> None:
    save_file({"model.norm.weight": torch.zeros(48)}, copy.write() / "extra.safetensors")


def _dangling_link(copy: Any) -> None:
    (copy.write() / "z.safetensors").symlink_to(copy.folder / "nowhere")


def _looping_link(copy: Any) -> None:
    (copy.write() / "z.safetensors").symlink_to(copy.folder / "z.safetensors")


def _link_to_a_folder(copy: Any) -> None:
    (copy.write() / "z.safetensors").symlink_to(copy.folder)


def _endless_device(copy: Any) -> None:
    (copy.write() / "z.safetensors").symlink_to("/dev/zero")


def _pipe(copy: Any) -> None:
    os.mkfifo(copy.write() / "z.safetensors")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_missing, r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"),
        (_wrong_shape, r"model\.safetensors: tensor model\.layers\.2\.self_attn\.o_proj\.weight has .* \[48, 48\]"),
        (_wrong_type, r"model\.norm\.weight is of type I64"),
        (_undeclared_bias, r"q_proj\.bias, which a LlamaForCausalLM with this config\.json does not use"),
        (_undeclared_head_norm, r"q_norm\.weight, which"),
        (_truncated, r"model\.safetensors: damaged or truncated"),
        (_empty, r"model\.safetensors: damaged or truncated"),
        (_huge_header, r"model\.safetensors: damaged or truncated"),
        (_pointer, r"model\.safetensors: a pointer of Git LFS in place of the file; run `git lfs pull`"),
        (_no_file, r"no \*\.safetensors file"),
        (_pickle_only, r"no \*\.safetensors file"),
        (_twice, r"tensor model\.norm\.weight is in extra\.safetensors too"),
        (_dangling_link, r"z\.safetensors: cannot be read"),
        (_looping_link, r"z\.safetensors: cannot be read"),
        (_link_to_a_folder, r"z\.safetensors: not a regular file"),
        (_endless_device, r"z\.safetensors: not a regular file"),
        (_pipe, r"z\.safetensors: not a regular file"),
    ],
)
def test_damage_is_named(llama_copy: Any, damage: Callable[[Any], None], message: str) -> None:
    damage(llama_copy)
    with pytest.raises(WeightsError, match=message):
        ExLlamaV2Config(llama_copy.folder)


def test_links_to_files_are_followed(llama_copy: Any, llama_model: ExLlamaV2, tmp_path: Path) -> None:
    blob = llama_copy.write() / "model.safetensors"
    blob.rename(tmp_path / "blob")
    blob.symlink_to(tmp_path / "blob")
    assert torch.equal(load(llama_copy.folder).forward(IDS), llama_model.forward(IDS))


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"model.norm.weight": "../../etc/passwd"}, "'../../etc/passwd' is not the name of a safetensors file"),
        ({"model.norm.weight": "../model/model.safetensors"}, "is not the name of a safetensors file in the same"),
        ({"model.norm.weight": "/tmp/x.safetensors"}, "'/tmp/x.safetensors' is not the name"),
        ({"model.norm.weight": "..\\x.safetensors"}, "is not the name"),
        ({"model.norm.weight": "config.json"}, "'config.json' is not the name"),
        ({"model.norm.weight": 7}, "7 is not the name"),
        ({"model.norm.weight": "other.safetensors"}, r"other\.safetensors: cannot be read"),
        (
            {"no.such.tensor": "model.safetensors"},
            r"says that no\.such\.tensor is in model\.safetensors, but it is not",
        ),
        ({}, "weight_map must be an object"),
        (["model.safetensors"], "weight_map must be an object"),
    ],
)
def test_an_index_cannot_reach_out_of_the_folder(llama_copy: Any, weight_map: Any, message: str) -> None:
    llama_copy.write()
    llama_copy.write_index(weight_map)
    with pytest.raises(WeightsError, match=message):
        ExLlamaV2Config(llama_copy.folder)


def test_an_index_that_is_not_json(llama_copy: Any) -> None:
    (llama_copy.write() / "model.safetensors.index.json").write_text("{")
    with pytest.raises(WeightsError, match=r"index\.json: not valid JSON"):
        ExLlamaV2Config(llama_copy.folder)


def test_sizes_of_the_config_are_held_against_the_files_before_memory_is_taken(llama_copy: Any) -> None:
    llama_copy.config |= {"vocab_size": 1 << 24, "hidden_size": 1 << 20, "head_dim": 1 << 20}
    with pytest.raises(WeightsError, match=r"embed_tokens\.weight has shape \[99, 48\], but config\.json asks for"):
        ExLlamaV2Config(llama_copy.write())


def test_a_file_that_changes_after_it_was_checked(llama_copy: Any) -> None:
    config = ExLlamaV2Config(llama_copy.write())
    os.truncate(llama_copy.folder / "model.safetensors", 10)
    with pytest.raises(WeightsError, match="damaged or truncated"):
        ExLlamaV2(config).load()


def test_no_damage_to_a_header_does_anything_but_a_clear_error(llama_copy: Any) -> None:
    path = llama_copy.write() / "model.safetensors"
    whole, rng = path.read_bytes(), random.Random(0)
    refused = 0
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(2_000)] = rng.randrange(256)
        path.write_bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])])
        try:
            load(llama_copy.folder)
        except ConstrainError:
            refused += 1
    assert refused > 100
