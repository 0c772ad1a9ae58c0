"""The tokens that go into a decode step, and the texts that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from constrain.kernels import cuda


@dataclass(frozen=True)
class TextPages:
    """Texts in pages, as keys and values are.

    Attributes:
        tokens: int32 ``[pages, page_size]``.
        block_table: int32 ``[rows, blocks]``: position ``i`` of a text is token ``i % page_size`` of page
            ``block_table[row, i // page_size]``.
    """

    tokens: torch.Tensor
    block_table: torch.Tensor

    def gather(self) -> torch.Tensor:
        """The texts, int32 ``[rows, blocks * page_size]``."""
        return self.tokens[self.block_table.long()].flatten(1)

    def row(self, row: int) -> torch.Tensor:
        """One of the texts, int32 ``[blocks * page_size]``."""
        return self.tokens[self.block_table[row].long()].flatten()

    def for_kernels(self) -> dict[str, Any]:
        """The arguments by which the compiled kernels know them."""
        return {
            "text": cuda.address(self.tokens),
            "block_table": cuda.address(self.block_table),
            "block_table_stride": self.block_table.stride(0),
            "page_size": self.tokens.shape[1],
        }


@dataclass(frozen=True)
class StepTokens:
    """What goes into a step; int32 ``[rows]``, on the device of the step, contiguous.

    Attributes:
        given: the token of each row; below zero, the one drawn in row ``~given`` of the step before. Becomes ``~row``
            for every row that is not idle.
        past: its position; negative for an idle row. Becomes the next position.
        ids: gets the tokens, 0 for those of idle rows, and for those that could not be drawn.
        lengths: gets the lengths of the texts, 0 for those of idle rows.
    """

    given: torch.Tensor
    past: torch.Tensor
    ids: torch.Tensor
    lengths: torch.Tensor


def enter_tokens(step: StepTokens, drawn: torch.Tensor, text: TextPages) -> None:
    """Fill in ``step.ids`` and ``step.lengths``, and append the tokens to their texts.

    The same again goes on with the tokens that were drawn meanwhile.

    Args:
        step: of each row.
        drawn: int64 ``[n]``, what the step before has drawn, contiguous.
        text: with a row for each.
    """
    if drawn.is_cuda and cuda.module is not None:
        _enter_cuda(step, drawn, text)
        return
    found = torch.where(step.given < 0, drawn[(~step.given).clamp(min=0).long()].clamp(min=0), step.given).int()
    busy = step.past >= 0
    step.ids.copy_(found.where(busy, 0))
    step.lengths.copy_((step.past + 1).clamp(min=0))
    rows, size = busy.nonzero(as_tuple=True)[0], text.tokens.shape[1]
    past = step.past[rows].long()
    text.tokens[text.block_table[rows, past // size].long(), past % size] = found[rows]
    step.past.add_(busy)
    step.given.copy_((~torch.arange(len(busy), device=busy.device)).where(busy, step.given))


def _enter_cuda(step: StepTokens, drawn: torch.Tensor, text: TextPages) -> None:
    with torch.cuda.device(drawn.device):
        cuda.module.enter_tokens(
            **{name: cuda.address(values) for name, values in vars(step).items()},
            drawn=cuda.address(drawn),
            **text.for_kernels(),
            rows=len(step.given),
            stream=cuda.stream(drawn),
        )
