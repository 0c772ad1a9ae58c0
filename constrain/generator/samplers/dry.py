"""DRY ("don't repeat yourself"): a penalty on tokens that would prolong a repetition."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch


def dry_penalties(
    sequence: np.ndarray,
    breakers: np.ndarray,
    allowed_length: int,
    max_ngram: int,
    multiplier: float,
    base: float,
) -> dict[int, float]:
    """Return what to subtract from the logits of tokens that would prolong a repetition.

    Let L, between ``allowed_length`` and ``max_ngram``, be the length of the longest end of the sequence that occurred
    earlier in it. Each token that followed an earlier occurrence is penalised by
    ``multiplier * base ** (L - allowed_length)`` for each time that it did.

    After p-e-w's proposal (https://github.com/oobabooga/text-generation-webui/pull/5677), with the count as a factor.

    Args:
        sequence: int64 of shape (n,).
        breakers: bool of shape (n,): tokens that no repetition reaches over.
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


def apply_dry(
    logits: torch.Tensor,
    sequence_ids: torch.Tensor,
    breakers: Collection[int],
    last: int,
    allowed_length: int,
    max_ngram: int,
    multiplier: float,
    base: float,
) -> None:
    """Subtract the DRY penalties from a row of logits, in place.

    Args:
        logits: float32 of shape (V,).
        sequence_ids: int64 of shape (n,).
        breakers: ids over which no repetition is counted, as are those outside [0, V).
        last: number of last tokens to look at; 0 for all.
    """
    sequence = sequence_ids.numpy()[-last:]
    breaking = np.isin(sequence, list(breakers)) | (sequence < 0) | (sequence >= logits.shape[0])
    for token, penalty in dry_penalties(sequence, breaking, allowed_length, max_ngram, multiplier, base).items():
        logits[token] -= penalty
