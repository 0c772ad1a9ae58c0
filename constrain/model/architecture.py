"""Supported architectures: ``ARCHITECTURES`` is a table of their decoders and vision towers.

An architecture is a row, and its decoder one of ``families/dense.py`` or ``families/experts.py``; one that differs in a
new way needs a field of ``DecoderTraits`` (``traits.py``), which ``builder.py`` and ``modules/`` read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from constrain.model.families.dense import (
    ARCEE,
    COHERE,
    COHERE2,
    CWM,
    ERNIE,
    EXAONE4,
    GEMMA,
    GEMMA2,
    GEMMA3,
    GLM,
    GLM4,
    GRANITE,
    GRANITE_HYBRID,
    INTERNLM3,
    JAIS2,
    LLAMA,
    MINISTRAL,
    MINISTRAL3,
    MISTRAL,
    NEMOTRON,
    OLMO2,
    OLMO3,
    PHI3,
    QWEN2,
    QWEN3,
    SEED_OSS,
    SMOLLM3,
    STABLELM,
    STARCODER2,
    VAULT_GEMMA,
    YOUTU,
)
from constrain.model.families.experts import (
    DEEPSEEK2,
    DEEPSEEK3,
    DOTS1,
    ERNIE_MOE,
    GLM4_MOE,
    GLM4_MOE_LITE,
    GPT_OSS,
    GRANITE_MOE,
    LLAMA4,
    MINIMAX_M2,
    MIXTRAL,
    OLMOE,
    QWEN2_MOE,
    QWEN3_MOE,
    QWEN3_VL_MOE,
    SOLAR_OPEN,
)
from constrain.model.traits import DecoderTraits, VisionTraits


@dataclass(frozen=True)
class KeyPrefix:
    """Prefixes of tensor names: of ``embed_tokens`` and ``layers`` (``body``), and of ``lm_head`` (``head``)."""

    body: str = "model."
    head: str = ""


@dataclass(frozen=True)
class Architecture:
    """An architecture: its name in ``config.json``, the decoder, and possible prefixes of tensors (the first match).

    Of a ``multimodal`` one, the text model is read, and its vision tower if it is as ``vision`` says. ``texts`` has the
    decoders of the text models that it may have by their ``model_type``, which may be absent; without it, all have
    ``lm``.
    """

    arch_string: str
    lm: DecoderTraits
    prefixes: tuple[KeyPrefix, ...] = (KeyPrefix(), KeyPrefix(""))
    multimodal: bool = False
    texts: Mapping[str | None, DecoderTraits] = field(default_factory=lambda: MappingProxyType({}))
    vision: VisionTraits | None = None


_PIXTRAL_TEXT = replace(MISTRAL, defaults={**MISTRAL.defaults, "num_attention_heads": 32})
_LLAVA_TEXTS: dict[str | None, DecoderTraits] = {"mistral": _PIXTRAL_TEXT}
_MISTRAL3_TEXTS: dict[str | None, DecoderTraits] = {None: MISTRAL, "mistral": MISTRAL, "ministral3": MINISTRAL3}
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
_QWEN2_VL = replace(QWEN2, mrope=True)
_QWEN3_VL = replace(QWEN3, mrope=True, mrope_sections=(24, 20, 20), mrope_interleaved=True)
_QWEN2_VISION = VisionTraits("qwen2_vl", (None, "qwen2_vl", "qwen2_vl_vision"))
_QWEN25_VISION = VisionTraits("qwen2_5_vl", (None, "qwen2_5_vl", "qwen2_5_vl_vision"))
_QWEN3_VISION = VisionTraits("qwen3_vl", (None, "qwen3_vl", "qwen3_vl_vision"))
_QWEN3_MOE_VISION = VisionTraits("qwen3_vl", (None, "qwen3_vl_moe", "qwen3_vl_moe_vision"))
_GEMMA_3_IMAGES = replace(GEMMA3, images_both_ways=True)
_SIGLIP = VisionTraits("siglip", ("siglip_vision_model",))
_INSIDE = (KeyPrefix("language_model.model.", "language_model."), KeyPrefix("model.language_model."))
_QWEN_INSIDE = (KeyPrefix(), *_INSIDE)

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        row.arch_string: row
        for row in (
            Architecture("LlamaForCausalLM", LLAMA),
            Architecture("Llama4ForCausalLM", LLAMA4),
            Architecture("Llama4ForConditionalGeneration", LLAMA4, _INSIDE, multimodal=True),
            Architecture("GraniteForCausalLM", GRANITE),
            Architecture("GraniteMoeForCausalLM", GRANITE_MOE),
            Architecture("GraniteMoeHybridForCausalLM", GRANITE_HYBRID),
            Architecture("SmolLM3ForCausalLM", SMOLLM3),
            Architecture("GlmForCausalLM", GLM),
            Architecture("Glm4ForCausalLM", GLM4),
            Architecture("Glm4MoeForCausalLM", GLM4_MOE),
            Architecture("Glm4MoeLiteForCausalLM", GLM4_MOE_LITE),
            Architecture("SolarOpenForCausalLM", SOLAR_OPEN),
            Architecture("Dots1ForCausalLM", DOTS1),
            Architecture("DeepseekV2ForCausalLM", DEEPSEEK2),
            Architecture("DeepseekV3ForCausalLM", DEEPSEEK3),
            Architecture("YoutuForCausalLM", YOUTU),
            Architecture("Olmo2ForCausalLM", OLMO2),
            Architecture("Olmo3ForCausalLM", OLMO3),
            Architecture("OlmoeForCausalLM", OLMOE),
            Architecture("Exaone4ForCausalLM", EXAONE4),
            Architecture("SeedOssForCausalLM", SEED_OSS),
            Architecture("Ernie4_5ForCausalLM", ERNIE),
            Architecture("Ernie4_5_MoeForCausalLM", ERNIE_MOE),
            Architecture("MiniMaxM2ForCausalLM", MINIMAX_M2),
            Architecture("InternLM3ForCausalLM", INTERNLM3),
            Architecture("CwmForCausalLM", CWM),
            Architecture("ArceeForCausalLM", ARCEE),
            Architecture("NemotronForCausalLM", NEMOTRON),
            Architecture("Jais2ForCausalLM", JAIS2),
            Architecture("StableLmForCausalLM", STABLELM),
            Architecture("CohereForCausalLM", COHERE),
            Architecture("Cohere2ForCausalLM", COHERE2),
            Architecture("Starcoder2ForCausalLM", STARCODER2),
            Architecture("MistralForCausalLM", MISTRAL),
            Architecture("MinistralForCausalLM", MINISTRAL),
            Architecture("Ministral3ForCausalLM", MINISTRAL3),
            Architecture("Qwen2ForCausalLM", QWEN2),
            Architecture("MiMoForCausalLM", QWEN2),
            Architecture("Qwen3ForCausalLM", QWEN3),
            Architecture("MixtralForCausalLM", MIXTRAL),
            Architecture("Qwen2MoeForCausalLM", QWEN2_MOE),
            Architecture("Qwen3MoeForCausalLM", QWEN3_MOE),
            Architecture("Mistral3ForConditionalGeneration", MISTRAL, _INSIDE, True, _MISTRAL3_TEXTS, _PIXTRAL),
            Architecture("LlavaForConditionalGeneration", _PIXTRAL_TEXT, _INSIDE, True, _LLAVA_TEXTS, _LLAVA_PIXTRAL),
            Architecture("Qwen2VLForConditionalGeneration", _QWEN2_VL, _QWEN_INSIDE, True, vision=_QWEN2_VISION),
            Architecture("Qwen2_5_VLForConditionalGeneration", _QWEN2_VL, _QWEN_INSIDE, True, vision=_QWEN25_VISION),
            Architecture("Qwen3VLForConditionalGeneration", _QWEN3_VL, _QWEN_INSIDE, True, vision=_QWEN3_VISION),
            Architecture(
                "Qwen3VLMoeForConditionalGeneration", QWEN3_VL_MOE, _QWEN_INSIDE, True, vision=_QWEN3_MOE_VISION
            ),
            Architecture("GemmaForCausalLM", GEMMA),
            Architecture("Gemma2ForCausalLM", GEMMA2),
            Architecture("VaultGemmaForCausalLM", VAULT_GEMMA),
            Architecture("Gemma3ForCausalLM", GEMMA3),
            Architecture("Gemma3ForConditionalGeneration", _GEMMA_3_IMAGES, _INSIDE, multimodal=True, vision=_SIGLIP),
            Architecture("Phi3ForCausalLM", PHI3),
            Architecture("GptOssForCausalLM", GPT_OSS),
        )
    }
)
