"""Construction of the modules of a model from its config."""

from __future__ import annotations

from constrain.model.config import ExLlamaV2Config
from constrain.model.layout import LayerLayout, MLPLayout
from constrain.model.mixture import Mixture
from constrain.model.modules import MLP, Attention, Embedding, Head, Module, RMSNorm


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
    layers = [module for index, layer in enumerate(layout.layers) for module in _layer(config, layer, index)]
    return [embedding, *layers, _last_norm(config), head]


def _layer(config: ExLlamaV2Config, layer: LayerLayout, index: int) -> tuple[Attention, MLP | Mixture]:
    hidden_norms = (layer.attention_norm, layer.attention_post_norm, layer.mlp_norm, layer.mlp_post_norm)
    norms = {name: _norm(config, name, config.hidden_size) for name in hidden_norms if name}
    head_norms = zip((layer.query_norm, layer.key_norm), layer.head_norm_sizes, strict=True)
    norms |= {name: _norm(config, name, size) for name, size in head_norms if name}
    attention = Attention(
        layer,
        index,
        norms,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        scale=config.query_scale,
        cap=config.attn_logit_softcapping,
        interleaved=config.rope.dim if config.arch.lm.interleaved else 0,
    )
    return attention, _feed_forward(config, layer, norms)


def _feed_forward(config: ExLlamaV2Config, layer: LayerLayout, norms: dict[str, RMSNorm]) -> MLP | Mixture:
    activation = config.arch.lm.activation
    if isinstance(layer.feed_forward, MLPLayout):
        return MLP(layer, layer.feed_forward, norms, activation)
    assert config.experts is not None
    return Mixture(layer, layer.feed_forward, norms, activation, config.experts.routing)


def _last_norm(config: ExLlamaV2Config) -> RMSNorm:
    """Return the norm before the head, with the factor of the logits."""
    size, offset = config.hidden_size, config.arch.lm.norm_offset
    return RMSNorm(config.layout.norm, size, config.norm_eps, offset, config.logit_scale)


def _norm(config: ExLlamaV2Config, key: str, size: int) -> RMSNorm:
    return RMSNorm(key, size, config.norm_eps, config.arch.lm.norm_offset)
