"""Names and shapes of the tensors of a model, derived from config and architecture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from constrain.model.architecture import Architecture, DecoderTraits, KeyPrefix

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LinearLayout:
    """One or more projections of the same input, computed as one matrix product.

    Attributes:
        keys: names of the projections, also in adapters.
        outputs: number of output features of each.
        inputs: number of input features.
        bias: whether each has a bias.
        fused: name of the tensor if the file stores them as one, else ``None``.
    """

    keys: tuple[str, ...]
    outputs: tuple[int, ...]
    inputs: int
    bias: bool = False
    fused: str | None = None

    def parts(self) -> Iterator[tuple[str, int]]:
        """Names in the file and numbers of rows, in order."""
        if self.fused:
            return iter([(self.fused, sum(self.outputs))])
        return zip(self.keys, self.outputs, strict=True)

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        for key, rows in self.parts():
            yield f"{key}.weight", (rows, self.inputs)
            if self.bias:
                yield f"{key}.bias", (rows,)


@dataclass(frozen=True)
class LayerLayout:
    """Names and shapes of one layer; the name of an absent norm is ``None``."""

    attention: str
    attention_norm: str
    qkv: LinearLayout
    output: LinearLayout
    query_norm: str | None
    key_norm: str | None
    attention_post_norm: str | None
    mlp: str
    mlp_norm: str
    gate_up: LinearLayout
    down: LinearLayout
    mlp_post_norm: str | None
    sliding: bool


@dataclass(frozen=True)
class ModelLayout:
    """Names and shapes of a model. ``tied``: the head has the weight of the embedding."""

    embedding: str
    layers: tuple[LayerLayout, ...]
    norm: str
    head: str
    tied: bool
    vocab_size: int
    hidden_size: int
    head_dim: int

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """All tensors that the files must have."""
        yield f"{self.embedding}.weight", (self.vocab_size, self.hidden_size)
        for layer in self.layers:
            yield from self._layer_tensors(layer)
        yield f"{self.norm}.weight", (self.hidden_size,)
        if not self.tied:
            yield f"{self.head}.weight", (self.vocab_size, self.hidden_size)

    def _layer_tensors(self, layer: LayerLayout) -> Iterator[tuple[str, Shape]]:
        for linear in (layer.qkv, layer.output, layer.gate_up, layer.down):
            yield from linear.tensors()
        for norm in (layer.attention_norm, layer.attention_post_norm, layer.mlp_norm, layer.mlp_post_norm):
            if norm:
                yield f"{norm}.weight", (self.hidden_size,)
        for norm in (layer.query_norm, layer.key_norm):
            if norm:
                yield f"{norm}.weight", (self.head_dim,)

    def absent(self) -> Iterator[str]:
        """Tensors that similar models have, and this one would ignore."""
        for layer in self.layers:
            for linear in (layer.qkv, layer.output, layer.gate_up, layer.down):
                if not linear.bias:
                    yield from (f"{key}.bias" for key, _ in linear.parts())
            if layer.query_norm is None:
                yield from (f"{layer.attention}.q_norm.weight", f"{layer.attention}.k_norm.weight")


class LayoutConfig(Protocol):
    """The fields of a config that determine names and shapes of tensors."""

    arch: Architecture
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    head_dim: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    sliding_layers: list[bool]


def model_layout(config: LayoutConfig, prefix: KeyPrefix, tied: bool) -> ModelLayout:
    """Derive the layout of a prepared config, with ``prefix`` before names of tensors."""
    return ModelLayout(
        embedding=f"{prefix.body}embed_tokens",
        layers=tuple(_layer(config, f"{prefix.body}layers.{i}.", i) for i in range(config.num_hidden_layers)),
        norm=f"{prefix.body}norm",
        head=f"{prefix.head}lm_head",
        tied=tied,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        head_dim=config.head_dim,
    )


def _layer(config: LayoutConfig, at: str, index: int) -> LayerLayout:
    traits: DecoderTraits = config.arch.lm
    hidden, inner = config.hidden_size, config.intermediate_size
    heads, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    attention, mlp = f"{at}self_attn", f"{at}mlp"
    return LayerLayout(
        attention=attention,
        attention_norm=f"{at}input_layernorm",
        qkv=LinearLayout(
            keys=tuple(f"{attention}.{name}_proj" for name in "qkv"),
            outputs=(heads, kv, kv),
            inputs=hidden,
            bias=config.qkv_bias,
            fused=f"{attention}.qkv_proj" if traits.fused else None,
        ),
        output=LinearLayout((f"{attention}.o_proj",), (hidden,), heads, config.output_bias),
        query_norm=f"{attention}.q_norm" if traits.qk_norm else None,
        key_norm=f"{attention}.k_norm" if traits.qk_norm else None,
        attention_post_norm=f"{at}post_attention_layernorm" if traits.post_norms else None,
        mlp=mlp,
        mlp_norm=f"{at}pre_feedforward_layernorm" if traits.post_norms else f"{at}post_attention_layernorm",
        gate_up=LinearLayout(
            keys=(f"{mlp}.gate_proj", f"{mlp}.up_proj"),
            outputs=(inner, inner),
            inputs=hidden,
            bias=config.mlp_bias,
            fused=f"{mlp}.gate_up_proj" if traits.fused else None,
        ),
        down=LinearLayout((f"{mlp}.down_proj",), (hidden,), inner, config.mlp_bias),
        mlp_post_norm=f"{at}post_feedforward_layernorm" if traits.post_norms else None,
        sliding=config.sliding_layers[index],
    )
