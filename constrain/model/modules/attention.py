"""Attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from constrain.kernels import RowNorm
from constrain.model.forward_context import AttentionLayer, ForwardContext
from constrain.model.layout import LayerLayout
from constrain.model.modules.half_layer import HalfLayer, Inner
from constrain.model.modules.module import Linear
from constrain.model.modules.norms import RMSNorm, fused_norm
from constrain.model.tensor_reader import TensorSource


class Attention(HalfLayer):
    """Norm, projections, rotation, attention over the KV cache, and residual sum."""

    def __init__(
        self,
        layer: LayerLayout,
        index: int,
        norms: dict[str, RMSNorm],
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        cap: float | None,
        interleaved: int = 0,
    ) -> None:
        """Build from a layout; ``interleaved`` is the number of features that are rotated in pairs of neighbours."""
        super().__init__(layer.attention)
        self.interleaved = interleaved
        self.index, self.head_dim = index, head_dim
        self.layer = AttentionLayer(index, heads, kv_heads, layer.sliding, scale, cap, layer.rotary)
        self.norm = norms.get(layer.attention_norm or "")
        self.post_norm = norms.get(layer.attention_post_norm or "")
        self.head_norms = [norms[name] for name in (layer.query_norm, layer.key_norm) if name]
        self.qkv, self.output = Linear(layer.qkv), Linear(layer.output)
        self.head_norm_weight: torch.Tensor | None = None
        self.sinks = layer.sinks

    def weights(self) -> Iterator[tuple[list[str], int]]:
        norm = self.norm or self.post_norm
        for part in (norm, norm, self.qkv, self.output):
            if part is not None:
                yield from part.weights()
        if self.sinks:
            yield [self.sinks], self.layer.heads

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        yield from self.qkv.submodules()
        yield from self.output.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        for part in (self.norm, self.post_norm, *self.head_norms, self.qkv, self.output):
            if part is not None:
                part.load(source, self.device, dtype)
        if self.head_norms and self.head_norms[0].shape[-1] == self.head_dim:
            # One weight for queries and keys, so that they are normalised in one kernel.
            query, key = (norm.weight for norm in self.head_norms)
            counts = (self.layer.heads, self.layer.kv_heads)
            self.head_norm_weight = torch.cat((query.expand(counts[0], -1), key.expand(counts[1], -1)))
        if self.sinks:
            sinks = torch.empty(self.layer.heads, device=self.device)
            source.copy(self.sinks, sinks)
            self.layer = replace(self.layer, sinks=sinks)

    def inner(self, x: torch.Tensor, context: ForwardContext) -> Inner:
        return Inner((self.attended(x, context, fused_norm(self.norm)),))

    def outer(
        self, inner: Inner, x: torch.Tensor, context: ForwardContext, residual: torch.Tensor | None
    ) -> torch.Tensor:
        return self.output.forward(inner.split[0], context, residual=residual)

    def attended(self, x: torch.Tensor, context: ForwardContext, norm: RowNorm | None) -> torch.Tensor:
        """Return the values ``[batch, width, heads * head_dim]`` that the queries of ``norm(x)`` attend to."""
        normed = self.layer.heads + self.layer.kv_heads
        qkv = self.qkv.forward(x, context, norm=norm)
        qkv = qkv.view(*x.shape[:2], normed + self.layer.kv_heads, self.head_dim)
        if self.head_norm_weight is not None:
            self.head_norms[0].normalise_heads(qkv.narrow(2, 0, normed), self.head_norm_weight)
        elif self.head_norms:
            self._norm_all_heads(qkv, context)
        self.pair_halves(qkv)
        return context.attention.attend(self.layer, qkv)

    def pair_halves(self, qkv: torch.Tensor) -> None:
        """Order features of queries and keys that are rotated in pairs of neighbours as pairs of halves, in place."""
        if self.interleaved:
            pairs = qkv.narrow(2, 0, self.layer.heads + self.layer.kv_heads)[..., : self.interleaved]
            pairs.copy_(pairs.reshape(*pairs.shape[:-1], -1, 2).transpose(-1, -2).flatten(-2))

    def _norm_all_heads(self, qkv: torch.Tensor, context: ForwardContext) -> None:
        """Normalise the features of all query heads together, and of all key heads, in place."""
        counts = [self.layer.heads, self.layer.kv_heads, self.layer.kv_heads]
        for norm, heads in zip(self.head_norms, torch.split(qkv, counts, dim=2), strict=False):
            heads.copy_(norm.forward(heads.flatten(2), context).view(heads.shape))
