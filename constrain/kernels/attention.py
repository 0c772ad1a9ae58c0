"""Attention of queries over the keys and values of a cache."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from constrain.kernels.activation import soft_cap

MAX_FUSED_DIM = 256
"""Features of a head up to which torch's attention on GPUs needs no tensor of scores."""
MAX_SCORES = 1 << 26
"""Scores in memory at a time, where attention needs them as a tensor."""


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """``softmax(cap(q @ k.T * scale) + mask) @ v``, for each head (Vaswani et al. 2017; grouped: Ainslie et al. 2023).

    Args:
        q: ``[batch, queries, heads, head_dim]``.
        k, v: ``[batch, keys, kv_heads, head_dim]``; ``kv_heads`` divides ``heads``, and head ``h`` reads
            ``h // (heads // kv_heads)``.
        scale: factor of the scores.
        mask: added to the scores, ``[1 or batch, 1, queries, keys]``, finite.
        causal: the last query sees all keys, each earlier one sees one key less; takes no mask.
        cap: soft cap of the scores, see :func:`constrain.kernels.soft_cap`.
        sinks: float32 ``[heads]``, the score of one more key, whose value is zero (Xiao et al. 2023; gpt-oss, 2025).

    Returns:
        ``[batch, queries, heads * head_dim]``.
    """
    batch, queries, heads, dim = q.shape
    keys, kv_heads = k.shape[1:3]
    k, v = k.transpose(1, 2), v.transpose(1, 2)
    if cap is not None or sinks is not None:
        mask = _causal_mask(q, keys) if causal else mask
        return _by_scores(q, k, v, scale, mask, cap, sinks)
    if queries == 1:
        # The heads of a group read the same keys: as rows of one product they need no copies of the keys.
        grouped = q.view(batch, kv_heads, heads // kv_heads, dim)
        return F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=scale).reshape(batch, 1, heads * dim)
    if q.is_cuda and dim > MAX_FUSED_DIM:
        return _by_scores(q, k, v, scale, _causal_mask(q, keys) if causal else mask, cap, sinks)
    later = causal and keys > queries
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k,
        v,
        attn_mask=_lower_right(queries, keys) if later else mask,
        is_causal=causal and not later,
        scale=scale,
        enable_gqa=heads != kv_heads,
    )
    return out.transpose(1, 2).reshape(batch, queries, heads * dim)


def _lower_right(queries: int, keys: int) -> torch.Tensor:
    # Imported here since it brings torch's compiler with it, which takes two seconds.
    from torch.nn.attention.bias import causal_lower_right

    return causal_lower_right(queries, keys)


def _by_scores(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    mask: torch.Tensor | None,
    cap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention by the scores of some queries at a time; ``k`` and ``v`` are ``[batch, kv_heads, keys, head_dim]``."""
    batch, queries, heads, _ = q.shape
    step = max(1, MAX_SCORES // (batch * heads * k.shape[2]))
    blocks = [
        _of_scores(q[:, i : i + step], k, v, scale, None if mask is None else mask[..., i : i + step, :], cap, sinks)
        for i in range(0, queries, step)
    ]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)


def _of_scores(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    mask: torch.Tensor | None,
    cap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    batch, queries, heads, dim = q.shape
    kv_heads, keys = k.shape[1:3]
    grouped = q.transpose(1, 2).reshape(batch, kv_heads, -1, dim)
    scores = torch.matmul(grouped, k.transpose(2, 3)) * scale
    scores = scores if cap is None else soft_cap(scores, cap)
    if mask is not None:
        scores = (scores.view(batch, heads, queries, keys) + mask).view(batch, kv_heads, -1, keys)
    if sinks is not None:
        added = sinks.to(scores.dtype).view(kv_heads, -1, 1).expand(-1, -1, queries).reshape(1, kv_heads, -1, 1)
        scores = torch.cat((scores, added.expand(batch, -1, -1, -1)), dim=-1)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32)[..., :keys].to(v.dtype)
    return torch.matmul(weights, v).view(batch, heads, queries, dim).transpose(1, 2).reshape(batch, queries, -1)


def _causal_mask(q: torch.Tensor, keys: int) -> torch.Tensor:
    mask = torch.full((q.shape[1], keys), torch.finfo(q.dtype).min / 2, dtype=q.dtype, device=q.device)
    return mask.triu_(keys - q.shape[1] + 1)
