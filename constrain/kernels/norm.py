"""Normalisation."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """``x / sqrt(mean(x**2) + eps) * weight`` over the last dimension (Zhang and Sennrich 2019).

    Args:
        x: ``[..., n]``.
        weight: ``[n]``, or ``None`` for one everywhere.
        eps: added to the mean square.

    Returns:
        The shape and dtype of ``x``; the mean is taken in float32 at least.
    """
    if x.is_cuda or x.dtype is not torch.float32:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    # On the CPU, F.rms_norm is a chain of seven operations; for one token, their number is what costs.
    n = x.shape[-1]
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = norm.mul_(norm).add_(n * eps).rsqrt_().mul_(n**0.5)
    return x * scale if weight is None else (x * weight).mul_(scale)
