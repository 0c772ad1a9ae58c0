"""Tiny random checkpoints made with transformers, which is what the model is measured against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from constrain.model import ExLlamaV2, ExLlamaV2Config

SIZES = {
    "vocab_size": 99,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Family:
    """A kind of checkpoint: the name of the classes in transformers, and what differs from ``SIZES``."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> Any:
        """The class of configs."""
        name = "Gemma3TextConfig" if self.name == "Gemma3" else f"{self.name}Config"
        if not hasattr(transformers, name):
            pytest.skip(f"transformers {transformers.__version__} has no {name}")
        return getattr(transformers, name)

    def config(self) -> Any:
        return self.kind(**{**SIZES, **self.changes})


def _rope(**values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10_000.0, **values}}


_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
_SU = {"short_factor": [1.0 + i / 10 for i in range(6)], "long_factor": [2.0 + i for i in range(6)]}
_OLMO3_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.2}
_SU_HALF = {"short_factor": [1.0, 1.1, 1.2], "long_factor": [2.0, 3.0, 5.0]}

_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16}
_GROUPS = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "n_shared_experts": 2,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 1.5,
}

_LATENT = {
    **_GROUPS,
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "first_k_dense_replace": 1,
}
_LATENT_YARN = _rope(
    rope_type="yarn", factor=4.0, original_max_position_embeddings=16, mscale=0.7, mscale_all_dim=1.1, beta_fast=8.0
)

_WITHOUT_MAMBA = {
    "layer_types": ["full_attention"] * 3,
    "mamba_n_heads": 8,
    "num_local_experts": 0,
    "shared_intermediate_size": 56,
}
_MULTIPLIERS = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.4,
    "logits_scaling": 0.5,
}

FAMILIES = {
    "llama": Family("Llama"),
    "llama_wide_heads": Family("Llama", {"head_dim": 20, "num_key_value_heads": 1}),
    "llama_tied": Family("Llama", {"tie_word_embeddings": True}),
    "llama_biases": Family("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama_llama3": Family("Llama", _rope(rope_type="llama3", **_LLAMA3)),
    "llama_dynamic": Family("Llama", _rope(rope_type="dynamic", factor=4.0)),
    "llama_linear": Family("Llama", _rope(rope_type="linear", factor=4.0)),
    "llama_yarn": Family("Llama", _rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
    "llama_yarn_mscale": Family(
        "Llama",
        _rope(
            rope_type="yarn",
            factor=4.0,
            original_max_position_embeddings=16,
            mscale=0.7,
            mscale_all_dim=1.1,
            beta_fast=8.0,
            truncate=False,
        ),
    ),
    "llama4": Family(
        "Llama4Text",
        {
            "head_dim": 16,
            "num_local_experts": 8,
            "intermediate_size_mlp": 56,
            "interleave_moe_layer_step": 2,
            "no_rope_layer_interval": 3,
            **_rope(rope_type="llama3", **{**_LLAMA3, "high_freq_factor": 1.0}),
        },
    ),
    "llama4_yarn": Family(
        "Llama4Text",
        {
            "head_dim": 16,
            "num_local_experts": 8,
            "no_rope_layer_interval": 3,
            "rms_norm_eps": 0.1,
            **_rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16),
        },
    ),
    "granite_hybrid": Family(
        "GraniteMoeHybrid",
        {
            **_WITHOUT_MAMBA,
            **_MULTIPLIERS,
            "position_embedding_type": "rope",
        },
    ),
    "granite_hybrid_unrotated": Family("GraniteMoeHybrid", {**_WITHOUT_MAMBA, "attention_multiplier": 0.2}),
    "internlm3": Family("InternLM3", {"head_dim": 16}),
    "cwm": Family("Cwm", {"head_dim": 16, "sliding_window": 5, **_rope(rope_type="default")}),
    "arcee": Family("Arcee", {"attention_bias": True, "mlp_bias": True}),
    "nemotron": Family("Nemotron", {"head_dim": 16, "norm_eps": 1e-3}),
    "jais2": Family("Jais2"),
    "stablelm": Family("StableLm", {"use_qkv_bias": True, **_rope(rope_type="default", partial_rotary_factor=0.5)}),
    "ministral": Family(
        "Ministral",
        {
            "head_dim": 16,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "ministral3": Family(
        "Ministral3",
        {
            "head_dim": 16,
            **_rope(
                rope_type="yarn",
                factor=4.0,
                original_max_position_embeddings=32,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.1,
            ),
        },
    ),
    "mistral": Family("Mistral", {"sliding_window": None, "head_dim": 16}),
    "mistral_window": Family("Mistral", {"sliding_window": 5}),
    "qwen2": Family("Qwen2", {"num_key_value_heads": 4}),
    "qwen2_window": Family("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": Family("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "granite": Family("Granite", {**_MULTIPLIERS, "rms_norm_eps": 1e-2}),
    "granite_moe": Family("GraniteMoe", {"num_local_experts": 8, "num_experts_per_tok": 3, "logits_scaling": 1.5}),
    "glm": Family("Glm", {"head_dim": 16, "attention_bias": True}),
    "glm4": Family("Glm4", {"head_dim": 16, "attention_bias": True}),
    "glm4_moe": Family("Glm4Moe", {**_GROUPS, "head_dim": 16, "use_qk_norm": True, "attention_bias": True}),
    "deepseek_v2": Family("DeepseekV2", {**_LATENT, "q_lora_rank": None, "topk_method": "greedy"}),
    "deepseek_v2_groups": Family(
        "DeepseekV2", {**_LATENT, **_LATENT_YARN, "q_lora_rank": 20, "topk_method": "group_limited_greedy"}
    ),
    "deepseek_v3": Family("DeepseekV3", {**_LATENT, **_LATENT_YARN, "q_lora_rank": 20}),
    "youtu": Family("Youtu", {**{key: _LATENT[key] for key in _LATENT.keys() - _GROUPS.keys()}, "q_lora_rank": 20}),
    "glm4_moe_lite": Family("Glm4MoeLite", {**_LATENT, "q_lora_rank": 20}),
    "solar_open": Family(
        "SolarOpen", {**_GROUPS, "head_dim": 16, "attention_bias": True, **_rope(rope_type="default")}
    ),
    "dots1": Family(
        "Dots1",
        {**_GROUPS, "head_dim": 16, "first_k_dense_replace": 1, "sliding_window": 5, "max_window_layers": 1},
    ),
    "exaone4": Family("Exaone4", {"sliding_window": 5, "sliding_window_pattern": 2}),
    "exaone4_full": Family("Exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 3}),
    "olmo2": Family("Olmo2", {"attention_bias": True}),
    "olmo3": Family("Olmo3", {"sliding_window": 5, "rope_scaling": _OLMO3_YARN}),
    "seed_oss": Family("SeedOss", {"head_dim": 16}),
    "ernie": Family("Ernie4_5", {"head_dim": 16, "use_bias": True}),
    "ernie_moe": Family(
        "Ernie4_5_Moe",
        {"moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 16, "tie_word_embeddings": False},
    ),
    "ernie_moe_unshared": Family(
        "Ernie4_5_Moe",
        {"moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 16, "moe_num_shared_experts": 0},
    ),
    "minimax_m2": Family(
        "MiniMaxM2",
        # Files have rotary_dim, of which older versions of transformers take no notice: they want a factor.
        {"head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 3, "rotary_dim": 8}
        | _rope(partial_rotary_factor=0.5),
    ),
    "olmoe": Family("Olmoe", {"num_experts": 8, "num_experts_per_tok": 3}),
    "smollm3": Family("SmolLM3", {"no_rope_layer_interval": 2}),
    "smollm3_window": Family("SmolLM3", {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 5}),
    "gemma": Family("Gemma", {"head_dim": 16}),
    "cohere": Family("Cohere", {"logit_scale": 0.4, "attention_bias": True, "layer_norm_eps": 1e-3}),
    "cohere_qk_norm": Family("Cohere", {"use_qk_norm": True, "logit_scale": 0.4}),
    "cohere2": Family("Cohere2", {"sliding_window": 5, "logit_scale": 0.4, "sliding_window_pattern": 2}),
    "starcoder2": Family("Starcoder2", {"sliding_window": 5}),
    "mixtral": Family("Mixtral", {"sliding_window": 5}),
    "qwen2_moe": Family("Qwen2Moe", {**_EXPERTS, "shared_expert_intermediate_size": 24, "norm_topk_prob": False}),
    "qwen2_moe_window": Family(
        "Qwen2Moe",
        {
            **_EXPERTS,
            "shared_expert_intermediate_size": 24,
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 2,
        },
    ),
    "qwen3_moe": Family("Qwen3Moe", {**_EXPERTS, "head_dim": 16, "norm_topk_prob": True, "mlp_only_layers": [1]}),
    "gpt_oss": Family(
        "GptOss",
        {
            "num_local_experts": 8,
            "num_experts_per_tok": 3,
            "head_dim": 16,
            "sliding_window": 5,
            **_rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, truncate=False),
        },
    ),
    "gemma2": Family("Gemma2", {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 24}),
    "gemma3_caps": Family(
        # Its attention has none, whatever the config says.
        "Gemma3",
        {"head_dim": 16, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 3.0},
    ),
    "vault_gemma": Family("VaultGemma", {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 24}),
    "gemma3": Family("Gemma3", {"head_dim": 16, "sliding_window": 5, "sliding_window_pattern": 2}),
    "phi3": Family("Phi3"),
    "phi3_window": Family("Phi3", {"sliding_window": 5, **_rope(rope_type="default", partial_rotary_factor=0.5)}),
    "phi4_mini": Family(
        "Phi3",
        {
            "tie_word_embeddings": True,
            "original_max_position_embeddings": 64,
            **_rope(rope_type="longrope", partial_rotary_factor=0.5, **_SU_HALF),
        },
    ),
    "phi3_longrope": Family("Phi3", {"original_max_position_embeddings": 64, **_rope(rope_type="longrope", **_SU)}),
}

_WIDE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
#: With sizes that are multiples of the groups of quantised weights.
WIDE = {
    "llama_wide": Family("Llama", _WIDE),
    "qwen2_wide": Family("Qwen2", _WIDE),
    "phi3_wide": Family("Phi3", _WIDE),
    "mixtral_wide": Family("Mixtral", _WIDE),
    "qwen3_moe_wide": Family("Qwen3Moe", {**FAMILIES["qwen3_moe"].changes, **_WIDE, "mlp_only_layers": []}),
    "gpt_oss_wide": Family("GptOss", {**FAMILIES["gpt_oss"].changes, **_WIDE}),
    "deepseek_v3_wide": Family("DeepseekV3", {**FAMILIES["deepseek_v3"].changes, **_WIDE}),
}


def randomise(model: torch.nn.Module) -> None:
    """Every parameter random, norms and biases too, so that none can be left out unnoticed."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if "norm" in name or name.endswith(("bias", "sinks")) else 0.15
            parameter.add_(torch.randn(parameter.shape, generator=generator) * spread)
        for name, buffer in model.named_buffers():
            if name.endswith("correction_bias"):
                buffer.add_(torch.randn(buffer.shape, generator=generator) * 0.3)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk and the model in transformers that wrote it."""

    folder: Path
    reference: Any

    def logits(self, ids: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        """Logits of transformers, float32 ``[batch, width, vocabulary]``. ``padding``: tokens to ignore in each row."""
        columns = torch.arange(ids.shape[1]).expand_as(ids)
        first = torch.zeros(ids.shape[0], dtype=torch.long) if padding is None else padding
        seen = columns >= first[:, None]
        positions = (columns - first[:, None]).clamp(min=0)
        with torch.no_grad():
            output = self.reference(ids, attention_mask=seen.long(), position_ids=positions)
        result: torch.Tensor = output.logits
        return result

    def load(self, **settings: Any) -> ExLlamaV2:
        config = ExLlamaV2Config(self.folder)
        for name, value in settings.items():
            assert hasattr(config, name)
            setattr(config, name, value)
        model = ExLlamaV2(config)
        model.load()
        return model


def make_checkpoint(folder: Path, config: Any, **save: Any) -> Checkpoint:
    torch.manual_seed(0)
    reference = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    randomise(reference)
    reference.save_pretrained(folder, **save)
    return Checkpoint(folder, reference)


def checkpoints(factory: pytest.TempPathFactory) -> Callable[[str], Checkpoint]:
    """Gives the checkpoint of a family by its name in ``FAMILIES``; each is made once."""
    made: dict[str, Checkpoint] = {}

    def get(name: str) -> Checkpoint:
        if name not in made:
            made[name] = make_checkpoint(factory.mktemp(name), (FAMILIES | WIDE)[name].config())
        return made[name]

    return get
