"""Penalties for tokens that occurred already."""

from __future__ import annotations

import torch


def penalise(
    logits: torch.Tensor,
    sequence_ids: torch.Tensor,
    repetition: float,
    full_range: int,
    decay: int,
    frequency: float,
    presence: float,
) -> None:
    """Apply repetition, frequency and presence penalties, in place.

    The last ``full_range`` tokens have weight 1, the ``decay`` tokens before them weights that fall linearly from 1
    towards 0, older ones none. With ``w`` the weight of a token's latest occurrence, its logit is divided (if
    positive; else multiplied) by ``1 + (repetition - 1) w``, and lowered by ``presence w``. For each of its
    occurrences, with weight ``v``, it is lowered by ``frequency v``.

    Args:
        logits: float32 of shape (batch, V).
        sequence_ids: int64 of shape (batch, n); ids outside [0, V) do not count.
        full_range: -1 for the whole sequence.
    """
    length = sequence_ids.shape[1]
    full = length if full_range < 0 else min(full_range, length)
    fading = min(decay, length - full)
    ids = sequence_ids[:, length - full - fading :]
    if ids.shape[1] == 0:
        return
    for row, row_ids in zip(logits, ids, strict=True):
        weights = torch.ones(row_ids.shape[0])
        if fading:
            weights[:fading] = 1.0 - torch.arange(fading - 1, -1, -1) / decay
        known = (row_ids >= 0) & (row_ids < row.shape[0])
        if not known.all():
            row_ids, weights = row_ids[known], weights[known]
        _penalise_row(row, row_ids, weights, fading > 0, repetition, frequency, presence)


def _penalise_row(
    logits: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    fading: bool,
    repetition: float,
    frequency: float,
    presence: float,
) -> None:
    # Weights never fall towards the end of the sequence, so the largest is that of the latest occurrence.
    latest = torch.zeros_like(logits).scatter_reduce_(0, ids, weights, "amax")[ids] if fading else weights
    factor = 1.0 + (repetition - 1.0) * latest
    old = logits[ids]
    logits[ids] = torch.where(old > 0, old / factor, old * factor) - presence * latest
    if frequency:
        logits.index_add_(0, ids, weights, alpha=-frequency)
