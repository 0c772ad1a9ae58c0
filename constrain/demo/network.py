"""The network of the built-in model in plain torch: Llama, with the parameter names of its checkpoints.

It is used for training only; inference uses the exported weights with :class:`constrain.model.ExLlamaV2`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Segments:
    """Sequences that are packed into one row of tokens.

    Attributes:
        starts: int32 [s + 1], the first token of each sequence, and the number of tokens.
        longest: upper limit of the length of a sequence.
    """

    starts: Tensor
    longest: int

    @classmethod
    def equal(cls, rows: int, length: int, device: torch.device) -> Segments:
        """Return the segments of ``rows`` sequences of the same length."""
        return cls(torch.arange(0, (rows + 1) * length, length, dtype=torch.int32, device=device), length)

    def positions(self, count: int) -> Tensor:
        """Return the position in its sequence, int64 [count], of each of ``count`` tokens."""
        tokens = torch.arange(count, device=self.starts.device)
        return tokens - self.starts[torch.searchsorted(self.starts, tokens, right=True) - 1]


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama: ``heads`` query heads share ``kv_heads`` key-value heads; embeddings are tied."""

    vocab: int = 13312
    hidden: int = 448
    layers: int = 10
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 64
    mlp: int = 1216
    context: int = 4096
    rope_theta: float = 50000.0
    norm_eps: float = 1e-5


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(shape.hidden, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, segments: Segments) -> Tensor:
        q, k, v = (
            projection(x).view(len(x), -1, self.shape.head_dim)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        group = self.shape.heads // self.shape.kv_heads
        mixed = attend(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), segments)
        out: Tensor = self.o_proj(mixed.flatten(1))
        return out


def attend(q: Tensor, k: Tensor, v: Tensor, segments: Segments) -> Tensor:
    """Compute causal attention within each segment; all tensors are [t, heads, d]."""
    if q.is_cuda:
        starts, longest = segments.starts, segments.longest
        mixed: Tensor = torch.ops.aten._flash_attention_forward(
            q, k, v, starts, starts, longest, longest, 0.0, True, False
        )[0]
        return mixed
    lengths: list[int] = segments.starts.diff().tolist()
    # torch has its fast kernel for tensors with a batch dimension only
    parts = zip(*(torch.split(part.transpose(0, 1)[None], lengths, 2) for part in (q, k, v)), strict=True)
    mixed = torch.cat([F.scaled_dot_product_attention(q, k, v, is_causal=True) for q, k, v in parts], 2)
    return mixed[0].transpose(0, 1)


class MLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.down_proj = nn.Linear(shape.mlp, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.input_layernorm = RMSNorm(shape.hidden, shape.norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.norm_eps)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, segments: Segments) -> Tensor:
        mixed: Tensor = x + self.dropout(self.self_attn(self.input_layernorm(x), cos, sin, segments))
        out: Tensor = mixed + self.dropout(self.mlp(self.post_attention_layernorm(mixed)))
        return out


class Body(nn.Module):
    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList([Block(shape, dropout) for _ in range(shape.layers)])
        self.norm = RMSNorm(shape.hidden, shape.norm_eps)
        self.register_buffer("rotary", torch.stack(rotations(shape)), persistent=False)
        self.rotary: Tensor

    def forward(self, ids: Tensor, segments: Segments) -> Tensor:
        x = self.embed_tokens(ids)
        cos, sin = self.rotary[:, segments.positions(len(ids)), None].unbind()
        for layer in self.layers:
            x = layer(x, cos, sin, segments)
        normed: Tensor = self.norm(x)
        return normed


class Network(nn.Module):
    """The model. Its state dict has the names of a Llama checkpoint with tied embeddings.

    In training, ``dropout`` is the share of the elements that are dropped from what each part of a layer adds.
    """

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape, dropout)
        self.apply(_initialise)
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.normal_(parameter, std=0.02 / (2 * shape.layers) ** 0.5)

    def forward(self, ids: Tensor, segments: Segments, at: Tensor) -> Tensor:
        """Compute logits [n, vocab] at the tokens ``at``, int64 [n], of ``ids``, int64 [t]."""
        return F.linear(self.model(ids, segments)[at], self.model.embed_tokens.weight)

    @torch.no_grad()
    def greedy(self, prompts: list[list[int]], eos: int, limit: int) -> list[list[int]]:
        """Continue every prompt greedily, up to ``eos`` (left out) or ``limit`` tokens.

        There is no KV cache: the batch is recomputed for each token, which suffices to evaluate on an accelerator.
        """
        device = self.model.embed_tokens.weight.device
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        width = int(lengths.max()) + limit
        ids = torch.zeros(len(prompts), width, dtype=torch.long, device=device)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        rows = torch.arange(len(prompts), device=device)
        done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        ends = lengths.clone()
        while not bool(done.all()) and int(ends.max()) < width:
            used = int(ends.max())
            segments = Segments.equal(len(prompts), used, device)
            chosen = self(ids[:, :used].flatten(), segments, rows * used + ends - 1).argmax(-1)
            done |= (chosen == eos) | (ends - lengths >= limit)
            ids[rows[~done], ends[~done]] = chosen[~done]
            ends += ~done
        return [row[start:end].tolist() for row, start, end in zip(ids, lengths.tolist(), ends.tolist(), strict=True)]


def rotations(shape: Shape) -> tuple[Tensor, Tensor]:
    """Compute cosines and sines [context, head_dim] of rotary embeddings (Su et al. 2021, half-split layout)."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    angles = torch.outer(torch.arange(shape.context, dtype=torch.float32), shape.rope_theta**-exponents)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs ``(x[i], x[i + d/2])`` of ``x`` [t, h, d] by the angles of their positions."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
