"""Construction of the modules of a model from its config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from constrain.model.config import ExLlamaV2Config
from constrain.model.latent_attention import LatentAttention
from constrain.model.layout import LayerLayout, MLPLayout, Shape
from constrain.model.mixture import Mixture
from constrain.model.modules import (
    MLP,
    Attention,
    Embedding,
    HalfLayer,
    Head,
    LayerNorm,
    Module,
    ParallelLayer,
    RMSNorm,
    UnitNorm,
    make_mlp,
)
from constrain.model.traits import Norm, QKNorm


def build_modules(config: ExLlamaV2Config) -> list[Module]:
    """Build embedding, attention and MLP of every layer, last norm and head, without weights."""
    layout = config.layout
    sizes = config.vocab_size, config.padded_vocab_size, config.hidden_size
    embedding = Embedding(layout.embedding, *sizes, config.embedding_scale)
    head = Head(
        layout.head,
        *sizes,
        config.final_logit_softcapping,
        embedding if layout.tied else None,
    )
    layers = [module for index, layer in enumerate(layout.layers) for module in build_layer(config, layer, index)]
    return [embedding, *layers, _last_norm(config), head]


def build_layer(
    config: ExLlamaV2Config, layer: LayerLayout, index: int, heads: tuple[int, int] | None = None
) -> Sequence[HalfLayer]:
    """Build the half layers of a layer, which may be a part of one.

    Args:
        config: the config of the model.
        layer: layout of the layer, or of the part.
        index: number of its keys and values in KV caches.
        heads: number of its query heads, and of its heads of keys and values; by default those of the model.
    """
    norms = _norms(config, layer)
    attention = partial(_attention, config, layer, index, norms, heads)
    if layer.latent and config.latent:
        kind = partial(LatentAttention, layer.latent, config.latent)
        return [attention(kind), _feed_forward(config, layer, norms)]
    if config.arch.lm.parallel:
        assert isinstance(layer.feed_forward, MLPLayout)
        mlp = make_mlp(layer.mlp, layer.feed_forward, config.arch.lm.activation)
        return [attention(partial(ParallelLayer, mlp))]
    return [attention(Attention), _feed_forward(config, layer, norms)]


def _norms(config: ExLlamaV2Config, layer: LayerLayout) -> dict[str, RMSNorm]:
    """Build the norms of a layer, by name."""
    hidden_norms = (layer.attention_norm, layer.attention_post_norm, layer.mlp_norm, layer.mlp_post_norm)
    norms = {name: _norm(config, name) for name in hidden_norms if name}
    head_norms = zip((layer.query_norm, layer.key_norm), layer.head_norm_shapes, strict=True)
    return norms | {name: _head_norm(config, name, shape) for name, shape in head_norms if name}


def _attention(
    config: ExLlamaV2Config,
    layer: LayerLayout,
    index: int,
    norms: dict[str, RMSNorm],
    heads: tuple[int, int] | None,
    kind: Callable[..., Attention],
) -> Attention:
    queries, keys = heads or (config.num_attention_heads, config.num_key_value_heads)
    attention = kind(
        layer,
        index,
        norms,
        heads=queries,
        kv_heads=keys,
        head_dim=config.head_dim,
        scale=config.query_scale,
        cap=config.attn_logit_softcapping,
        interleaved=config.rope.dim if config.interleaved else 0,
    )
    if config.use_qk_norm and config.arch.lm.qk_norm is QKNorm.UNIT and layer.rotary:
        # Of a rotated head it is the same as before the rotation.
        attention.head_norms = [UnitNorm(layer.attention, (config.head_dim,), config.head_norm_eps) for _ in range(2)]
    return attention


def _feed_forward(config: ExLlamaV2Config, layer: LayerLayout, norms: dict[str, RMSNorm]) -> MLP | Mixture:
    activation = config.arch.lm.activation
    if isinstance(layer.feed_forward, MLPLayout):
        return MLP(layer, layer.feed_forward, norms, activation)
    assert config.experts is not None
    activation = config.experts.traits.activation or activation
    traits = config.experts.traits
    return Mixture(layer, layer.feed_forward, norms, activation, config.experts.routing, traits.weighted_inputs)


def _last_norm(config: ExLlamaV2Config) -> RMSNorm:
    """Return the norm before the head, with the factor of the logits."""
    return _norm(config, config.layout.norm, config.logit_scale)


def _norm(config: ExLlamaV2Config, key: str, scale: float = 1.0) -> RMSNorm:
    """Return a norm of hidden states."""
    shape, eps, traits = (config.hidden_size,), config.norm_eps, config.arch.lm
    if traits.norm is Norm.RMS:
        return RMSNorm(key, shape, eps, traits.norm_offset, scale)
    return LayerNorm(key, shape, eps, config.layout.norm_bias, traits.norm_offset, scale)


def _head_norm(config: ExLlamaV2Config, key: str, shape: Shape) -> RMSNorm:
    """Return a norm of queries or keys."""
    if config.arch.lm.norm is Norm.RMS:
        return RMSNorm(key, shape, config.head_norm_eps, config.arch.lm.norm_offset)
    return LayerNorm(key, shape, config.head_norm_eps, biased=False)
