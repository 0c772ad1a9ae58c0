"""DRY ("don't repeat yourself"): a penalty on tokens that would prolong a repetition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from constrain.kernels import cuda
from constrain.kernels.bitmask import ChosenRows, check_bitmask
from constrain.kernels.step_tokens import TokenPages


@dataclass(frozen=True)
class DryTensors:
    """Settings of each row, ``[rows]``, contiguous, on the device of the logits; see :func:`dry_penalties`.

    Attributes:
        multiplier: float32, 0 for rows without penalties.
        base: float32.
        allowed_length: int32.
        max_ngram: int32.
        ranges: int32, the last tokens of the sequence to look at (0: all).
    """

    multiplier: torch.Tensor
    base: torch.Tensor
    allowed_length: torch.Tensor
    max_ngram: torch.Tensor
    ranges: torch.Tensor


def apply_dry(
    logits: torch.Tensor,
    sequences: TokenPages,
    lengths: torch.Tensor,
    tensors: DryTensors,
    breakers: ChosenRows | None = None,
) -> None:
    """Subtract the DRY penalties from every row, in place.

    Args:
        logits: float32 ``[rows, width]``, the last dimension contiguous.
        sequences: the tokens of each sequence.
        lengths: int32 ``[rows]``, their numbers, contiguous.
        tensors: settings of each row.
        breakers: tokens over which no repetition reaches, a bit set for each; none where the chosen row is negative.
            Ids outside of the width are breakers, too.

    Raises:
        BitmaskError: ``breakers`` has the wrong type, shape, layout or device.
    """
    if breakers is not None:
        check_bitmask(logits, *breakers)
    if logits.is_cuda and cuda.module is not None:
        _apply_cuda(logits, sequences, lengths, tensors, breakers)
    else:
        apply_dry_reference(logits, sequences, lengths, tensors, breakers)


def apply_dry_reference(
    logits: torch.Tensor,
    sequences: TokenPages,
    lengths: torch.Tensor,
    tensors: DryTensors,
    breakers: ChosenRows | None = None,
) -> None:
    """:func:`apply_dry` on the host."""
    width = logits.shape[1]
    for row in tensors.multiplier.nonzero().flatten().tolist():
        length, last = int(lengths[row]), int(tensors.ranges[row])
        first = max(0, length - last) if last else 0
        sequence = sequences.row(row)[first:length].long().cpu().numpy()
        outside = (sequence < 0) | (sequence >= width)
        breaking = outside | _bits(breakers, row, width)[np.where(outside, 0, sequence)]
        penalties = dry_penalties(
            sequence,
            breaking,
            int(tensors.allowed_length[row]),
            int(tensors.max_ngram[row]),
            float(tensors.multiplier[row]),
            float(tensors.base[row]),
        )
        for token, penalty in penalties.items():
            logits[row, token] -= penalty


def dry_penalties(
    sequence: np.ndarray,
    breakers: np.ndarray,
    allowed_length: int,
    max_ngram: int,
    multiplier: float,
    base: float,
) -> dict[int, float]:
    """Return the numbers to subtract from the logits of tokens that would prolong a repetition.

    Let L, between ``allowed_length`` and ``max_ngram``, be the length of the longest end of the sequence that occurred
    earlier in it. Each token that followed an earlier occurrence is penalised by
    ``multiplier * base ** (L - allowed_length)`` for each time that it did.

    After p-e-w's proposal (https://github.com/oobabooga/text-generation-webui/pull/5677), with the count as a factor.

    Args:
        sequence: int64 ``[n]``.
        breakers: bool ``[n]``, tokens that no repetition reaches over.
        allowed_length: length of repetition without a penalty.
        max_ngram: longest repetition that is counted.
        multiplier: strength of the penalty.
        base: its growth for each further token.
    """
    n = len(sequence)
    ends = np.flatnonzero(~breakers[1:])  # of the earlier occurrences: the token that follows is n-gram material too
    best: np.ndarray | None = None
    for length in range(1, min(max_ngram, n - 1) + 1):
        first = n - length
        if breakers[first]:
            break
        ends = ends[ends >= length - 1]
        ends = ends[sequence[ends - length + 1] == sequence[first]]
        if not ends.size:
            break
        if length >= allowed_length:
            best, longest = ends, length
    if best is None:
        return {}
    penalty = multiplier * base ** (longest - allowed_length)
    tokens, counts = np.unique(sequence[best + 1], return_counts=True)
    return {int(token): penalty * int(count) for token, count in zip(tokens, counts, strict=True)}


def _bits(rows: ChosenRows | None, row: int, width: int) -> np.ndarray:
    """The tokens whose bit is set, bool ``[width]``."""
    bits, chosen = (None, None) if rows is None else rows
    index = row if chosen is None else int(chosen[row])
    if bits is None or index < 0:
        return np.zeros(width, dtype=np.bool_)
    return np.unpackbits(bits[index].cpu().numpy().view(np.uint8), count=width, bitorder="little").view(np.bool_)


def _apply_cuda(
    logits: torch.Tensor, sequences: TokenPages, lengths: torch.Tensor, tensors: DryTensors, breakers: ChosenRows | None
) -> None:
    rows, width = logits.shape
    bits, chosen = (None, None) if breakers is None else breakers
    with torch.cuda.device(logits.device):
        cuda.module.apply_dry(
            logits=cuda.address(logits),
            logits_stride=logits.stride(0),
            **sequences.for_kernels(),
            lengths=cuda.address(lengths),
            **{name: cuda.address(values) for name, values in vars(tensors).items()},
            bits=cuda.address(bits),
            bits_stride=0 if bits is None else bits.stride(0),
            chosen=cuda.address(chosen),
            rows=rows,
            width=width,
            stream=cuda.stream(logits),
        )
