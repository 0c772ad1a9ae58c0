"""Penalties for tokens that occurred already."""

from __future__ import annotations

import torch

from constrain.kernels import penalise_row


def penalise(
    logits: torch.Tensor,
    sequence_ids: torch.Tensor,
    repetition: float,
    full_range: int,
    decay: int,
    frequency: float,
    presence: float,
) -> None:
    """Apply repetition, frequency and presence penalties, in place, see :func:`constrain.kernels.penalise_row`.

    Args:
        logits: float32 of shape (batch, V).
        sequence_ids: int64 of shape (batch, n); ids outside [0, V) do not count.
        full_range: -1 for the whole sequence.
    """
    for row, ids in zip(logits, sequence_ids, strict=True):
        if len(ids):
            penalise_row(row, ids, repetition, full_range, decay, frequency, presence)
