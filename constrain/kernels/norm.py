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
    return F.rms_norm(x, x.shape[-1:], weight, eps)
