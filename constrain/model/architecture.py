"""Supported architectures, as a table of their differences from plain Llama."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from constrain.kernels import Activation
from constrain.model.config_reader import ConfigReader


@dataclass(frozen=True)
class KeyPrefix:
    """Prefixes of tensor names: of ``embed_tokens`` and ``layers`` (``body``), and of ``lm_head`` (``head``)."""

    body: str = "model."
    head: str = ""


SlidingRule = Callable[[ConfigReader, int], bool]
"""Function from the config and the index of a layer: whether the layer has a sliding window."""


@dataclass(frozen=True)
class DecoderTraits:
    """Differences of a decoder from plain Llama.

    Attributes:
        activation: activation of the MLP's gate.
        qkv_bias: whether q, k and v have biases; ``None``: as ``attention_bias`` of the config, and then the output
            has one too if ``output_bias_follows``.
        output_bias_follows: see ``qkv_bias``.
        mlp_bias_key: key of the config that enables biases of the MLP.
        qk_norm: RMS norm of every query and key head.
        norm_offset: added to the stored weight of every norm.
        post_norms: norms after attention and after the MLP too, with the names of Gemma 2.
        scaled_embedding: embeddings are multiplied by the square root of the hidden size.
        fused: the file has ``qkv_proj`` and ``gate_up_proj`` as one tensor each.
        sliding: selects layers with a sliding window, unless the config lists ``layer_types``.
        requires_bos: the model needs a BOS token.
        supports_tp, mrope: tensor-parallel loading and multi-axis RoPE, which no architecture has here.
        defaults: defaults of keys of the config.
    """

    activation: Activation = Activation.SILU
    qkv_bias: bool | None = False
    output_bias_follows: bool = False
    mlp_bias_key: str | None = None
    qk_norm: bool = False
    norm_offset: float = 0.0
    post_norms: bool = False
    scaled_embedding: bool = False
    fused: bool = False
    sliding: SlidingRule | None = None
    requires_bos: bool = False
    supports_tp: bool = False
    mrope: bool = False
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Architecture:
    """An architecture: its name in ``config.json``, the decoder, and possible prefixes of tensors (the first match)."""

    arch_string: str
    lm: DecoderTraits
    prefixes: tuple[KeyPrefix, ...] = (KeyPrefix(),)


def _every_layer(reader: ConfigReader, layer: int) -> bool:
    return True


def _from_window_layer(reader: ConfigReader, layer: int) -> bool:
    first = reader.integer("max_window_layers", 28, low=0, high=1 << 16)
    return reader.boolean("use_sliding_window", False) and layer >= int(first)


def _even_layers(reader: ConfigReader, layer: int) -> bool:
    return layer % 2 == 0


def _all_but_each_nth(reader: ConfigReader, layer: int) -> bool:
    return (layer + 1) % int(reader.integer("sliding_window_pattern", 6, high=1 << 16)) != 0


_GEMMA2 = {
    "tie_word_embeddings": True,
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

_LLAMA = DecoderTraits(qkv_bias=None, output_bias_follows=True, mlp_bias_key="mlp_bias")
_MISTRAL = DecoderTraits(
    sliding=_every_layer,
    defaults={"sliding_window": 4096, "num_key_value_heads": 8, "max_position_embeddings": 131_072},
)
_QWEN2 = DecoderTraits(qkv_bias=True, sliding=_from_window_layer, defaults={"sliding_window": 4096})
_QWEN3 = DecoderTraits(
    qkv_bias=None,
    output_bias_follows=True,
    qk_norm=True,
    sliding=_from_window_layer,
    defaults={"sliding_window": 4096, "head_dim": 128},
)
_PHI3 = DecoderTraits(
    fused=True, sliding=_every_layer, defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 4096}
)
_GEMMA_2_DECODER = DecoderTraits(
    activation=Activation.GELU_TANH,
    qkv_bias=None,
    output_bias_follows=True,
    norm_offset=1.0,
    post_norms=True,
    scaled_embedding=True,
    sliding=_even_layers,
    requires_bos=True,
    defaults=_GEMMA2,
)
_GEMMA_3_DECODER = replace(_GEMMA_2_DECODER, qk_norm=True, sliding=_all_but_each_nth, defaults=_GEMMA3)

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        row.arch_string: row
        for row in (
            Architecture("LlamaForCausalLM", _LLAMA),
            Architecture("MistralForCausalLM", _MISTRAL),
            Architecture("Qwen2ForCausalLM", _QWEN2),
            Architecture("Qwen3ForCausalLM", _QWEN3),
            Architecture("Gemma2ForCausalLM", _GEMMA_2_DECODER),
            Architecture("Gemma3ForCausalLM", _GEMMA_3_DECODER),
            Architecture(
                "Gemma3ForConditionalGeneration",
                _GEMMA_3_DECODER,
                (KeyPrefix("language_model.model.", "language_model."), KeyPrefix("model.language_model.")),
            ),
            Architecture("Phi3ForCausalLM", _PHI3),
        )
    }
)
