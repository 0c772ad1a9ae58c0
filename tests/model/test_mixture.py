"""Mixtures of experts: their files, their memory, and weights of eight bits. Parity is in test_parity.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from constrain.cli.inspect import info
from constrain.errors import ConfigError, WeightsError
from constrain.kernels import Int8Weight, Routing, multiplies_packed
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config
from constrain.model.memory import module_sizes, working_bytes
from constrain.model.mixture import Mixture

IDS = torch.tensor([[1, 50, 3, 98, 17]])


def load(folder: Path) -> ExLlamaV2:
    model = ExLlamaV2(ExLlamaV2Config(folder))
    model.load()
    return model


def test_what_is_read(checkpoint: Callable[[str], Any]) -> None:
    config = ExLlamaV2Config(checkpoint("qwen3_moe").folder)
    assert config.experts is not None
    assert (config.num_experts, config.num_experts_per_token) == (8, 3)
    assert config.experts.layers == (True, False, True)
    assert config.experts.routing == Routing(3, normalised=True)
    assert ExLlamaV2Config(checkpoint("llama").folder).num_experts is None


def test_tokens_may_be_given_more_experts(mixtral_copy: Any) -> None:
    config = ExLlamaV2Config(mixtral_copy.write())
    config.num_experts_per_token = 5
    model = ExLlamaV2(config)
    model.load()
    mixtral_copy.config["num_experts_per_tok"] = 5
    assert torch.equal(model.forward(IDS), load(mixtral_copy.write()).forward(IDS))
    with pytest.raises(ConfigError, match="num_experts_per_token must be at most 8, not 9"):
        config.num_experts_per_token = 9


def test_a_missing_expert_is_named(mixtral_copy: Any) -> None:
    del mixtral_copy.tensors["model.layers.1.block_sparse_moe.experts.3.w3.weight"]
    with pytest.raises(WeightsError, match=r"no tensor model\.layers\.1\.block_sparse_moe\.experts\.3\.w3\.weight"):
        ExLlamaV2Config(mixtral_copy.write())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_experts_per_tok": 9}, "num_experts_per_tok: must be from 1 to 8"),
        ({"num_local_experts": 10**9}, "num_local_experts: must be from 1 to 4096"),
    ],
)
def test_bad_values_are_named(mixtral_copy: Any, changes: dict[str, Any], message: str) -> None:
    mixtral_copy.config |= changes
    with pytest.raises(ConfigError, match=message):
        ExLlamaV2Config(mixtral_copy.write())


def test_what_is_not_supported_is_refused(checkpoint: Callable[[str], Any], tmp_path: Path) -> None:
    source = json.loads((checkpoint("olmoe").folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(source | {"clip_qkv": 8.0}))
    config = ExLlamaV2Config()
    config.model_dir = str(tmp_path)
    with pytest.raises(ConfigError, match=r"clip_qkv: 8\.0 is not supported"):
        config.prepare(no_tensors=True)


def test_one_tensor_may_hold_all_experts(checkpoint: Callable[[str], Any], tmp_path: Path) -> None:
    model = checkpoint("granite_moe").load()
    tensors = load_file(checkpoint("granite_moe").folder / "model.safetensors")
    stored = tensors["model.layers.1.block_sparse_moe.input_linear.weight"]
    up = model.modules_dict["model.layers.1.block_sparse_moe.experts.5.up_proj"]
    assert torch.equal(up.weight, stored[5])
    assert module_sizes(model)[4] == 4 * (8 * 48 + 8 * 3 * 80 * 48 + 2 * 48)


def test_rows_of_gate_and_up_may_alternate(checkpoint: Callable[[str], Any]) -> None:
    model = checkpoint("gpt_oss").load()
    tensors = load_file(checkpoint("gpt_oss").folder / "model.safetensors")
    stored = tensors["model.layers.1.mlp.experts.gate_up_proj"]
    both = model.modules_dict["model.layers.1.mlp.experts.5.up_proj"]
    assert torch.equal(both.weight, torch.cat((stored[5, :, ::2].T, stored[5, :, 1::2].T)))
    assert module_sizes(model)[2] == 4 * (8 * 48 + 8 + 8 * (3 * 80 * 48 + 2 * 80 + 48) + 2 * 48)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob: True is not supported"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method: 'noaux_tc' is not supported"),
        ("deepseek_v3", {"attention_bias": True}, "attention_bias: True is not supported"),
        ("deepseek_v3", {"kv_lora_rank": None}, "kv_lora_rank: missing"),
        ("deepseek_v3", {"qk_rope_head_dim": 7}, "7 rotated features; RoPE needs an even number"),
        ("gpt_oss", {"swiglu_limit": 5.0}, r"swiglu_limit: 5\.0 is not supported"),
    ],
)
def test_values_of_other_models_are_refused(
    name: str, changes: dict[str, Any], message: str, checkpoint: Callable[[str], Any], tmp_path: Path
) -> None:
    source = json.loads((checkpoint(name).folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(source | changes))
    config = ExLlamaV2Config()
    config.model_dir = str(tmp_path)
    with pytest.raises(ConfigError, match=message):
        config.prepare(no_tensors=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_group": 3}, "n_group: 3 does not divide the 8 experts"),
        ({"n_group": 5}, "n_group: must be from 1 to 4"),
        ({"topk_group": 5}, "topk_group: must be from 1 to 4"),
        ({"num_experts_per_tok": 5}, "num_experts_per_tok: must be from 1 to 4"),
    ],
)
def test_bad_groups_are_named(
    changes: dict[str, Any], message: str, checkpoint: Callable[[str], Any], tmp_path: Path
) -> None:
    source = json.loads((checkpoint("glm4_moe").folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(source | changes))
    config = ExLlamaV2Config()
    config.model_dir = str(tmp_path)
    with pytest.raises(ConfigError, match=message):
        config.prepare(no_tensors=True)


def test_memory_counts_all_experts(checkpoint: Callable[[str], Any]) -> None:
    model = checkpoint("qwen2_moe").load()
    router, experts, shared, shared_gate, norms = 48 * 8, 8 * 3 * 16 * 48, 3 * 24 * 48, 48, 2 * 48
    assert module_sizes(model)[2] == 4 * (router + experts + shared + shared_gate + norms)
    assert module_sizes(model)[2] == 4 * model.modules[2].parameters()
    # Gate, up, their product, and input and output of each expert of a token.
    cache = ExLlamaV2Cache(model, max_seq_len=512, lazy=True)
    assert working_bytes(model, cache) > 64 * 4 * 3 * (3 * 16 + 2 * 48)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qwen2_moe", "3 layers of 8 (16 each, 3 for a token); one of 24 for all"),
        ("gpt_oss", "sinks, for which there is no compiled kernel"),
        ("deepseek_v3", "latent, of 24 + 8 features a token"),
    ],
)
def test_info_describes_the_layers(
    name: str, said: str, checkpoint: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("constrain.extract.prompts.choose.choose_form", lambda _: type("Form", (), {"description": ""}))
    monkeypatch.setattr("constrain.tokenizer.ExLlamaV2Tokenizer", lambda _: None)
    assert said in CliRunner().invoke(info, [str(checkpoint(name).folder)]).output


@pytest.mark.skipif(not multiplies_packed(torch.device("cpu"), torch.float32), reason="no such products here")
@pytest.mark.parametrize("number", [3, 8])
def test_experts_stay_in_eight_bits_if_all_are_stored_so(mixtral_copy: Any, number: int) -> None:
    plain = dict(mixtral_copy.tensors)
    for key in [key for key in plain if "experts" in key and int(key.split(".")[5]) < number]:
        scale = plain[key].abs().amax(1, keepdim=True) / 127
        codes = (plain[key] / scale).round().to(torch.int8)
        mixtral_copy.tensors |= {key: codes, f"{key}_scale": scale}
        plain[key] = codes * scale
    model = load(mixtral_copy.write())
    mixture = model.modules[2]
    assert isinstance(mixture, Mixture)
    assert not mixture.capturable
    if number == 8:
        assert all(isinstance(weight, Int8Weight) for weight in mixture.gate_up.weight)
        # Each row has a scale, and rows are added up to a multiple of 32.
        assert module_sizes(model)[2] == 8 * (160 * (48 + 4) + 64 * (80 + 4)) + 4 * (8 * 48 + 2 * 48)
    found = model.forward(IDS)
    mixtral_copy.tensors = plain
    torch.testing.assert_close(found, load(mixtral_copy.write()).forward(IDS), atol=1e-4, rtol=1e-4)
