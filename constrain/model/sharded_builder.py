"""Construction of the modules of a model whose layers are split over devices."""

from __future__ import annotations

from collections.abc import Iterator

from constrain.model.builder import build_layer, build_modules
from constrain.model.config import ExLlamaV2Config
from constrain.model.modules import Head, Module
from constrain.model.shard_group import ShardGroup
from constrain.model.shard_layout import LayerSharder, Slices
from constrain.model.sharded import ShardedHalfLayer
from constrain.model.sharded_head import ShardedHead
from constrain.model.sharding import LayerShares, ShardingPlan


def build_sharded_modules(config: ExLlamaV2Config, plan: ShardingPlan) -> list[Module]:
    """Build the modules that :func:`~constrain.model.builder.build_modules` builds, with layers and head split."""
    group = ShardGroup(plan.devices)
    embedding, *_, norm, head = build_modules(config)
    assert isinstance(head, Head)
    layers = [module for index in range(len(plan.layers)) for module in _layer(config, plan, group, index)]
    return [embedding, *layers, norm, ShardedHead(head, group, plan.vocabulary)]


def _layer(config: ExLlamaV2Config, plan: ShardingPlan, group: ShardGroup, index: int) -> Iterator[ShardedHalfLayer]:
    layout, shares = config.layout.layers[index], plan.layers[index]
    whole = build_layer(config, layout, index)
    sharders = [LayerSharder(config, plan, index, shard) for shard in range(len(plan.devices))]
    entries = {shard: index * len(plan.cache_shards) + place for place, shard in enumerate(plan.cache_shards)}
    shards = [
        build_layer(config, each.layout(layout), entries.get(shard, -1), (len(each.heads), len(each.kv_heads)))
        for shard, each in enumerate(sharders)
    ]
    slices: list[Slices] = [each.slices for each in sharders]
    for number, half in enumerate(whole):
        is_attention = number == 0
        yield ShardedHalfLayer(
            half,
            [own[number] for own in shards],
            slices,
            group,
            _working(shares, is_attention),
            shares.attention_outputs if is_attention else shares.mlp_outputs,
        )


def _working(shares: LayerShares, is_attention: bool) -> list[int]:
    """Return the shards that have a part of attention, or of what comes after it."""
    parts = [shares.heads] if is_attention else [shares.inner, shares.shared or shares.inner]
    return [shard for shard, own in enumerate(zip(*parts, strict=True)) if any(len(part) for part in own)]
