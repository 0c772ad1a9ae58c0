"""Input tokens of a decode step, and the token ids of sequences in pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from constrain.kernels import cuda


@dataclass(frozen=True)
class TokenPages:
    """Token ids of sequences, in the same pages as their keys and values.

    Attributes:
        tokens: int32 ``[pages, page_size]``.
        block_table: int32 ``[rows, blocks]``: position ``i`` of a sequence is token ``i % page_size`` of page
            ``block_table[row, i // page_size]``.
    """

    tokens: torch.Tensor
    block_table: torch.Tensor

    def gather(self) -> torch.Tensor:
        """Return the sequences, int32 ``[rows, blocks * page_size]``."""
        return self.tokens[self.block_table.long()].flatten(1)

    def row(self, row: int) -> torch.Tensor:
        """Return one of the sequences, int32 ``[blocks * page_size]``."""
        return self.tokens[self.block_table[row].long()].flatten()

    def for_kernels(self) -> dict[str, Any]:
        """Return the arguments that the compiled kernels take."""
        return {
            "text": cuda.address(self.tokens),
            "block_table": cuda.address(self.block_table),
            "block_table_stride": self.block_table.stride(0),
            "page_size": self.tokens.shape[1],
        }


@dataclass(frozen=True)
class StepTokens:
    """Inputs of a decode step; int32 ``[rows]``, on the device of the model, contiguous.

    Attributes:
        given: the token of each row; where negative, the one that the last step sampled in row ``~given``. Becomes
            ``~row`` for every row that is not idle.
        past: position of the token; negative for idle rows. Becomes the next position.
        ids: output, the tokens; 0 for idle rows, and where no token could be sampled.
        lengths: output, the lengths of the sequences; 0 for idle rows.
    """

    given: torch.Tensor
    past: torch.Tensor
    ids: torch.Tensor
    lengths: torch.Tensor


def enter_tokens(step: StepTokens, sampled: torch.Tensor, sequences: TokenPages) -> None:
    """Fill in ``step.ids`` and ``step.lengths``, and append the tokens to their sequences.

    A second call continues with the tokens that were sampled after the first.

    Args:
        step: the inputs, changed in place.
        sampled: int64 ``[n]``, tokens of the last step, contiguous.
        sequences: the sequences, a row for each row of the step.
    """
    if sampled.is_cuda and cuda.module is not None:
        _enter_cuda(step, sampled, sequences)
        return
    found = torch.where(step.given < 0, sampled[(~step.given).clamp(min=0).long()].clamp(min=0), step.given).int()
    busy = step.past >= 0
    step.ids.copy_(found.where(busy, 0))
    step.lengths.copy_((step.past + 1).clamp(min=0))
    rows, size = busy.nonzero(as_tuple=True)[0], sequences.tokens.shape[1]
    past = step.past[rows].long()
    sequences.tokens[sequences.block_table[rows, past // size].long(), past % size] = found[rows]
    step.past.add_(busy)
    step.given.copy_((~torch.arange(len(busy), device=busy.device)).where(busy, step.given))


def _enter_cuda(step: StepTokens, sampled: torch.Tensor, sequences: TokenPages) -> None:
    with torch.cuda.device(sampled.device):
        cuda.module.enter_tokens(
            **{name: cuda.address(values) for name, values in vars(step).items()},
            sampled=cuda.address(sampled),
            **sequences.for_kernels(),
            rows=len(step.given),
            stream=cuda.stream(sampled),
        )
