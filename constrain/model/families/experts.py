"""Decoders with mixtures of experts: their differences from those without."""

from __future__ import annotations

from dataclasses import replace

from constrain.kernels import Activation, Scoring
from constrain.model.families.dense import DEEPSEEK, ERNIE, GRANITE, LLAMA, QWEN2, QWEN3
from constrain.model.families.layer_rules import (
    after_dense_layers,
    as_mlp_types,
    between_layers,
    each_nth,
    each_step,
    even_layers,
    even_up_to_window_layer,
    every_layer,
    every_layer_if_used,
    from_full_layers,
    rotated,
)
from constrain.model.traits import DecoderTraits, ExpertNames, ExpertTraits, QKNorm, StackedNames

LLAMA4 = replace(
    LLAMA,
    mlp_module="feed_forward",
    mlp_size_key="intermediate_size_mlp",
    qk_norm=QKNorm.UNIT,
    qk_norm_key="use_qk_norm",
    interleaved=True,
    chunked=True,
    rotary=rotated,
    experts=ExpertTraits(
        ExpertNames(
            "feed_forward",
            router="router",
            stacked=StackedNames("experts.gate_up_proj", "experts.down_proj", transposed=True),
            shared="shared_expert",
        ),
        "num_local_experts",
        "intermediate_size",
        "intermediate_size",
        scoring=Scoring.SIGMOID,
        normalised=False,
        sparse=each_step,
        weighted_inputs=True,
    ),
    defaults={
        "use_qk_norm": True,
        "head_dim": 128,
        "num_key_value_heads": 8,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 16_384,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
    },
)
_GRANITE_STACKED = StackedNames("input_linear.weight", "output_linear.weight")
GRANITE_MOE = replace(
    GRANITE,
    experts=ExpertTraits(
        ExpertNames("block_sparse_moe", router="router.layer", stacked=_GRANITE_STACKED),
        "num_local_experts",
        "intermediate_size",
    ),
    defaults={"num_local_experts": 8, "num_experts_per_tok": 2},
)
_GROUPED_EXPERTS = ExpertTraits(
    ExpertNames(correction="gate.e_score_correction_bias", shared="shared_experts"),
    count_key="n_routed_experts",
    scoring=Scoring.SIGMOID,
    grouped=True,
    normalised=None,
    sparse=after_dense_layers,
)
GLM4_MOE = replace(
    LLAMA,
    output_bias_follows=False,
    mlp_bias_key=None,
    qk_norm=QKNorm.HEADS,
    qk_norm_key="use_qk_norm",
    partly_rotated=True,
    experts=_GROUPED_EXPERTS,
    defaults={"partial_rotary_factor": 0.5, "num_key_value_heads": 8, "norm_topk_prob": True, "rms_norm_eps": 1e-5},
)
DEEPSEEK2 = replace(
    DEEPSEEK,
    experts=ExpertTraits(
        ExpertNames(shared="shared_experts"),
        count_key="n_routed_experts",
        grouped=True,
        best_of_group=1,
        normalised=False,
        sparse=after_dense_layers,
    ),
    supported={
        **DEEPSEEK.supported,
        "norm_topk_prob": (False,),
        "scoring_func": ("softmax",),
        "topk_method": ("greedy", "group_limited_greedy"),
    },
    defaults={"q_lora_rank": 1536, "first_k_dense_replace": 0, "topk_method": "greedy", "n_shared_experts": 2},
)
DEEPSEEK3 = replace(
    DEEPSEEK,
    experts=_GROUPED_EXPERTS,
    supported={**DEEPSEEK.supported, "scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)},
    defaults={
        "q_lora_rank": 1536,
        "first_k_dense_replace": 3,
        "n_group": 8,
        "topk_group": 4,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
    },
)
GLM4_MOE_LITE = replace(
    DEEPSEEK3,
    experts=replace(_GROUPED_EXPERTS, sparse=as_mlp_types),
    defaults={
        "q_lora_rank": 768,
        "rms_norm_eps": 1e-5,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.8,
    },
)
DOTS1 = replace(
    LLAMA,
    mlp_bias_key=None,
    qk_norm=QKNorm.HEADS,
    sliding=from_full_layers,
    experts=_GROUPED_EXPERTS,
    defaults={"first_k_dense_replace": 0, "sliding_window": 4096},
)
SOLAR_OPEN = replace(
    GLM4_MOE,
    mlp_size_key="moe_intermediate_size",
    qk_norm=None,
    qk_norm_key=None,
    defaults={
        "moe_intermediate_size": 1280,
        "head_dim": 128,
        "num_key_value_heads": 8,
        "first_k_dense_replace": 0,
        "norm_topk_prob": True,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1_000_000.0,
    },
)
ERNIE_MOE = replace(
    ERNIE,
    experts=ExpertTraits(
        ExpertNames(correction="moe_statics.e_score_correction_bias", correction_row=True, shared="shared_experts"),
        count_key="moe_num_experts",
        chosen_key="moe_k",
        shared_count_key="moe_num_shared_experts",
        grouped=True,
        sparse=between_layers,
    ),
    defaults={
        "num_key_value_heads": 4,
        "moe_intermediate_size": 1536,
        "moe_k": 6,
        "moe_num_experts": 64,
        "moe_num_shared_experts": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": True,
    },
)
OLMOE = replace(
    LLAMA,
    qk_norm=QKNorm.WHOLE,
    mlp_bias_key=None,
    experts=ExpertTraits(size_key="intermediate_size", normalised=None),
    supported={"clip_qkv": ()},
    defaults={"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8},
)
MIXTRAL = DecoderTraits(
    sliding=every_layer,
    alike=True,
    experts=ExpertTraits(
        ExpertNames("block_sparse_moe", gate="w1", up="w3", down="w2"), "num_local_experts", "intermediate_size"
    ),
    defaults={
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1_000_000.0,
        "max_position_embeddings": 131_072,
    },
)
MINIMAX_M2 = DecoderTraits(
    qk_norm=QKNorm.WHOLE,
    partly_rotated=True,
    experts=ExpertTraits(
        ExpertNames("block_sparse_moe", gate="w1", up="w3", down="w2", correction="e_score_correction_bias"),
        "num_local_experts",
        "intermediate_size",
        scoring=Scoring.SIGMOID,
    ),
    supported={"scoring_func": ("sigmoid",), "qk_norm_type": ("per_layer",), "shared_intermediate_size": (0,)},
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 8,
        "num_local_experts": 256,
        "num_experts_per_tok": 8,
        "rope_theta": 5_000_000.0,
    },
)
QWEN2_MOE = replace(
    QWEN2,
    sliding=even_up_to_window_layer,
    experts=ExpertTraits(
        ExpertNames(shared="shared_expert", shared_gate="shared_expert_gate"), normalised=None, sparse=each_nth
    ),
    defaults={
        **QWEN2.defaults,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
    },
)
QWEN3_MOE = replace(
    QWEN3,
    sliding=every_layer_if_used,
    alike=True,
    experts=ExpertTraits(newer_count_key="num_local_experts", normalised=None, sparse=each_nth),
    defaults={
        "sliding_window": 4096,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
)
GPT_OSS = DecoderTraits(
    qkv_bias=None,
    output_bias_follows=True,
    sinks=True,
    sliding=even_layers,
    experts=ExpertTraits(
        ExpertNames(
            router="router",
            stacked=StackedNames(
                "experts.gate_up_proj", "experts.down_proj", "_bias", transposed=True, alternating=True
            ),
        ),
        "num_local_experts",
        "intermediate_size",
        activation=Activation.CLAMPED_SWIGLU,
        router_bias=True,
    ),
    supported={"swiglu_limit": (7.0,), "swiglu_alpha": (1.702,)},
    defaults={
        "attention_bias": True,
        "rms_norm_eps": 1e-5,
        "head_dim": 64,
        "num_key_value_heads": 8,
        "sliding_window": 128,
        "num_experts_per_tok": 4,
        "rope_theta": 150_000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
        "max_position_embeddings": 131_072,
    },
)
QWEN3_VL_MOE = replace(
    QWEN3_MOE,
    sliding=None,
    alike=False,
    experts=ExpertTraits(
        ExpertNames(stacked=StackedNames("experts.gate_up_proj", "experts.down_proj", transposed=True)),
        newer_count_key="num_local_experts",
        sparse=each_nth,
    ),
    mrope=True,
    mrope_sections=(24, 20, 20),
    mrope_interleaved=True,
    defaults={"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408},
)
