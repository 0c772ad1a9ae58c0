"""Layouts of the shards of a layer, and the parts of stored tensors that belong to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch

from constrain.model.config import ExLlamaV2Config
from constrain.model.layout import (
    ExpertLinearLayout,
    LatentLayout,
    LayerLayout,
    LinearLayout,
    MixtureLayout,
    MLPLayout,
    Shape,
)
from constrain.model.sharding import ShardingPlan


@dataclass(frozen=True)
class Slice:
    """The part of a tensor that belongs to a shard.

    Attributes:
        shape: of the whole tensor.
        dim: the dimension that is split.
        ranges: indices in that dimension, one range after the other.
        by_inputs: whether that dimension is the inputs of a weight.
    """

    shape: Shape
    dim: int
    ranges: tuple[range, ...]
    by_inputs: bool = False

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return this part of a tensor."""
        return torch.cat([tensor.narrow(self.dim, each.start, len(each)) for each in self.ranges], self.dim)


Slices = dict[str, Slice]
"""Parts by the names of tensors; a shard has the whole of those that are not named."""


class LayerSharder:
    """Makes the layout of a shard from that of a layer.

    Attributes:
        slices: parts of the tensors of the layer.
    """

    def __init__(self, config: ExLlamaV2Config, plan: ShardingPlan, index: int, shard: int) -> None:
        """Describe shard number ``shard`` of layer number ``index``."""
        self.slices: Slices = {}
        self._config, self._shares = config, plan.layers[index]
        self._shard = shard
        self.heads, self.kv_heads = self._shares.heads[shard], self._shares.kv_heads[shard]

    def layout(self, layer: LayerLayout) -> LayerLayout:
        """Return the layout of the shard."""
        inner, config = layer.feed_forward, self._config
        value = layer.output.inputs // config.num_attention_heads
        norm_shapes = layer.head_norm_shapes
        if len(norm_shapes[0]) > 1:
            self._slice_heads(layer.query_norm, norm_shapes[0], self.heads)
            self._slice_heads(layer.key_norm, norm_shapes[1], self.kv_heads)
            norm_shapes = ((len(self.heads), norm_shapes[0][1]), (len(self.kv_heads), norm_shapes[1][1]))
        if layer.sinks:
            self.slices[layer.sinks] = Slice((config.num_attention_heads,), 0, (self.heads,))
        return replace(
            layer,
            qkv=self._qkv(layer.qkv),
            output=self._last(layer.output, _scaled(self.heads, value), self._shares.attention_outputs),
            head_norm_shapes=norm_shapes,
            feed_forward=self._mixture(inner) if isinstance(inner, MixtureLayout) else self._mlp(inner),
            latent=self._latent(layer.latent) if layer.latent else None,
        )

    def _qkv(self, qkv: LinearLayout) -> LinearLayout:
        latent = self._config.latent
        if latent:
            queries = range(latent.query_rank) if latent.query_rank else _scaled(self.heads, latent.query)
            return self._rows(qkv, (queries, range(latent.stored)))
        queries, keys = (_scaled(heads, self._config.head_dim) for heads in (self.heads, self.kv_heads))
        return self._rows(qkv, (queries, keys, keys))

    def _latent(self, layout: LatentLayout) -> LatentLayout:
        latent = self._config.latent
        assert latent is not None
        query = layout.query and self._rows(layout.query, (_scaled(self.heads, latent.query),))
        expand = self._rows(layout.expand, (_scaled(self.heads, latent.plain + latent.value),))
        return replace(layout, expand=expand, query=query)

    def _mlp(self, mlp: MLPLayout) -> MLPLayout:
        return self._split_mlp(mlp, self._shares.inner[self._shard])

    def _split_mlp(self, mlp: MLPLayout, inner: range) -> MLPLayout:
        return MLPLayout(
            self._rows(mlp.gate_up, (inner,) * len(mlp.gate_up.keys)),
            self._last(mlp.down, inner, self._shares.mlp_outputs),
        )

    def _mixture(self, mixture: MixtureLayout) -> MixtureLayout:
        inner, outputs = self._shares.inner[self._shard], self._shares.mlp_outputs
        if outputs is None:
            down = self._expert_columns(mixture.down, inner)
        else:
            down = self._expert_rows(mixture.down, (outputs[self._shard],))
        return replace(
            mixture,
            gate_up=self._expert_rows(mixture.gate_up, (inner, inner)),
            down=down,
            shared=self._split_mlp(mixture.shared, self._shares.shared[self._shard]) if mixture.shared else None,
        )

    def _last(self, linear: LinearLayout, inputs: range, outputs: tuple[range, ...] | None) -> LinearLayout:
        """Split the last product of a half layer by its outputs if these are given, else by its inputs."""
        return self._columns(linear, inputs) if outputs is None else self._rows(linear, (outputs[self._shard],))

    def _rows(self, linear: LinearLayout, rows: tuple[range, ...]) -> LinearLayout:
        """Split by outputs, given those of each projection."""
        for key, outputs, own in zip(linear.keys, linear.outputs, rows, strict=True):
            self._slice_rows(key, (outputs, linear.inputs), (own,))
        if linear.fused:
            starts = [0, *accumulate(linear.outputs)]
            moved = tuple(range(start + own.start, start + own.stop) for start, own in zip(starts, rows, strict=False))
            self._slice_rows(linear.fused, (sum(linear.outputs), linear.inputs), moved)
        return replace(linear, outputs=tuple(len(own) for own in rows))

    def _slice_rows(self, key: str, shape: tuple[int, int], rows: tuple[range, ...]) -> None:
        self.slices[f"{key}.weight"] = Slice(shape, 0, rows)
        self.slices[f"{key}.bias"] = Slice(shape[:1], 0, rows)

    def _columns(self, linear: LinearLayout, inputs: range) -> LinearLayout:
        """Split by inputs; the bias is added once."""
        for key, outputs in zip(linear.keys, linear.outputs, strict=True):
            self.slices[f"{key}.weight"] = Slice((outputs, linear.inputs), 1, (inputs,), by_inputs=True)
        return replace(linear, inputs=len(inputs), bias=linear.bias and _is_first(inputs))

    def _expert_rows(self, linear: ExpertLinearLayout, rows: tuple[range, ...]) -> ExpertLinearLayout:
        if linear.stacked:
            stored = _stacked_rows(linear, rows)
            self.slices[linear.stacked] = Slice(linear.stored_shape, 2 if linear.transposed else 1, stored)
            if linear.bias:
                self.slices[linear.bias] = Slice(linear.shape[:2], 1, stored)
        return replace(linear, experts=tuple(self._rows(expert, rows) for expert in linear.experts))

    def _expert_columns(self, linear: ExpertLinearLayout, inputs: range) -> ExpertLinearLayout:
        if linear.stacked:
            dim = 1 if linear.transposed else 2
            self.slices[linear.stacked] = Slice(linear.stored_shape, dim, (inputs,), by_inputs=True)
        experts = tuple(self._columns(expert, inputs) for expert in linear.experts)
        return replace(linear, experts=experts, bias=linear.bias if _is_first(inputs) else None)

    def _slice_heads(self, norm: str | None, shape: Shape, heads: range) -> None:
        self.slices[f"{norm}.weight"] = Slice(shape, 0, (heads,))


def _is_first(part: range) -> bool:
    """Return whether a part of the inputs is the first that is not empty."""
    return part.start == 0 and len(part) > 0


def _scaled(part: range, factor: int) -> range:
    return range(part.start * factor, part.stop * factor)


def _stacked_rows(linear: ExpertLinearLayout, rows: Sequence[range]) -> tuple[range, ...]:
    """Return the rows of each projection as rows of the stacked tensor."""
    if linear.alternating:
        return (_scaled(rows[0], len(rows)),)
    starts = [0, *accumulate(linear.experts[0].outputs)]
    return tuple(range(start + own.start, start + own.stop) for start, own in zip(starts, rows, strict=False))
