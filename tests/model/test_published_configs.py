"""Configs as they are published, whose keys differ from those that transformers writes today."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from constrain.errors import ConfigError
from constrain.model import ExLlamaV2Config

YARN = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 4096}
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": False,
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163_840,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    "rope_theta": 10_000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "v_head_dim": 128,
    "vocab_size": 129_280,
}
DEEPSEEK_V2_LITE = {
    **DEEPSEEK_V3,
    "architectures": ["DeepseekV2ForCausalLM"],
    "first_k_dense_replace": 1,
    "hidden_size": 2048,
    "intermediate_size": 10_944,
    "moe_intermediate_size": 1408,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "quantization_config": None,
    "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "topk_group": 1,
    "topk_method": "greedy",
    "vocab_size": 102_400,
}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "attention_bias": True,
    "experts_per_token": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2880,
    "initial_context_length": 4096,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131_072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    "rope_scaling": {**YARN, "type": None, "rope_type": "yarn", "factor": 32.0, "truncate": False},
    "rope_theta": 150_000,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "vocab_size": 201_088,
}
COMMAND_A = {
    "architectures": ["Cohere2ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 12_288,
    "intermediate_size": 36_864,
    "layer_norm_eps": 1e-05,
    "logit_scale": 0.25,
    "max_position_embeddings": 131_072,
    "num_attention_heads": 96,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "rope_theta": 50_000,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
    "vocab_size": 256_000,
}
MINIMAX_M2 = {
    "architectures": ["MiniMaxM2ForCausalLM"],
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "max_position_embeddings": 196_608,
    "num_attention_heads": 48,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 62,
    "num_key_value_heads": 8,
    "num_local_experts": 256,
    "qk_norm_type": "per_layer",
    "rope_theta": 5_000_000,
    "rotary_dim": 64,
    "scoring_func": "sigmoid",
    "shared_intermediate_size": 0,
    "sliding_window": None,
    "use_qk_norm": True,
    "use_routing_bias": True,
    "vocab_size": 200_064,
}

GLM_4_7_FLASH = {
    "architectures": ["Glm4MoeLiteForCausalLM"],
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 10_240,
    "kv_lora_rank": 512,
    "max_position_embeddings": 202_752,
    "moe_intermediate_size": 1536,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 20,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 47,
    "num_key_value_heads": 20,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 768,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 1_000_000,
    "routed_scaling_factor": 1.8,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "v_head_dim": 256,
    "vocab_size": 154_880,
}
ERNIE_21B = {
    "architectures": ["Ernie4_5_MoeForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 2560,
    "intermediate_size": 12_288,
    "max_position_embeddings": 131_072,
    "moe_capacity": [64, 64, 64],
    "moe_gate": "topk",
    "moe_intermediate_size": 1536,
    "moe_k": 6,
    "moe_layer_interval": 1,
    "moe_layer_start_index": 1,
    "moe_num_experts": 64,
    "moe_num_shared_experts": 2,
    "moe_use_aux_free": True,
    "num_attention_heads": 20,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000,
    "tie_word_embeddings": True,
    "use_bias": False,
    "vocab_size": 103_424,
}
MINISTRAL_3_8B = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    "text_config": {
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "max_position_embeddings": 262_144,
        "model_type": "ministral3",
        "num_attention_heads": 32,
        "num_hidden_layers": 34,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 16.0,
            "llama_4_scaling_beta": 0.1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 16_384,
            "rope_theta": 1_000_000.0,
            "rope_type": "yarn",
            "type": "yarn",
        },
        "sliding_window": None,
        "tie_word_embeddings": False,
        "vocab_size": 131_072,
    },
    "vision_config": {"model_type": "pixtral"},
}
GRANITE_4_MICRO = {
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "attention_multiplier": 0.015625,
    "embedding_multiplier": 12,
    "hidden_act": "silu",
    "hidden_size": 2560,
    "intermediate_size": 8192,
    "layer_types": ["attention"] * 40,
    "logits_scaling": 10,
    "max_position_embeddings": 131_072,
    "num_attention_heads": 40,
    "num_experts_per_tok": 0,
    "num_hidden_layers": 40,
    "num_key_value_heads": 8,
    "num_local_experts": 0,
    "position_embedding_type": "rope",
    "residual_multiplier": 0.22,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000_000,
    "shared_intermediate_size": 8192,
    "tie_word_embeddings": True,
    "vocab_size": 100_352,
}
LLAMA_4_SCOUT = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "text_config": {
        "attention_bias": False,
        "attention_chunk_size": 8192,
        "attn_scale": 0.1,
        "attn_temperature_tuning": 4,
        "floor_scale": 8192,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 5120,
        "interleave_moe_layer_step": 1,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "max_position_embeddings": 10_485_760,
        "model_type": "llama4_text",
        "moe_layers": None,
        "no_rope_layers": [],
        "num_attention_heads": 40,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
        "num_local_experts": 16,
        "rms_norm_eps": 1e-5,
        "rope_scaling": {
            "factor": 16.0,
            "high_freq_factor": 1.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500_000.0,
        "use_qk_norm": True,
        "vocab_size": 202_048,
    },
    "vision_config": {"model_type": "llama4_vision_model"},
}


def read(tmp_path: Path, published: dict[str, Any]) -> ExLlamaV2Config:
    (tmp_path / "config.json").write_text(json.dumps(published))
    config = ExLlamaV2Config()
    config.model_dir = str(tmp_path)
    config.prepare(no_tensors=True)
    return config


@pytest.mark.parametrize(
    ("published", "billions"),
    [
        (DEEPSEEK_V3, 671.0),
        (DEEPSEEK_V2_LITE, 15.7),
        (GPT_OSS, 20.9),
        (COMMAND_A, 111.1),
        (MINIMAX_M2, 228.7),
        (GLM_4_7_FLASH, 29.9),
        (ERNIE_21B, 21.8),
        (GRANITE_4_MICRO, 3.4),
        (LLAMA_4_SCOUT, 107.8),
    ],
    ids=lambda value: value["architectures"][0] if isinstance(value, dict) else "",
)
def test_the_number_of_parameters_is_the_published_one(
    published: dict[str, Any], billions: float, tmp_path: Path
) -> None:
    layout = read(tmp_path, published).layout
    assert sum(math.prod(shape) for _, shape in layout.tensors()) / 1e9 == pytest.approx(billions, abs=0.05)


def test_deepseek(tmp_path: Path) -> None:
    config = read(tmp_path, DEEPSEEK_V3)
    assert (config.head_dim, config.num_key_value_heads, config.rope.dim) == (576, 1, 64)
    # Of the report's factor of 40, cosines and sines take nothing, and the scores all.
    assert config.rope.amplitude == 1.0
    assert config.query_scale == pytest.approx((0.1 * math.log(40) + 1) ** 2 / math.sqrt(192))
    assert config.experts is not None and config.experts.layers == (False,) * 3 + (True,) * 58
    assert (config.experts.routing.groups, config.experts.routing.best_of_group) == (8, 2)
    lite = read(tmp_path, DEEPSEEK_V2_LITE)
    assert lite.experts is not None and lite.experts.routing.groups == 1 and not lite.experts.routing.normalised


def test_gpt_oss(tmp_path: Path) -> None:
    config = read(tmp_path, GPT_OSS)
    assert config.sliding_layers == [True, False] * 12 and not config.rope.truncate
    assert config.qkv_bias and config.output_bias and config.rope_local == config.rope


def test_command_a(tmp_path: Path) -> None:
    config = read(tmp_path, COMMAND_A)
    assert config.sliding_layers == config.rotary_layers == [True, True, True, False] * 16
    assert config.layout.tied and config.logit_scale == 0.25


def test_minimax_m2(tmp_path: Path) -> None:
    config = read(tmp_path, MINIMAX_M2)
    assert (config.rope.dim, config.sliding_window) == (64, None)
    assert config.layout.layers[0].head_norm_shapes == ((48 * 128,), (8 * 128,))


def test_ministral_3_is_read_where_its_scores_do_not_change_with_the_position(tmp_path: Path) -> None:
    config = read(tmp_path, MINISTRAL_3_8B)
    assert (config.max_seq_len, config.rope.amplitude, config.sliding_window) == (16_384, 1.0, None)
    config.max_seq_len = 16_385
    with pytest.raises(ConfigError, match="supported up to 16384 tokens"):
        config.check()


def test_ministral_3_has_its_own_defaults_inside_of_mistral_3(tmp_path: Path) -> None:
    left_out = ("head_dim", "num_key_value_heads", "rms_norm_eps", "sliding_window")
    text = {key: value for key, value in MINISTRAL_3_8B["text_config"].items() if key not in left_out}
    config = read(tmp_path, MINISTRAL_3_8B | {"text_config": text})
    assert (config.head_dim, config.num_key_value_heads, config.norm_eps) == (128, 8, 1e-5)
    assert config.sliding_window is None


def test_text_models_of_another_family_are_refused(tmp_path: Path) -> None:
    other = MINISTRAL_3_8B["text_config"] | {"model_type": "mistral4"}
    with pytest.raises(
        ConfigError, match=r"text_config\.model_type: 'mistral4' is not supported; supported are mistral"
    ):
        read(tmp_path, MINISTRAL_3_8B | {"text_config": other})


def test_granite_4_with_other_layers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="layer_types: must say full_attention for every layer"):
        read(tmp_path, GRANITE_4_MICRO | {"layer_types": ["mamba"] * 39 + ["attention"]})
    with pytest.raises(ConfigError, match="num_local_experts: 8 is not supported"):
        read(tmp_path, GRANITE_4_MICRO | {"num_local_experts": 8})
