"""Supported architectures: ``ARCHITECTURES`` is a table of their differences from plain Llama.

An architecture is a row; one that differs in a new way needs a field of ``DecoderTraits`` (``traits.py``), which
``builder.py`` and ``modules/`` read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from constrain.kernels import Activation, Scoring
from constrain.model.config_reader import ConfigReader
from constrain.model.traits import (
    DecoderTraits,
    ExpertNames,
    ExpertTraits,
    Norm,
    NormNames,
    QKNorm,
    StackedNames,
    VisionTraits,
)


@dataclass(frozen=True)
class KeyPrefix:
    """Prefixes of tensor names: of ``embed_tokens`` and ``layers`` (``body``), and of ``lm_head`` (``head``)."""

    body: str = "model."
    head: str = ""


@dataclass(frozen=True)
class Architecture:
    """An architecture: its name in ``config.json``, the decoder, and possible prefixes of tensors (the first match).

    Of a ``multimodal`` one, the text model is read, whose ``model_type`` is one of ``text_types`` if there are any, and
    its vision tower if it is as ``vision`` says.
    """

    arch_string: str
    lm: DecoderTraits
    prefixes: tuple[KeyPrefix, ...] = (KeyPrefix(),)
    multimodal: bool = False
    text_types: tuple[str, ...] = ()
    vision: VisionTraits | None = None


def _every_layer(reader: ConfigReader, layer: int) -> bool:
    return True


def _every_layer_if_used(reader: ConfigReader, layer: int) -> bool:
    return reader.boolean("use_sliding_window", False)


def _from_window_layer(reader: ConfigReader, layer: int) -> bool:
    first = reader.integer("max_window_layers", 28, low=0, high=1 << 16)
    return reader.boolean("use_sliding_window", False) and layer >= int(first)


def _even_layers(reader: ConfigReader, layer: int) -> bool:
    return layer % 2 == 0


def _all_but_each_nth(reader: ConfigReader, layer: int) -> bool:
    return (layer + 1) % int(reader.integer("sliding_window_pattern", 6, high=1 << 16)) != 0


def _where_sliding(reader: ConfigReader, layer: int) -> bool:
    types = reader.strings("layer_types")
    return _all_but_each_nth(reader, layer) if types is None else types[layer] == "sliding_attention"


def _each_nth(reader: ConfigReader, layer: int) -> bool:
    return (
        layer not in reader.integers("mlp_only_layers")
        and (layer + 1) % reader.integer("decoder_sparse_step", 1, high=1 << 16) == 0
    )


def _each_step(reader: ConfigReader, layer: int) -> bool:
    if reader.has("moe_layers") and reader.raw("moe_layers", None) is not None:
        return layer in reader.integers("moe_layers")
    return (layer + 1) % int(reader.integer("interleave_moe_layer_step", 1, high=1 << 16)) == 0


def _rotated(reader: ConfigReader, layer: int) -> bool:
    listed = reader.integers("no_rope_layers")
    if listed:
        return layer < len(listed) and listed[layer] != 0
    return (layer + 1) % int(reader.integer("no_rope_layer_interval", 4, high=1 << 16)) != 0


def _unrotated_if_used(reader: ConfigReader, layer: int) -> bool:
    return reader.boolean("use_sliding_window", False) and not _rotated(reader, layer)


def _after_dense_layers(reader: ConfigReader, layer: int) -> bool:
    first = int(reader.integer("first_k_dense_replace", 1, low=0, high=1 << 16))
    return layer >= first and layer % int(reader.integer("moe_layer_freq", 1, high=1 << 16)) == 0


_GEMMA = {"tie_word_embeddings": True, "head_dim": 256}
_GEMMA2 = {
    "tie_word_embeddings": True,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
_GEMMA3 = {
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
_LLAMA = DecoderTraits(qkv_bias=None, output_bias_follows=True, mlp_bias_key="mlp_bias")
_LLAMA4 = replace(
    _LLAMA,
    mlp_module="feed_forward",
    mlp_size_key="intermediate_size_mlp",
    qk_norm=QKNorm.UNIT,
    qk_norm_key="use_qk_norm",
    interleaved=True,
    chunked=True,
    rotary=_rotated,
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
        sparse=_each_step,
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
_GRANITE = replace(_LLAMA, multipliers=True)
_SMOLLM3 = replace(
    _LLAMA,
    sliding=_unrotated_if_used,
    rotary=_rotated,
    defaults={"num_key_value_heads": 4, "rope_theta": 2_000_000.0, "tie_word_embeddings": True},
)
_GRANITE_STACKED = StackedNames("input_linear.weight", "output_linear.weight")
_GRANITE_MOE = replace(
    _GRANITE,
    experts=ExpertTraits(
        ExpertNames("block_sparse_moe", router="router.layer", stacked=_GRANITE_STACKED),
        "num_local_experts",
        "intermediate_size",
    ),
    defaults={"num_local_experts": 8, "num_experts_per_tok": 2},
)
_GLM = replace(
    _LLAMA,
    output_bias_follows=False,
    fused_mlp=True,
    interleaved=True,
    defaults={"partial_rotary_factor": 0.5, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7},
)
_GLM4 = replace(
    _GLM,
    norms=NormNames(attention_post="post_self_attn_layernorm", mlp_post="post_mlp_layernorm"),
)
_GLM4_MOE = replace(
    _LLAMA,
    output_bias_follows=False,
    mlp_bias_key=None,
    qk_norm=QKNorm.HEADS,
    qk_norm_key="use_qk_norm",
    experts=ExpertTraits(
        ExpertNames(correction="gate.e_score_correction_bias", shared="shared_experts"),
        count_key="n_routed_experts",
        scoring=Scoring.SIGMOID,
        grouped=True,
        normalised=None,
        sparse=_after_dense_layers,
    ),
    defaults={"partial_rotary_factor": 0.5, "num_key_value_heads": 8, "norm_topk_prob": True, "rms_norm_eps": 1e-5},
)
_DEEPSEEK = replace(
    _LLAMA,
    latent=True,
    interleaved=True,
    mlp_bias_key=None,
    supported={"attention_bias": (False,), "mlp_bias": (False,)},
)
_DEEPSEEK2 = replace(
    _DEEPSEEK,
    experts=ExpertTraits(
        ExpertNames(shared="shared_experts"),
        count_key="n_routed_experts",
        grouped=True,
        best_of_group=1,
        normalised=False,
        sparse=_after_dense_layers,
    ),
    supported={
        **_DEEPSEEK.supported,
        "norm_topk_prob": (False,),
        "scoring_func": ("softmax",),
        "topk_method": ("greedy", "group_limited_greedy"),
    },
    defaults={"q_lora_rank": 1536, "first_k_dense_replace": 0, "topk_method": "greedy", "n_shared_experts": 2},
)
_DEEPSEEK3 = replace(
    _DEEPSEEK,
    experts=_GLM4_MOE.experts,
    supported={**_DEEPSEEK.supported, "scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)},
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
_OLMO2 = replace(
    _LLAMA,
    qk_norm=QKNorm.WHOLE,
    mlp_bias_key=None,
    norms=NormNames(None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    defaults={"rms_norm_eps": 1e-5},
)
_OLMO3 = replace(
    _OLMO2,
    sliding=_all_but_each_nth,
    # Only layers without a window have scaled rotations.
    defaults={
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "rope_local_base_freq": 500_000.0,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
    },
)
_SEED_OSS = replace(
    _LLAMA,
    output_bias_follows=False,
    output_bias_key="attention_out_bias",
    defaults={"attention_bias": True, "head_dim": 128, "num_key_value_heads": 8},
)
_ERNIE = replace(
    _LLAMA,
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
_OLMOE = replace(
    _LLAMA,
    qk_norm=QKNorm.WHOLE,
    mlp_bias_key=None,
    experts=ExpertTraits(size_key="intermediate_size", normalised=None),
    supported={"clip_qkv": ()},
    defaults={"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8},
)
_MISTRAL = DecoderTraits(
    sliding=_every_layer,
    defaults={"sliding_window": 4096, "num_key_value_heads": 8, "max_position_embeddings": 131_072},
)
_QWEN2 = DecoderTraits(qkv_bias=True, sliding=_from_window_layer, defaults={"sliding_window": 4096})
_QWEN3 = DecoderTraits(
    qkv_bias=None,
    output_bias_follows=True,
    qk_norm=QKNorm.HEADS,
    sliding=_from_window_layer,
    defaults={"sliding_window": 4096, "head_dim": 128},
)
_MIXTRAL = DecoderTraits(
    sliding=_every_layer,
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
_MINIMAX_M2 = DecoderTraits(
    qk_norm=QKNorm.WHOLE,
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
_QWEN2_MOE = replace(
    _QWEN2,
    experts=ExpertTraits(
        ExpertNames(shared="shared_expert", shared_gate="shared_expert_gate"), normalised=None, sparse=_each_nth
    ),
    defaults={
        **_QWEN2.defaults,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
    },
)
_QWEN3_MOE = replace(
    _QWEN3,
    sliding=_every_layer_if_used,
    experts=ExpertTraits(newer_count_key="num_local_experts", normalised=None, sparse=_each_nth),
    defaults={
        "sliding_window": 4096,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
)
_GPT_OSS = DecoderTraits(
    qkv_bias=None,
    output_bias_follows=True,
    sinks=True,
    sliding=_even_layers,
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
_PHI3 = DecoderTraits(
    fused_qkv=True,
    fused_mlp=True,
    sliding=_every_layer,
    defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 4096},
)
_COHERE = DecoderTraits(
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
_COHERE2 = replace(
    _COHERE,
    qk_norm=None,
    qk_norm_key=None,
    sliding=_all_but_each_nth,
    rotary=_where_sliding,
    defaults={**_COHERE.defaults, "rope_theta": 10_000.0, "sliding_window": 4096, "sliding_window_pattern": 4},
)
_STARCODER2 = DecoderTraits(
    activation=Activation.GELU_TANH,
    qkv_bias=None,
    output_bias_follows=True,
    bias_key="use_bias",
    mlp_bias_key="use_bias",
    mlp_names=("c_fc", "c_proj"),
    norm=Norm.LAYER_WITH_BIAS,
    norm_eps_key="norm_epsilon",
    sliding=_every_layer,
    defaults={"use_bias": True, "norm_epsilon": 1e-5, "num_key_value_heads": 2, "tie_word_embeddings": True},
)
_GEMMA_DECODER = DecoderTraits(
    activation=Activation.GELU_TANH,
    qkv_bias=None,
    output_bias_follows=True,
    norm_offset=1.0,
    scaled_embedding=True,
    wide_residual=True,
    requires_bos=True,
    defaults=_GEMMA,
)
_GEMMA_2_DECODER = replace(_GEMMA_DECODER, norms=_BOTH_NORMS, sliding=_even_layers, defaults=_GEMMA2)
_GEMMA_3_DECODER = replace(_GEMMA_2_DECODER, qk_norm=QKNorm.HEADS, sliding=_all_but_each_nth, defaults=_GEMMA3)

_PIXTRAL_TEXT = replace(_MISTRAL, defaults={**_MISTRAL.defaults, "num_attention_heads": 32})
_PIXTRAL = VisionTraits("pixtral", ("pixtral",), merging=True)
_LLAVA_PIXTRAL = VisionTraits(
    "pixtral",
    ("pixtral",),
    defaults={
        "multimodal_projector_bias": True,
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
    },
)
_QWEN2_VL = replace(_QWEN2, mrope=True)
_QWEN3_VL = replace(_QWEN3, mrope=True, mrope_sections=(24, 20, 20), mrope_interleaved=True)
_QWEN2_VISION = VisionTraits("qwen2_vl", (None, "qwen2_vl", "qwen2_vl_vision"))
_QWEN25_VISION = VisionTraits("qwen2_5_vl", (None, "qwen2_5_vl", "qwen2_5_vl_vision"))
_QWEN3_VISION = VisionTraits("qwen3_vl", (None, "qwen3_vl", "qwen3_vl_vision"))
_GEMMA_3_IMAGES = replace(_GEMMA_3_DECODER, images_both_ways=True)
_SIGLIP = VisionTraits("siglip", ("siglip_vision_model",))
_INSIDE = (KeyPrefix("language_model.model.", "language_model."), KeyPrefix("model.language_model."))
_QWEN_INSIDE = (KeyPrefix(), *_INSIDE)

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        row.arch_string: row
        for row in (
            Architecture("LlamaForCausalLM", _LLAMA),
            Architecture("Llama4ForCausalLM", _LLAMA4),
            Architecture("Llama4ForConditionalGeneration", _LLAMA4, _INSIDE, multimodal=True),
            Architecture("GraniteForCausalLM", _GRANITE),
            Architecture("GraniteMoeForCausalLM", _GRANITE_MOE),
            Architecture("SmolLM3ForCausalLM", _SMOLLM3),
            Architecture("GlmForCausalLM", _GLM),
            Architecture("Glm4ForCausalLM", _GLM4),
            Architecture("Glm4MoeForCausalLM", _GLM4_MOE),
            Architecture("DeepseekV2ForCausalLM", _DEEPSEEK2),
            Architecture("DeepseekV3ForCausalLM", _DEEPSEEK3),
            Architecture("Olmo2ForCausalLM", _OLMO2),
            Architecture("Olmo3ForCausalLM", _OLMO3),
            Architecture("OlmoeForCausalLM", _OLMOE),
            Architecture("SeedOssForCausalLM", _SEED_OSS),
            Architecture("Ernie4_5ForCausalLM", _ERNIE),
            Architecture("MiniMaxM2ForCausalLM", _MINIMAX_M2),
            Architecture("CohereForCausalLM", _COHERE),
            Architecture("Cohere2ForCausalLM", _COHERE2),
            Architecture("Starcoder2ForCausalLM", _STARCODER2),
            Architecture("MistralForCausalLM", _MISTRAL),
            Architecture("Qwen2ForCausalLM", _QWEN2),
            Architecture("Qwen3ForCausalLM", _QWEN3),
            Architecture("MixtralForCausalLM", _MIXTRAL),
            Architecture("Qwen2MoeForCausalLM", _QWEN2_MOE),
            Architecture("Qwen3MoeForCausalLM", _QWEN3_MOE),
            Architecture("Mistral3ForConditionalGeneration", _MISTRAL, _INSIDE, multimodal=True, vision=_PIXTRAL),
            Architecture("LlavaForConditionalGeneration", _PIXTRAL_TEXT, _INSIDE, True, ("mistral",), _LLAVA_PIXTRAL),
            Architecture("Qwen2VLForConditionalGeneration", _QWEN2_VL, _QWEN_INSIDE, True, vision=_QWEN2_VISION),
            Architecture("Qwen2_5_VLForConditionalGeneration", _QWEN2_VL, _QWEN_INSIDE, True, vision=_QWEN25_VISION),
            Architecture("Qwen3VLForConditionalGeneration", _QWEN3_VL, _QWEN_INSIDE, True, vision=_QWEN3_VISION),
            Architecture("GemmaForCausalLM", _GEMMA_DECODER),
            Architecture("Gemma2ForCausalLM", _GEMMA_2_DECODER),
            Architecture("Gemma3ForCausalLM", _GEMMA_3_DECODER),
            Architecture("Gemma3ForConditionalGeneration", _GEMMA_3_IMAGES, _INSIDE, multimodal=True, vision=_SIGLIP),
            Architecture("Phi3ForCausalLM", _PHI3),
            Architecture("GptOssForCausalLM", _GPT_OSS),
        )
    }
)
