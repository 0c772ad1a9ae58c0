"""Decoders without experts: their differences from plain Llama."""

from __future__ import annotations

from dataclasses import replace

from constrain.kernels import Activation
from constrain.model.families.layer_rules import (
    all_but_each_nth,
    all_but_every_fourth,
    even_layers,
    every_layer,
    from_window_layer,
    if_position_type_is_rope,
    rotated,
    unrotated_if_used,
    where_sliding,
    where_sliding_if_anywhere,
)
from constrain.model.traits import DecoderTraits, Norm, NormNames, QKNorm

_GEMMA_DEFAULTS = {"tie_word_embeddings": True, "head_dim": 256}
_GEMMA2_DEFAULTS = {
    "tie_word_embeddings": True,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
_GEMMA3_DEFAULTS = {
    "tie_word_embeddings": True,
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "max_position_embeddings": 131_072,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
}

_BOTH_NORMS = NormNames(
    attention_post="post_attention_layernorm", mlp="pre_feedforward_layernorm", mlp_post="post_feedforward_layernorm"
)
LLAMA = DecoderTraits(qkv_bias=None, output_bias_follows=True, mlp_bias_key="mlp_bias")
GRANITE = replace(LLAMA, multipliers=True)
GRANITE_HYBRID = replace(
    GRANITE,
    mlp_bias_key=None,
    mlp_module="shared_mlp",
    mlp_size_key="shared_intermediate_size",
    mlp_names=("gate_proj", "up_proj", "output_linear"),
    fused_mlp="input_linear",
    rotary=if_position_type_is_rope,
    supported={"num_local_experts": (0,), "position_embedding_type": ("rope", "nope")},
)
# Their code has further biases, which no file has.
INTERNLM3 = replace(
    LLAMA,
    supported={"qkv_bias": (False,), "bias": (False,)},
    defaults={"head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1e-5},
)
CWM = replace(
    LLAMA,
    qkv_bias=False,
    output_bias_follows=False,
    sliding=all_but_every_fourth,
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 8,
        "sliding_window": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1_000_000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 16.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
)
ARCEE = replace(
    LLAMA,
    activation=Activation.RELU2,
    mlp_names=("up_proj", "down_proj"),
    defaults={"rms_norm_eps": 1e-5},
)
NEMOTRON = replace(
    ARCEE,
    norm=Norm.LAYER_WITH_BIAS,
    norm_eps_key="norm_eps",
    norm_offset=1.0,
    partly_rotated=True,
    defaults={"norm_eps": 1e-5, "partial_rotary_factor": 0.5},
)
JAIS2 = replace(
    ARCEE,
    norm=Norm.LAYER_WITH_BIAS,
    norm_eps_key="layer_norm_eps",
    defaults={"attention_bias": True, "mlp_bias": True, "layer_norm_eps": 1e-5},
)
SMOLLM3 = replace(
    LLAMA,
    sliding=unrotated_if_used,
    rotary=rotated,
    defaults={"num_key_value_heads": 4, "rope_theta": 2_000_000.0, "tie_word_embeddings": True},
)
GLM = replace(
    LLAMA,
    output_bias_follows=False,
    fused_mlp="gate_up_proj",
    interleaved=True,
    partly_rotated=True,
    defaults={"partial_rotary_factor": 0.5, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7},
)
GLM4 = replace(
    GLM,
    norms=NormNames(attention_post="post_self_attn_layernorm", mlp_post="post_mlp_layernorm"),
)
DEEPSEEK = replace(
    LLAMA,
    latent=True,
    interleaved=True,
    mlp_bias_key=None,
    supported={"attention_bias": (False,), "mlp_bias": (False,)},
)
YOUTU = replace(DEEPSEEK, defaults={"q_lora_rank": 1536, "tie_word_embeddings": True})
OLMO2 = replace(
    LLAMA,
    qk_norm=QKNorm.WHOLE,
    mlp_bias_key=None,
    norms=NormNames(None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    defaults={"rms_norm_eps": 1e-5},
)
OLMO3 = replace(
    OLMO2,
    sliding=all_but_each_nth,
    # Only layers without a window have scaled rotations.
    defaults={
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "rope_local_base_freq": 500_000.0,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
    },
)
EXAONE4 = replace(
    OLMO2,
    qkv_bias=False,
    output_bias_follows=False,
    qk_norm=QKNorm.HEADS,
    sliding=all_but_each_nth,
    rotary=where_sliding_if_anywhere,
    defaults={"rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4},
)
SEED_OSS = replace(
    LLAMA,
    output_bias_follows=False,
    output_bias_key="attention_out_bias",
    defaults={"attention_bias": True, "head_dim": 128, "num_key_value_heads": 8},
)
ERNIE = replace(
    LLAMA,
    bias_key="use_bias",
    mlp_bias_key="use_bias",
    interleaved=True,
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": True,
    },
)
MISTRAL = DecoderTraits(
    sliding=every_layer,
    alike=True,
    defaults={"sliding_window": 4096, "num_key_value_heads": 8, "max_position_embeddings": 131_072},
)
MINISTRAL = replace(MISTRAL, alike=False)
MINISTRAL3 = replace(
    MISTRAL,
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1_000_000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 16.0,
            "original_max_position_embeddings": 16_384,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
)
STABLELM = DecoderTraits(
    qkv_bias=None,
    bias_key="use_qkv_bias",
    norm=Norm.LAYER_WITH_BIAS,
    norm_eps_key="layer_norm_eps",
    partly_rotated=True,
    supported={"qk_layernorm": (False,), "use_parallel_residual": (False,)},
    defaults={"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25},
)
QWEN2 = DecoderTraits(qkv_bias=True, sliding=from_window_layer, defaults={"sliding_window": 4096})
QWEN3 = DecoderTraits(
    qkv_bias=None,
    output_bias_follows=True,
    qk_norm=QKNorm.HEADS,
    sliding=from_window_layer,
    defaults={"sliding_window": 4096, "head_dim": 128},
)
PHI3 = DecoderTraits(
    fused_qkv=True,
    fused_mlp="gate_up_proj",
    sliding=every_layer,
    alike=True,
    partly_rotated=True,
    defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 4096},
)
COHERE = DecoderTraits(
    qkv_bias=None,
    output_bias_follows=True,
    parallel=True,
    norm=Norm.LAYER,
    norm_eps_key="layer_norm_eps",
    qk_norm=QKNorm.OWN_WEIGHTS,
    qk_norm_key="use_qk_norm",
    norms=NormNames(mlp=None),
    interleaved=True,
    logit_scale_key="logit_scale",
    defaults={
        "layer_norm_eps": 1e-5,
        "logit_scale": 0.0625,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": True,
        "max_position_embeddings": 8192,
    },
)
COHERE2 = replace(
    COHERE,
    qk_norm=None,
    qk_norm_key=None,
    sliding=all_but_each_nth,
    rotary=where_sliding,
    defaults={**COHERE.defaults, "rope_theta": 10_000.0, "sliding_window": 4096, "sliding_window_pattern": 4},
)
STARCODER2 = DecoderTraits(
    activation=Activation.GELU_TANH,
    qkv_bias=None,
    output_bias_follows=True,
    bias_key="use_bias",
    mlp_bias_key="use_bias",
    mlp_names=("c_fc", "c_proj"),
    norm=Norm.LAYER_WITH_BIAS,
    norm_eps_key="norm_epsilon",
    sliding=every_layer,
    alike=True,
    defaults={"use_bias": True, "norm_epsilon": 1e-5, "num_key_value_heads": 2, "tie_word_embeddings": True},
)
GEMMA = DecoderTraits(
    activation=Activation.GELU_TANH,
    # They were trained with its approximation all the same.
    activation_alias="gelu",
    qkv_bias=None,
    output_bias_follows=True,
    norm_offset=1.0,
    scaled_embedding=True,
    wide_residual=True,
    requires_bos=True,
    defaults=_GEMMA_DEFAULTS,
)
GEMMA2 = replace(
    GEMMA,
    norms=_BOTH_NORMS,
    sliding=even_layers,
    scores_capped=True,
    logits_capped=True,
    defaults=_GEMMA2_DEFAULTS,
)
GEMMA3 = replace(GEMMA2, qk_norm=QKNorm.HEADS, sliding=all_but_each_nth, scores_capped=False, defaults=_GEMMA3_DEFAULTS)
VAULT_GEMMA = replace(GEMMA2, norms=NormNames(mlp="pre_feedforward_layernorm"))
