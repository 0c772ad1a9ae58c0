"""The layers of a model: weights and forward passes.

A module is built from the layout of its tensors, without weights; :meth:`Module.load` loads them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from constrain.errors import GenerationError
from constrain.kernels import (
    Activation,
    LowRankUpdate,
    RowNorm,
    Weight,
    activated,
    gated_linear,
    join_weights,
    layer_norm,
    linear,
    multiplies_packed,
    rms_norm,
    soft_cap,
)
from constrain.model.embeddings import EMBEDDING_INDEX, IndexedEmbeddings
from constrain.model.forward_context import Adapter, AttentionLayer, ForwardContext
from constrain.model.layout import LayerLayout, LinearLayout, MLPLayout, Shape
from constrain.model.tensor_reader import TensorSource

PADDING_LOGIT = -65504.0
"""Logit of the columns that pad a vocabulary; the most negative float16."""

# Kernels read rows of 8 elements at a time.
_RANK_MULTIPLE = 8


class Module(ABC):
    """A part of a model that maps states ``[batch, width, hidden]`` to states.

    Attributes:
        key: name in the files.
        device: device of weights and computation, once loaded.
        capturable: whether :meth:`forward` can be captured in a CUDA graph.
    """

    capturable = True

    def __init__(self, key: str) -> None:
        self.key = key
        self.device = torch.device("cpu")

    def load(self, source: TensorSource, device: torch.device, dtype: torch.dtype) -> None:
        """Load the weights to ``device`` as ``dtype``."""
        self.device = device
        self._load(source, dtype)

    @abstractmethod
    def _load(self, source: TensorSource, dtype: torch.dtype) -> None: ...

    @abstractmethod
    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor: ...

    @abstractmethod
    def weights(self) -> Iterator[tuple[list[str], int]]:
        """Tensors in memory: the names of those in the files whose form they may keep, and the numbers of elements."""

    def parameters(self) -> int:
        """Number of weights."""
        return sum(count for _, count in self.weights())

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        """The linear layers inside, by the names of their projections."""
        return iter(())


class RMSNorm(Module):
    """RMS norm of the last dimension, with the weight ``(stored + offset) * scale`` of ``shape``."""

    def __init__(self, key: str, shape: Shape, eps: float, offset: float = 0.0, scale: float = 1.0) -> None:
        super().__init__(key)
        self.shape, self.eps, self.offset, self.scale = shape, eps, offset, scale
        self.weight = torch.empty(0)

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield [f"{self.key}.weight"], math.prod(self.shape)

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        weight = torch.empty(self.shape, dtype=torch.float, device=self.device)
        source.copy(f"{self.key}.weight", weight)
        self.weight = ((weight + self.offset) * self.scale).to(dtype)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)

    def unweighted(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise without the weight."""
        return rms_norm(x, None, self.eps)

    @property
    def fused(self) -> RowNorm:
        """The parameters of this norm, for fusion with a matrix product."""
        return RowNorm(self.weight, self.eps)


class UnitNorm(RMSNorm):
    """RMS norm without a weight."""

    def weights(self) -> Iterator[tuple[list[str], int]]:
        return iter(())

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.weight = torch.ones(self.shape, dtype=dtype, device=self.device)


class LayerNorm(RMSNorm):
    """Layer norm of the last dimension; as RMS norm, but of ``x`` less its mean, and with a bias if ``biased``."""

    def __init__(self, key: str, shape: Shape, eps: float, biased: bool, scale: float = 1.0) -> None:
        super().__init__(key, shape, eps, scale=scale)
        self.biased = biased
        self.bias: torch.Tensor | None = None

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield from super().weights()
        if self.biased:
            yield [f"{self.key}.bias"], math.prod(self.shape)

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        super()._load(source, dtype)
        if self.biased:
            bias = torch.empty(self.shape, dtype=torch.float, device=self.device)
            source.copy(f"{self.key}.bias", bias)
            self.bias = (bias * self.scale).to(dtype)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)

    def unweighted(self, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, None, None, self.eps)

    @property
    def fused(self) -> RowNorm:
        return RowNorm(self.weight, self.eps, self.bias, centred=True)


class Linear(Module):
    """One or more projections of the same input as one matrix product, with their adapters."""

    def __init__(self, layout: LinearLayout) -> None:
        super().__init__(layout.fused or layout.keys[0])
        self.layout = layout
        self.weight: Weight = torch.empty(0)
        self.bias: torch.Tensor | None = None
        self._adapters: dict[Adapter, list[tuple[slice, torch.Tensor, torch.Tensor]]] = {}
        self._merged: dict[tuple[Adapter, ...], LowRankUpdate | None] = {}

    def weights(self) -> Iterator[tuple[list[str], int]]:
        names, rows = [name for name, _ in self.layout.parts()], sum(self.layout.outputs)
        yield [f"{name}.weight" for name in names], rows * self.layout.inputs
        if self.layout.bias:
            yield [f"{name}.bias" for name in names], rows

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        names = [*self.layout.keys, self.layout.fused] if self.layout.fused else self.layout.keys
        yield from ((name, self) for name in names)

    def rows_of(self, key: str) -> slice:
        """Output features of the projection ``key``; all of them for the name of the fused tensor."""
        if key == self.layout.fused:
            return slice(0, sum(self.layout.outputs))
        number = self.layout.keys.index(key)
        start = sum(self.layout.outputs[:number])
        return slice(start, start + self.layout.outputs[number])

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        rows = sum(self.layout.outputs)
        parts = dict(self.layout.parts())
        self.weight = load_weight(source, parts, rows, self.layout.inputs, dtype, self.device)
        if self.layout.bias:
            self.bias = torch.empty(rows, dtype=dtype, device=self.device)
            for key, target in zip(parts, torch.split(self.bias, [*parts.values()]), strict=True):
                source.copy(f"{key}.bias", target)

    def forward(
        self,
        x: torch.Tensor,
        context: ForwardContext,
        residual: torch.Tensor | None = None,
        norm: RMSNorm | None = None,
    ) -> torch.Tensor:
        """Compute ``norm(x) @ weight.T + bias + residual``, plus the products of adapters."""
        fused = None if norm is None else norm.fused
        return linear(x, self.weight, self.bias, residual, fused, self.update(context), context.workspace)

    def attach(self, adapter: Adapter, key: str, down: torch.Tensor, up: torch.Tensor) -> None:
        """Add ``x @ down.T @ up.T`` to the projection ``key`` when ``adapter`` is active.

        Args:
            adapter: the adapter.
            key: name of the projection, or of the fused tensor.
            down: ``[r, k]``, of the dtype and on the device of the weight.
            up: ``[n, r]``, likewise; with its scaling.
        """
        self._adapters.setdefault(adapter, []).append((self.rows_of(key), down, up))

    def detach(self, adapter: Adapter) -> None:
        """Remove an adapter; no effect if it is not attached."""
        self._adapters.pop(adapter, None)
        self._merged = {active: merged for active, merged in self._merged.items() if adapter not in active}

    def update(self, context: ForwardContext) -> LowRankUpdate | None:
        """Return the sum of the active adapters of this layer; ``None`` if there are none."""
        if not self._adapters or not context.loras:
            return None
        active = tuple(context.loras)
        if active not in self._merged:
            self._merged[active] = self._merge([each for lora in active for each in self._adapters.get(lora, ())])
        return self._merged[active]

    def _merge(self, parts: list[tuple[slice, torch.Tensor, torch.Tensor]]) -> LowRankUpdate | None:
        if not parts:
            return None
        rank = sum(down.shape[0] for _, down, _ in parts)
        padded = -(-rank // _RANK_MULTIPLE) * _RANK_MULTIPLE
        _, down, up = parts[0]
        merged = LowRankUpdate(
            down.new_zeros(padded, self.layout.inputs), up.new_zeros(sum(self.layout.outputs), padded)
        )
        start = 0
        for rows, down, up in parts:
            merged.down[start : start + down.shape[0]] = down
            merged.up[rows, start : start + down.shape[0]] = up
            start += down.shape[0]
        if self.device.type == "cuda":
            # Products may read weights before the work that was queued just before them has ended.
            torch.cuda.current_stream(self.device).synchronize()
        return merged


class Embedding(Module):
    """Embedding of token ids, with ``padded_size`` rows, so that a tied head can share its weight."""

    def __init__(self, key: str, size: int, padded_size: int, hidden_size: int, scale: float) -> None:
        super().__init__(key)
        self.size, self.padded_size, self.hidden_size, self.scale = size, padded_size, hidden_size, scale
        self.weight: Weight = torch.empty(0)
        self.dtype = torch.float32

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield [f"{self.key}.weight"], self.padded_size * self.hidden_size

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.weight = load_weight(source, {self.key: self.size}, self.padded_size, self.hidden_size, dtype, self.device)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute states ``[batch, width, hidden]`` from ids ``[batch, width]``.

        Ids on the CPU are checked: negative ones are padding and read as id 0, and indexed embeddings are looked up.
        Ids on a GPU are trusted to be tokens, since a check would synchronise with the device.
        """
        if x.device.type == "cpu":
            low, high = (int(bound) for bound in x.aminmax())
            if high >= EMBEDDING_INDEX:
                return self._with_indexed(x, context)
            if high >= self.size:
                raise GenerationError(f"token id {high} is outside the model's vocabulary of {self.size}")
            x = x.clamp(min=0) if low < 0 else x
        x = x.to(self.device)
        replaced = context.loras[0].embed_tokens if context.loras else None
        weight = self.weight if replaced is None else replaced
        if isinstance(weight, torch.Tensor):
            states = torch.nn.functional.embedding(x, weight)
        else:
            states = weight.dequantized(x, self.dtype)
        return states if self.scale == 1.0 else states * self.scale

    def _with_indexed(self, ids: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        tokens = ids < EMBEDDING_INDEX
        states = self.forward(ids.where(tokens, 0), context)
        for block in context.embeddings:
            states[_within(ids, block).to(self.device)] = _rows(ids, block).to(self.device, states.dtype)
            tokens |= _within(ids, block)
        if not tokens.all():
            missing = int(ids[~tokens][0])
            raise GenerationError(f"id {missing} is in none of the {len(context.embeddings)} indexed embeddings given")
        return states


def _within(ids: torch.Tensor, block: IndexedEmbeddings) -> torch.Tensor:
    return (ids >= block.first_index) & (ids < block.first_index + block.length)


def _rows(ids: torch.Tensor, block: IndexedEmbeddings) -> torch.Tensor:
    return block.embeddings[(ids[_within(ids, block)] - block.first_index).to(block.embeddings.device)]


@dataclass(frozen=True)
class Inner:
    """Features inside a half layer, between its first products and its last.

    Attributes:
        split: features ``[..., n]``, which a shard of the half layer has a part of.
        whole: what all shards have alike.
    """

    split: tuple[torch.Tensor, ...]
    whole: tuple[torch.Tensor, ...] = ()


class HalfLayer(Module):
    """A function of the states that is added to them, and perhaps normalised before.

    It has two steps, so that several GPUs can share its work: :meth:`inner` computes features, of which every GPU may
    have some, and :meth:`outer` what these add to the states, the sum of which over the GPUs :meth:`finish` takes.
    """

    post_norm: RMSNorm | None

    @abstractmethod
    def inner(self, x: torch.Tensor, context: ForwardContext) -> Inner:
        """Compute the features from states ``[batch, width, hidden]``."""

    @abstractmethod
    def outer(
        self, inner: Inner, x: torch.Tensor, context: ForwardContext, residual: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute what features add to the states ``x``, plus ``residual``: ``[batch, width, hidden]``."""

    def added(self, x: torch.Tensor, context: ForwardContext, residual: torch.Tensor | None) -> torch.Tensor:
        """Compute both steps at once; ``residual`` may be ``x``, which may be overwritten then."""
        return self.outer(self.inner(x, context), x, context, residual)

    def finish(self, y: torch.Tensor, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute the new states from those before, ``x``, and the result of :meth:`outer`.

        That has ``x`` as its residual already if there is no norm.
        """
        return y if self.post_norm is None else self.post_norm.forward(y, context).add_(x)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        residual = x if self.post_norm is None else None
        return self.finish(self.added(x, context, residual), x, context)


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
        return Inner((self.attended(x, context, self.norm),))

    def outer(
        self, inner: Inner, x: torch.Tensor, context: ForwardContext, residual: torch.Tensor | None
    ) -> torch.Tensor:
        return self.output.forward(inner.split[0], context, residual=residual)

    def attended(self, x: torch.Tensor, context: ForwardContext, norm: RMSNorm | None) -> torch.Tensor:
        """Return the values ``[batch, width, heads * head_dim]`` that the queries of ``norm(x)`` attend to."""
        normed = self.layer.heads + self.layer.kv_heads
        qkv = self.qkv.forward(x, context, norm=norm)
        qkv = qkv.view(*x.shape[:2], normed + self.layer.kv_heads, self.head_dim)
        if self.head_norm_weight is not None:
            qk = qkv.narrow(2, 0, normed)
            qk.copy_(self.head_norms[0].unweighted(qk) * self.head_norm_weight)
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


class GatedMLP(Module):
    """Gate, up and down projection."""

    def __init__(self, key: str, layout: MLPLayout, activation: Activation) -> None:
        super().__init__(key)
        self.gate_up, self.down = Linear(layout.gate_up), Linear(layout.down)
        self.activation = activation

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield from self.gate_up.weights()
        yield from self.down.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        yield from self.gate_up.submodules()
        yield from self.down.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.gate_up.load(source, self.device, dtype)
        self.down.load(source, self.device, dtype)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute ``down(act(gate(x)) * up(x))``."""
        return self.down.forward(self.inner(x, context), context)

    def inner(self, x: torch.Tensor, context: ForwardContext, norm: RMSNorm | None = None) -> torch.Tensor:
        """Compute ``act(gate(norm(x))) * up(norm(x))``."""
        weight, bias, update = self.gate_up.weight, self.gate_up.bias, self.gate_up.update(context)
        fused = None if norm is None else norm.fused
        return gated_linear(x, weight, bias, self.activation, fused, update, context.workspace)


class PlainMLP(GatedMLP):
    """Up and down projection, without a gate: ``down(act(up(norm(x)))) + residual``."""

    def inner(self, x: torch.Tensor, context: ForwardContext, norm: RMSNorm | None = None) -> torch.Tensor:
        return activated(self.gate_up.forward(x, context, norm=norm), self.activation)


def make_mlp(key: str, layout: MLPLayout, activation: Activation) -> GatedMLP:
    """Build the projections of an MLP, with a gate or without."""
    return (GatedMLP if layout.gated else PlainMLP)(key, layout, activation)


class MLP(HalfLayer):
    """Norm, gated MLP, and residual sum."""

    def __init__(
        self, layer: LayerLayout, layout: MLPLayout, norms: dict[str, RMSNorm], activation: Activation
    ) -> None:
        super().__init__(layer.mlp)
        self.norm, self.post_norm = norms.get(layer.mlp_norm or ""), norms.get(layer.mlp_post_norm or "")
        self.mlp = make_mlp(layer.mlp, layout, activation)

    def weights(self) -> Iterator[tuple[list[str], int]]:
        norm = self.norm or self.post_norm
        for part in (norm, norm, self.mlp):
            if part is not None:
                yield from part.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        return self.mlp.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        for part in (self.norm, self.post_norm, self.mlp):
            if part is not None:
                part.load(source, self.device, dtype)

    def inner(self, x: torch.Tensor, context: ForwardContext) -> Inner:
        return Inner((self.mlp.inner(x, context, self.norm),))

    def outer(
        self, inner: Inner, x: torch.Tensor, context: ForwardContext, residual: torch.Tensor | None
    ) -> torch.Tensor:
        return self.mlp.down.forward(inner.split[0], context, residual=residual)


class ParallelLayer(Attention):
    """Attention and MLP of the same norm of the input, both added to it, as of GPT-J (Wang and Komatsuzaki 2021)."""

    def __init__(self, mlp: GatedMLP, *args: Any, **kwargs: Any) -> None:
        """Build from an MLP and the arguments of :class:`Attention`."""
        super().__init__(*args, **kwargs)
        self.mlp = mlp

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield from super().weights()
        yield from self.mlp.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        yield from super().submodules()
        yield from self.mlp.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        super()._load(source, dtype)
        self.mlp.load(source, self.device, dtype)

    def inner(self, x: torch.Tensor, context: ForwardContext) -> Inner:
        assert self.norm is not None
        normed = self.norm.forward(x, context)
        return Inner((self.attended(normed, context, None), self.mlp.inner(normed, context)))

    def outer(
        self, inner: Inner, x: torch.Tensor, context: ForwardContext, residual: torch.Tensor | None
    ) -> torch.Tensor:
        attended, features = inner.split
        return self.mlp.down.forward(features, context, residual=self.output.forward(attended, context, residual))


class Head(Module):
    """Projection of states to logits ``[batch, width, padded_size]``."""

    def __init__(
        self, key: str, size: int, padded_size: int, hidden_size: int, cap: float | None, tied: Embedding | None
    ) -> None:
        super().__init__(key)
        self.size, self.padded_size, self.hidden_size, self.cap, self.tied = size, padded_size, hidden_size, cap, tied
        self.weight: Weight = torch.empty(0)

    def weights(self) -> Iterator[tuple[list[str], int]]:
        if self.tied is None:
            yield [f"{self.key}.weight"], self.padded_size * self.hidden_size

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        if self.tied is None:
            self.weight = load_weight(
                source, {self.key: self.size}, self.padded_size, self.hidden_size, dtype, self.device
            )
        else:
            self.weight = self.tied.weight.to(self.device)

    def forward(self, x: torch.Tensor, context: ForwardContext, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Compute logits ``[..., padded_size]`` from states; of int64 ``tokens`` ``[n]`` alone, ``[..., n]``."""
        replaced = context.loras[0].lm_head if context.loras else None
        weight = self.weight if replaced is None else replaced
        if tokens is not None:
            # The product prefetches its weight before the previous kernel has ended, so that must not be the one that
            # writes the weight: the copy of x runs in between.
            gathered = weight[tokens]
            return self._capped(linear(x.clone(), gathered))
        logits = self._capped(linear(x, weight))
        if self.padded_size > self.size:
            logits[..., self.size :] = PADDING_LOGIT
        return logits

    def _capped(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if self.cap is None else soft_cap(logits, self.cap)


def load_weight(
    source: TensorSource, parts: dict[str, int], rows: int, inputs: int, dtype: torch.dtype, device: torch.device
) -> Weight:
    """Load the weights of some layers, by their numbers of rows, as one of ``rows`` rows, the last of them zeros.

    Those that are stored packed stay so if ``device`` multiplies them.
    """
    if multiplies_packed(device, dtype):
        found = [source.packed(f"{key}.weight", (count, inputs), device) for key, count in parts.items()]
        if any(weight is not None for weight in found):
            each = zip(parts.items(), found, strict=True)
            weights = [
                load_plain(source, {key: count}, count, inputs, dtype, device) if weight is None else weight
                for (key, count), weight in each
            ]
            return join_weights(weights, rows, dtype)
    return load_plain(source, parts, rows, inputs, dtype, device)


def load_plain(
    source: TensorSource, parts: dict[str, int], rows: int, inputs: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Load weights as :func:`load_weight` does, but dequantise all of them."""
    weight = torch.zeros(rows, inputs, dtype=dtype, device=device)
    copy_rows(source, parts, weight)
    return weight


def copy_rows(source: TensorSource, parts: dict[str, int], weight: torch.Tensor) -> None:
    """Fill the first rows of ``weight`` with the weights of some layers, by their numbers of rows."""
    start = 0
    for key, count in parts.items():
        source.copy(f"{key}.weight", weight[start : start + count])
        start += count


def find_linear(modules: Sequence[Module]) -> dict[str, Linear]:
    """Return the linear layers of a model by the names of their projections."""
    return {key: found for module in modules for key, found in module.submodules()}
