"""The layers of a model: what they hold, and what they do with the states that pass through.

A module is built from the layout of its tensors, without memory; :meth:`Module.load` brings the weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from constrain.errors import GenerationError
from constrain.kernels import (
    Activation,
    RowNorm,
    gated_activation,
    gated_linear,
    linear,
    low_rank,
    paged_attention,
    rms_norm,
    rotate,
    soft_cap,
)
from constrain.model.embeddings import EMBEDDING_INDEX, IndexedEmbeddings
from constrain.model.layout import LayerLayout, LinearLayout
from constrain.model.step import Step
from constrain.model.tensor_reader import TensorSource

if TYPE_CHECKING:
    from constrain.model.decode import DecodeStep
    from constrain.model.lora import ExLlamaV2Lora

PADDING_LOGIT = -65504.0
"""Logit of the columns that only round a vocabulary up; the most negative float16."""


class Module(ABC):
    """A part of a model that turns states ``[batch, width, hidden]`` into states.

    Attributes:
        key: name, as in the files.
        device: where it computes, once loaded.
        decodes: whether :meth:`decode` does all that :meth:`forward` does.
    """

    decodes = True

    def __init__(self, key: str) -> None:
        self.key = key
        self.device = torch.device("cpu")

    def load(self, source: TensorSource, device: torch.device, dtype: torch.dtype) -> None:
        """Bring the weights to ``device`` as ``dtype``."""
        self.device = device
        self._load(source, dtype)

    @abstractmethod
    def _load(self, source: TensorSource, dtype: torch.dtype) -> None: ...

    @abstractmethod
    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor: ...

    @abstractmethod
    def decode(self, x: torch.Tensor, step: DecodeStep) -> torch.Tensor:
        """:meth:`forward` for the last tokens of many sequences over pages, without adapters and without the host."""

    @abstractmethod
    def parameters(self) -> int:
        """Number of weights."""

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        """Linear layers inside by the name of each of their projections."""
        return iter(())


class RMSNorm(Module):
    """RMS norm of the last dimension."""

    def __init__(self, key: str, size: int, eps: float, offset: float) -> None:
        super().__init__(key)
        self.size, self.eps, self.offset = size, eps, offset
        self.weight = torch.empty(0)

    def parameters(self) -> int:
        return self.size

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        weight = torch.empty(self.size, dtype=torch.float, device=self.device)
        source.copy(f"{self.key}.weight", weight)
        self.weight = (weight + self.offset).to(dtype)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)

    def decode(self, x: torch.Tensor, step: DecodeStep) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)

    @property
    def of_rows(self) -> RowNorm:
        """This norm as the first part of a product."""
        return RowNorm(self.weight, self.eps)


class Linear(Module):
    """One product for one or more projections of the same input, with their adapters."""

    def __init__(self, layout: LinearLayout) -> None:
        super().__init__(layout.fused or layout.keys[0])
        self.layout = layout
        self.weight = torch.empty(0)
        self.bias: torch.Tensor | None = None
        self.adapters: dict[ExLlamaV2Lora, list[tuple[slice, torch.Tensor, torch.Tensor]]] = {}

    def parameters(self) -> int:
        return sum(self.layout.outputs) * (self.layout.inputs + self.layout.bias)

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        names = [*self.layout.keys, self.layout.fused] if self.layout.fused else self.layout.keys
        yield from ((name, self) for name in names)

    def rows_of(self, key: str) -> slice:
        """Output features of the projection ``key``; of all for the name that the file has for them."""
        if key == self.layout.fused:
            return slice(0, sum(self.layout.outputs))
        number = self.layout.keys.index(key)
        start = sum(self.layout.outputs[:number])
        return slice(start, start + self.layout.outputs[number])

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        rows = sum(self.layout.outputs)
        self.weight = torch.empty(rows, self.layout.inputs, dtype=dtype, device=self.device)
        self.bias = torch.empty(rows, dtype=dtype, device=self.device) if self.layout.bias else None
        start = 0
        for key, count in self.layout.parts():
            source.copy(f"{key}.weight", self.weight[start : start + count])
            if self.bias is not None:
                source.copy(f"{key}.bias", self.bias[start : start + count])
            start += count

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        y = linear(x, self.weight, self.bias)
        for lora in step.loras:
            for rows, down, up in self.adapters.get(lora, ()):
                y[..., rows] += low_rank(x, down, up)
        return y

    def decode(
        self,
        x: torch.Tensor,
        step: DecodeStep,
        residual: torch.Tensor | None = None,
        norm: RMSNorm | None = None,
    ) -> torch.Tensor:
        return linear(x, self.weight, self.bias, residual, None if norm is None else norm.of_rows)


class Embedding(Module):
    """Token ids to states; has ``padded_size`` rows, so that a tied head may use them all."""

    def __init__(self, key: str, size: int, padded_size: int, hidden_size: int, scale: float) -> None:
        super().__init__(key)
        self.size, self.padded_size, self.hidden_size, self.scale = size, padded_size, hidden_size, scale
        self.weight = torch.empty(0)

    def parameters(self) -> int:
        return self.padded_size * self.hidden_size

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.weight = load_padded(source, self.key, self.size, self.padded_size, self.hidden_size, dtype, self.device)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """States of ids ``[batch, width]``: negative ones are padding and look like id 0."""
        low, high = (int(bound) for bound in x.aminmax())
        if high >= EMBEDDING_INDEX:
            return self._with_indexed(x, step)
        if high >= self.size:
            raise GenerationError(f"token id {high} is outside the model's vocabulary of {self.size}")
        ids = (x.clamp(min=0) if low < 0 else x).to(self.device)
        replaced = step.loras[0].embed_tokens if step.loras else None
        states = torch.nn.functional.embedding(ids, self.weight if replaced is None else replaced)
        return states if self.scale == 1.0 else states * self.scale

    def decode(self, x: torch.Tensor, step: DecodeStep) -> torch.Tensor:
        """States ``[rows, width, hidden]`` of valid ids ``[rows, width]``."""
        states = torch.nn.functional.embedding(x, self.weight)
        return states if self.scale == 1.0 else states * self.scale

    def _with_indexed(self, ids: torch.Tensor, step: Step) -> torch.Tensor:
        tokens = ids < EMBEDDING_INDEX
        states = self.forward(ids.where(tokens, 0), step)
        for block in step.embeddings:
            states[_within(ids, block).to(self.device)] = _rows(ids, block).to(self.device, states.dtype)
            tokens |= _within(ids, block)
        if not tokens.all():
            missing = int(ids[~tokens][0])
            raise GenerationError(f"id {missing} is in none of the {len(step.embeddings)} indexed embeddings given")
        return states


def _within(ids: torch.Tensor, block: IndexedEmbeddings) -> torch.Tensor:
    return (ids >= block.first_index) & (ids < block.first_index + block.length)


def _rows(ids: torch.Tensor, block: IndexedEmbeddings) -> torch.Tensor:
    return block.embeddings[(ids[_within(ids, block)] - block.first_index).to(block.embeddings.device)]


class Attention(Module):
    """Norm, projections, rotation, attention over the cache, and the residual sum."""

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
    ) -> None:
        super().__init__(layer.attention)
        self.layer, self.index = layer, index
        self.heads, self.kv_heads, self.head_dim, self.scale, self.cap = heads, kv_heads, head_dim, scale, cap
        self.norm = norms[layer.attention_norm]
        self.post_norm = norms.get(layer.attention_post_norm or "")
        self.head_norms = [norms[name] for name in (layer.query_norm, layer.key_norm) if name]
        self.qkv, self.output = Linear(layer.qkv), Linear(layer.output)
        self.head_norm_weight: torch.Tensor | None = None

    def parameters(self) -> int:
        return self.norm.parameters() * 2 + self.qkv.parameters() + self.output.parameters()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        yield from self.qkv.submodules()
        yield from self.output.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        for part in (self.norm, self.post_norm, *self.head_norms, self.qkv, self.output):
            if part is not None:
                part.load(source, self.device, dtype)
        if self.head_norms:
            # Queries and keys are normalised together, each head by its own weight.
            query, key = (norm.weight for norm in self.head_norms)
            self.head_norm_weight = torch.cat((query.expand(self.heads, -1), key.expand(self.kv_heads, -1)))

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        batch, width, _ = x.shape
        heads, turned = self.heads, self.heads + self.kv_heads
        qkv = self.qkv.forward(self.norm.forward(x, step), step)
        qkv = qkv.view(batch, width, turned + self.kv_heads, self.head_dim)
        qk, v = qkv.narrow(2, 0, turned), qkv.narrow(2, turned, self.kv_heads)
        if self.head_norm_weight is not None:
            qk = rms_norm(qk, None, self.norm.eps) * self.head_norm_weight
        view = step.sliding if self.layer.sliding else step.full
        qk = rotate(qk, view.cos, view.sin)
        q, k = qk.narrow(2, 0, heads), qk.narrow(2, heads, self.kv_heads)
        out = view.attend(step.cache, self.index, q, k, v, scale=self.scale, cap=self.cap)
        out = self.output.forward(out, step)
        if self.post_norm is not None:
            out = self.post_norm.forward(out, step)
        return out.add_(x)

    def decode(self, x: torch.Tensor, step: DecodeStep) -> torch.Tensor:
        turned = self.heads + self.kv_heads
        qkv = self.qkv.decode(x, step, norm=self.norm).view(*x.shape[:2], turned + self.kv_heads, self.head_dim)
        if self.head_norm_weight is not None:
            qk = qkv.narrow(2, 0, turned)
            qk.copy_(rms_norm(qk, None, self.norm.eps) * self.head_norm_weight)
        sight, pages = step.sliding if self.layer.sliding else step.full, step.pages[self.index]
        out = paged_attention(
            qkv,
            sight.cos,
            sight.sin,
            pages,
            step.lengths,
            scale=self.scale,
            window=sight.window,
            cap=self.cap,
            workspace=step.workspace,
        )
        if self.post_norm is None:
            return self.output.decode(out, step, residual=x)
        return self.post_norm.decode(self.output.decode(out, step), step).add_(x)


class MLP(Module):
    """Norm, gated MLP, and the residual sum."""

    def __init__(self, layer: LayerLayout, norms: dict[str, RMSNorm], activation: Activation) -> None:
        super().__init__(layer.mlp)
        self.norm, self.post_norm = norms[layer.mlp_norm], norms.get(layer.mlp_post_norm or "")
        self.gate_up, self.down = Linear(layer.gate_up), Linear(layer.down)
        self.activation = activation

    def parameters(self) -> int:
        return self.norm.parameters() * 2 + self.gate_up.parameters() + self.down.parameters()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        yield from self.gate_up.submodules()
        yield from self.down.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        for part in (self.norm, self.post_norm, self.gate_up, self.down):
            if part is not None:
                part.load(source, self.device, dtype)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        out = self.gate_up.forward(self.norm.forward(x, step), step)
        out = self.down.forward(gated_activation(out, self.activation), step)
        if self.post_norm is not None:
            out = self.post_norm.forward(out, step)
        return out.add_(x)

    def decode(self, x: torch.Tensor, step: DecodeStep) -> torch.Tensor:
        out = gated_linear(x, self.gate_up.weight, self.gate_up.bias, self.activation, self.norm.of_rows)
        if self.post_norm is None:
            return self.down.decode(out, step, residual=x)
        return self.post_norm.decode(self.down.decode(out, step), step).add_(x)


class Head(Module):
    """States to logits ``[batch, width, padded_size]``."""

    def __init__(
        self, key: str, size: int, padded_size: int, hidden_size: int, cap: float | None, tied: Embedding | None
    ) -> None:
        super().__init__(key)
        self.size, self.padded_size, self.hidden_size, self.cap, self.tied = size, padded_size, hidden_size, cap, tied
        self.weight = torch.empty(0)

    def parameters(self) -> int:
        return 0 if self.tied is not None else self.padded_size * self.hidden_size

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        if self.tied is None:
            self.weight = load_padded(
                source, self.key, self.size, self.padded_size, self.hidden_size, dtype, self.device
            )
        else:
            self.weight = self.tied.weight.to(self.device)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        replaced = step.loras[0].lm_head if step.loras else None
        return self._logits(x, self.weight if replaced is None else replaced)

    def decode(self, x: torch.Tensor, step: DecodeStep) -> torch.Tensor:
        return self.decode_logits(x)

    def decode_logits(self, x: torch.Tensor, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Logits ``[rows * width, padded_size]`` of states ``[rows, width, hidden]``; of ``n`` tokens, if given."""
        x = x.flatten(0, 1)
        if tokens is None:
            return self._logits(x, self.weight)
        weight = self.weight[tokens]
        # Something has to come between what writes a weight and its product: see `linear`.
        return self._capped(linear(x.clone(), weight))

    def _capped(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if self.cap is None else soft_cap(logits, self.cap)

    def _logits(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        logits = self._capped(linear(x, weight))
        if self.padded_size > self.size:
            logits[..., self.size :] = PADDING_LOGIT
        return logits


def load_padded(
    source: TensorSource, key: str, size: int, padded: int, width: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Weight ``[size, width]`` of ``key``, with rows of zeros up to ``padded``."""
    weight = torch.zeros(padded, width, dtype=dtype, device=device)
    source.copy(f"{key}.weight", weight[:size])
    return weight


def find_linear(modules: Sequence[Module]) -> dict[str, Linear]:
    """Linear layers of a model by the names of their projections."""
    return {key: found for module in modules for key, found in module.submodules()}
