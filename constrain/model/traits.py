"""The ways in which decoders differ from plain Llama."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from constrain.kernels import Activation, Scoring
from constrain.model.config_reader import ConfigReader


class Norm(Enum):
    """The norm of hidden states, and of heads where these are normalised."""

    RMS = "rms"
    LAYER = "layer"
    LAYER_WITH_BIAS = "layer with bias"


class QKNorm(Enum):
    """The norm of queries and keys: of every head, with one weight or one for each head, or of all heads together.

    That without weights is of the heads of layers that rotate them.
    """

    HEADS = "heads"
    UNIT = "heads without weights"
    OWN_WEIGHTS = "heads with own weights"
    WHOLE = "whole"


LayerRule = Callable[[ConfigReader, int], bool]
"""Function from the config and the index of a layer: whether the layer is of some kind."""


@dataclass(frozen=True)
class NormNames:
    """Names of the norms of a layer: before and after attention, before and after the MLP; ``None``: there is none."""

    attention: str | None = "input_layernorm"
    attention_post: str | None = None
    mlp: str | None = "post_attention_layernorm"
    mlp_post: str | None = None


@dataclass(frozen=True)
class StackedNames:
    """Names of tensors that hold a projection of all experts, after that of the module and a dot.

    Attributes:
        gate_up, down: names of the weights.
        bias: what is added to these for the names of biases, if there are any.
        transposed: they are ``[experts, inputs, outputs]``, in place of outputs before inputs.
        alternating: rows of gate and up alternate, in place of all of the gate before all of up.
    """

    gate_up: str
    down: str
    bias: str | None = None
    transposed: bool = False
    alternating: bool = False


@dataclass(frozen=True)
class ExpertNames:
    """Names of the tensors of a mixture of experts, after that of the module and a dot.

    Attributes:
        module: name of the module in a layer.
        router: the layer that scores experts.
        gate, up, down: projections of an expert, after ``experts.`` and its number.
        stacked: if the file has one tensor for all experts.
        correction: the tensor that is added to scores for the choice, if there is one.
        correction_row: that tensor is a row of a matrix, ``[1, experts]``.
        shared: the MLP that all tokens pass through, if there is one.
        shared_gate: the layer whose sigmoid is the weight of the shared MLP, if there is one.
    """

    module: str = "mlp"
    router: str = "gate"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    stacked: StackedNames | None = None
    correction: str | None = None
    correction_row: bool = False
    shared: str | None = None
    shared_gate: str | None = None


@dataclass(frozen=True)
class ExpertTraits:
    """Mixtures of experts in place of MLPs.

    Attributes:
        names: names of tensors.
        count_key, size_key, shared_size_key: keys of the config for the number of experts, and for the inner sizes of
            an expert and of the shared MLP.
        chosen_key: key of the config for the number of experts of a token.
        shared_count_key: key of the config for the size of a shared MLP in experts, where that is how it is given.
        activation: activation of the gates of experts, if it is another one than that of MLPs.
        router_bias: whether the router has a bias.
        scoring: see :class:`constrain.kernels.Routing`.
        grouped: experts may be chosen from groups, and the shared MLP is of the size of some experts, as of DeepSeek.
        best_of_group: number of experts of a group whose scores make up that of the group.
        normalised: likewise; ``None``: as ``norm_topk_prob`` of the config.
        sparse: selects the layers that have experts; others have an MLP.
        weighted_inputs: the weights of experts multiply their inputs, in place of their outputs.
        newer_count_key: the key that newer configs have in place of ``count_key``, if there is one.
    """

    names: ExpertNames = ExpertNames()
    count_key: str = "num_experts"
    size_key: str = "moe_intermediate_size"
    shared_size_key: str = "shared_expert_intermediate_size"
    chosen_key: str = "num_experts_per_tok"
    shared_count_key: str = "n_shared_experts"
    activation: Activation | None = None
    router_bias: bool = False
    scoring: Scoring = Scoring.SOFTMAX
    grouped: bool = False
    best_of_group: int = 2
    normalised: bool | None = True
    sparse: LayerRule = lambda reader, layer: True
    weighted_inputs: bool = False
    newer_count_key: str | None = None


@dataclass(frozen=True)
class VisionTraits:
    """Vision towers of an architecture.

    Attributes:
        kind: ``"pixtral"``, ``"siglip"``, ``"qwen2_vl"``, ``"qwen2_5_vl"`` or ``"qwen3_vl"``.
        model_types: those of ``vision_config`` that are read; ``None``: it may have none.
        merging: the projector of Pixtral makes one embedding of a square of patches, as of Mistral 3.
        defaults: defaults of keys of the config.
    """

    kind: str
    model_types: tuple[str | None, ...]
    merging: bool = False
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class DecoderTraits:
    """Differences of a decoder from plain Llama.

    Attributes:
        activation: activation of the MLP's gate.
        activation_alias: another name of it in ``hidden_act`` of early configs.
        qkv_bias: whether q, k and v have biases; ``None``: as the ``bias_key`` of the config says, and then the output
            has one too if ``output_bias_follows``.
        output_bias_follows, bias_key: see ``qkv_bias``.
        output_bias_key: key of the config that enables a bias of the output, whatever q, k and v have.
        mlp_bias_key: key of the config that enables biases of the MLP.
        mlp_module, mlp_size_key: name of the MLP in a layer, and key of the config for its inner size.
        mlp_names: names of its projections: gate, up and down, or up and down where there is no gate.
        parallel: attention and MLP of a layer have the same input, and both are added to it.
        norm: kind of norms.
        norm_eps_key: key of the config for what norms add to the mean square.
        qk_norm: norm of queries and keys, if there is one.
        qk_norm_key: key of the config that enables ``qk_norm``; ``None``: it is always there.
        norm_offset: added to the stored weight of every norm.
        norms: names of the norms of a layer.
        scaled_embedding: embeddings are multiplied by the square root of the hidden size.
        logit_scale_key: key of the config for a factor of the logits.
        scores_capped, logits_capped: the config may have soft caps of attention scores, and of logits.
        multipliers: the config has factors of embeddings, attention scores, residual sums and logits, as of Granite.
        wide_residual: the residual sums exceed the range of float16, in place of which bfloat16 is used.
        fused_qkv: the file has ``qkv_proj`` as one tensor.
        fused_mlp: name of the tensor that is gate and up of an MLP, if the file has them as one.
        interleaved: features are rotated in pairs of neighbours, in place of halves, unless ``rope_interleave`` of the
            config says otherwise.
        latent: multi-head latent attention.
        sinks: attention has sinks, see :func:`constrain.kernels.attention`.
        sliding: selects layers with a sliding window, unless the config lists ``layer_types``.
        alike: all layers have the window, or none has: ``layer_types`` cannot say otherwise.
        chunked: rotated layers attend within chunks, and scores of others change with the position, as of Llama 4. Only
            the length is read up to which this changes nothing.
        rotary: selects layers whose queries and keys are rotated.
        partly_rotated: a part of the features of a head may be rotated, in place of all.
        experts: mixtures of experts, if there are any.
        supported: values of keys of the config besides null, where others would change the model.
        requires_bos: the model needs a BOS token.
        mrope: tokens of images have positions on three axes: time, row and column.
        mrope_sections: numbers of pairs of features that turn with each axis, unless the config says otherwise.
        mrope_interleaved: the axes alternate from pair to pair.
        images_both_ways: tokens of an image attend to all of them, earlier and later ones.
        supports_tp: tensor-parallel loading, which all architectures have here.
        defaults: defaults of keys of the config.
    """

    activation: Activation = Activation.SILU
    activation_alias: str | None = None
    qkv_bias: bool | None = False
    output_bias_follows: bool = False
    bias_key: str = "attention_bias"
    output_bias_key: str | None = None
    mlp_bias_key: str | None = None
    mlp_module: str = "mlp"
    mlp_size_key: str = "intermediate_size"
    mlp_names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    parallel: bool = False
    norm: Norm = Norm.RMS
    norm_eps_key: str = "rms_norm_eps"
    qk_norm: QKNorm | None = None
    qk_norm_key: str | None = None
    norm_offset: float = 0.0
    norms: NormNames = NormNames()
    scaled_embedding: bool = False
    logit_scale_key: str | None = None
    scores_capped: bool = False
    logits_capped: bool = False
    multipliers: bool = False
    wide_residual: bool = False
    fused_qkv: bool = False
    fused_mlp: str | None = None
    interleaved: bool = False
    latent: bool = False
    sinks: bool = False
    sliding: LayerRule | None = None
    alike: bool = False
    chunked: bool = False
    rotary: LayerRule = lambda reader, layer: True
    partly_rotated: bool = False
    experts: ExpertTraits | None = None
    supported: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: MappingProxyType({}))
    requires_bos: bool = False
    supports_tp: bool = True
    mrope: bool = False
    mrope_sections: tuple[int, int, int] = (16, 24, 24)
    mrope_interleaved: bool = False
    images_both_ways: bool = False
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
