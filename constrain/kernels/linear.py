"""Matrix products with weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``x @ weight.T + bias``: ``[..., k]`` by ``[n, k]`` (and ``[n]``) to ``[..., n]``."""
    return F.linear(x, weight, bias)


def low_rank(x: torch.Tensor, down: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``x @ down.T @ up.T``: ``[..., k]`` by ``[r, k]`` and ``[n, r]`` to ``[..., n]`` (LoRA, Hu et al. 2021)."""
    return F.linear(F.linear(x, down), up)
