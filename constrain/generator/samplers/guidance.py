"""Classifier-free guidance."""

from __future__ import annotations

import torch


def guide(logits: torch.Tensor, scale: float) -> torch.Tensor:
    """Mix the predictions with and without a condition: ``s log p + (1 - s) log q``.

    Sanchez et al., "Stay on topic with Classifier-Free Guidance" (2023), equation 7.

    Args:
        logits: float32 of shape (2, 1, V): with the condition, and without it.
        scale: 1 follows the first row, more departs from the second.

    Returns:
        float32 of shape (1, 1, V).
    """
    with_condition, without = logits.log_softmax(dim=-1).unsqueeze(1)
    mixed: torch.Tensor = scale * with_condition + (1.0 - scale) * without
    return mixed
