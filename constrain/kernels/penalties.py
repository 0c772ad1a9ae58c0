"""Repetition, frequency and presence penalties for tokens that occurred already."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from constrain.kernels import cuda
from constrain.kernels.step_tokens import TokenPages


@dataclass(frozen=True)
class PenaltyParameters:
    """Strengths and ranges of the penalties of each row, contiguous, see :func:`penalise_row`.

    Attributes:
        repetition, frequency, presence: float32 ``[rows]``.
        ranges: int32 ``[rows]``, the last tokens that count in full (-1: all).
        decays: int32 ``[rows]``, the tokens before those that count less and less.
        starts: int32 ``[rows]``, the first tokens, which count neither for frequency nor for presence.
    """

    repetition: torch.Tensor
    ranges: torch.Tensor
    decays: torch.Tensor
    frequency: torch.Tensor
    presence: torch.Tensor
    starts: torch.Tensor


class PenaltyScratch:
    """Counters of tokens, zero between calls; for calls that run one after the other."""

    def __init__(self) -> None:
        self._counters = torch.empty(0, dtype=torch.int32)

    def reserve(self, rows: int, width: int, device: torch.device) -> torch.Tensor:
        """Return counters for ``rows`` rows of ``width`` tokens."""
        needed = 3 * rows * width
        if self._counters.device != device or self._counters.numel() < needed:
            self._counters = torch.zeros(needed, dtype=torch.int32, device=device)
        return self._counters


def penalise(
    logits: torch.Tensor,
    sequences: TokenPages,
    lengths: torch.Tensor,
    parameters: PenaltyParameters,
    scratch: PenaltyScratch | None = None,
) -> None:
    """Apply :func:`penalise_row` to every row, in place.

    Args:
        logits: float32 ``[rows, width]``, the last dimension contiguous.
        sequences: the tokens of each sequence; ids outside of the width do not count.
        lengths: int32 ``[rows]``, their numbers.
        parameters: settings of each row.
        scratch: counters, reused between calls on one stream.
    """
    if logits.is_cuda and cuda.module is not None:
        _penalise_cuda(logits, sequences, lengths, parameters, scratch or PenaltyScratch())
        return
    fields = (field.tolist() for field in vars(parameters).values())
    for row, row_ids, length, *values in zip(logits, sequences.gather(), lengths.tolist(), *fields, strict=True):
        penalise_row(row, row_ids[:length].long(), *values)


def penalise_row(
    logits: torch.Tensor,
    ids: torch.Tensor,
    repetition: float,
    full_range: int,
    decay: int,
    frequency: float,
    presence: float,
    start: int = 0,
) -> None:
    """Apply repetition, frequency and presence penalties, in place.

    The last ``full_range`` tokens have weight 1, the ``decay`` tokens before them weights that fall linearly from 1
    towards 0, older ones none. With ``w`` the weight of a token's latest occurrence, its logit is divided (if
    positive; else multiplied) by ``1 + (repetition - 1) w``, and lowered by ``presence w``. For each of its
    occurrences, with weight ``v``, it is lowered by ``frequency v``. For these two the first ``start`` tokens do not
    count.

    Args:
        logits: float32 ``[width]``.
        ids: int64 ``[n]``; ids outside of the width do not count.
        full_range: -1 for all.
        start: number of first tokens that count for repetition only, such as those of the prompt.
    """
    full = len(ids) if full_range < 0 else min(full_range, len(ids))
    fading = min(decay, len(ids) - full)
    first = len(ids) - full - fading
    ids = ids[first:]
    counted = torch.arange(first, first + len(ids), device=logits.device) >= start
    weights = torch.ones(len(ids), device=logits.device)
    if fading:
        weights[:fading] = 1.0 - torch.arange(fading - 1, -1, -1, device=logits.device) / decay
    known = (ids >= 0) & (ids < len(logits))
    if not known.all():
        ids, weights, counted = ids[known], weights[known], counted[known]
    # Weights never fall towards the end of the sequence, so the largest is that of the latest occurrence.
    latest = torch.zeros_like(logits).scatter_reduce_(0, ids, weights, "amax")[ids] if fading else weights
    factor = 1.0 + (repetition - 1.0) * latest
    old = logits[ids]
    present = torch.zeros_like(logits).index_fill_(0, ids[counted], presence)[ids]
    logits[ids] = torch.where(old > 0, old / factor, old * factor) - present * latest
    if frequency:
        logits.index_add_(0, ids[counted], weights[counted], alpha=-frequency)


def _penalise_cuda(
    logits: torch.Tensor,
    sequences: TokenPages,
    lengths: torch.Tensor,
    parameters: PenaltyParameters,
    scratch: PenaltyScratch,
) -> None:
    rows, width = logits.shape
    with torch.cuda.device(logits.device):
        cuda.module.penalise(
            logits=cuda.address(logits),
            logits_stride=logits.stride(0),
            **sequences.for_kernels(),
            lengths=cuda.address(lengths),
            **{name: cuda.address(values) for name, values in vars(parameters).items()},
            scratch=cuda.address(scratch.reserve(rows, width, logits.device)),
            rows=rows,
            width=width,
            stream=cuda.stream(logits),
        )
