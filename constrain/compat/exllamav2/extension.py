"""Host functions of exllamav2's native extension that tools use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from constrain.errors import WeightsError
from constrain.kernels import penalise_row

#: Argument that means "no tensor".
none_tensor = torch.empty((1, 1), device="meta")


def make_q_matrix(*args: Any, **kwargs: Any) -> NoReturn:
    """Not available.

    Raises:
        WeightsError: always.
    """
    raise WeightsError("quantised matrices are made by exllamav2's GPU kernels, which constrain does not have")


make_group_map = make_q_matrix


def apply_rep_penalty(
    sequence: torch.Tensor,
    penalty: float,
    sustain: int,
    decay: int,
    frequency: float,
    presence: float,
    logits: torch.Tensor,
) -> None:
    """Penalise, in place, tokens of ``sequence`` (int64 ``[rows, n]``) in ``logits`` (float ``[rows, 1, width]``)."""
    for row, ids in zip(logits.view(len(sequence), -1), sequence, strict=True):
        penalise_row(row, ids, penalty, sustain, decay, frequency, presence)


def logit_filter_exclusive(mask: torch.Tensor, allowed: Sequence[Sequence[int]]) -> None:
    """Clear each row of a bool mask except for the ids allowed in it, in place."""
    for row, ids in zip(mask, allowed, strict=True):
        values = row[list(ids)]
        row.fill_(False)
        row[list(ids)] = values


def fast_fill_cpu_ones_bool(tensor: torch.Tensor) -> None:
    """Fill with ones."""
    tensor.fill_(True)


def fast_fadd_cpu(a: torch.Tensor, b: torch.Tensor) -> None:
    """Add ``b`` to each consecutive part of ``a`` of the same length, in place."""
    a.view(-1, b.numel()).add_(b.view(-1))


def fast_copy_cpu(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy ``source`` into ``target``."""
    target.copy_(source)


def partial_strings_match(query: bytes, offsets: torch.Tensor, strings: bytes) -> int:
    """Find strings in a text, all encoded as UTF-32LE.

    Args:
        query: the text.
        offsets: offsets of the strings in ``strings``, in bytes, and the end of the last one.
        strings: the concatenated strings.

    Returns:
        The index of the first occurrence of a string; -2 if the text ends with a prefix of one; else -1.
    """
    text, table = query.decode("utf-32-le"), [int(offset) for offset in offsets]
    wanted = [strings[start:end].decode("utf-32-le") for start, end in pairwise(table)]
    found = [index for string in wanted if (index := text.find(string)) >= 0]
    if found:
        return min(found)
    partial = any(text.endswith(string[:length]) for string in wanted for length in range(1, len(string)))
    return -2 if partial else -1


def count_match(a: torch.Tensor, b: torch.Tensor, max_a: int) -> int:
    """Length of the common prefix of two int64 ``[1, n]``, at most ``max_a``."""
    length = min(max_a, a.shape[-1], b.shape[-1])
    differing = torch.nonzero(a[0, :length] != b[0, :length])
    return int(differing[0]) if len(differing) else length


EXTENSION = SimpleNamespace(
    apply_rep_penalty=apply_rep_penalty,
    count_match=count_match,
    fast_copy_cpu=fast_copy_cpu,
    fast_fadd_cpu=fast_fadd_cpu,
    fast_fill_cpu_ones_bool=fast_fill_cpu_ones_bool,
    logit_filter_exclusive=logit_filter_exclusive,
    partial_strings_match=partial_strings_match,
)
