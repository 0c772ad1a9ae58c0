"""Rotary position embedding."""

from __future__ import annotations

import torch


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn each pair of features ``(i, i + d/2)`` by the angle of its position (Su et al. 2021, half-split layout).

    Args:
        x: ``[batch, length, heads, head_dim]``.
        cos: ``[1 or batch, length, 1, d]`` with ``d <= head_dim``; features from ``d`` on are left as they are.
        sin: shaped as ``cos``, its first half negated, so that one swap of the halves gives the partner of every
            feature with the right sign.

    Returns:
        The shape and dtype of ``x``.
    """
    d = cos.shape[-1]
    if d == x.shape[-1]:
        return torch.addcmul(x * cos, x.roll(d // 2, -1), sin)
    return torch.cat((rotate(x[..., :d], cos, sin), x[..., d:]), dim=-1)
