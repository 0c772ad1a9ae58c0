"""Bitmasks as SGLang's scheduler handles them: int32 ``[rows, ceil(vocab_size / 32)]``, a bit of 1 allows a token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from constrain.engine.bitmask import packed
from constrain.integrations.serving import BitmaskArray

#: The array of the bitmask that is filled: SGLang makes one for each step of a batch.
array = BitmaskArray()


def allocate(vocab_size: int, batch_size: int) -> torch.Tensor:
    """Return a bitmask on the CPU that allows every token; pinned where that makes copies to a GPU faster."""
    words = (vocab_size + 31) // 32
    return torch.full((batch_size, words), -1, dtype=torch.int32, pin_memory=torch.cuda.is_available())


def apply(logits: torch.Tensor, bits: torch.Tensor) -> None:
    """Set the logits ``[rows, width]`` of excluded tokens to -inf, in place.

    Args:
        logits: float ``[rows, width]``; the bitmask may be wider or narrower.
        bits: on the same device.
    """
    if logits.is_cuda:
        from sglang.kernels.ops.grammar.bitmask_ops import apply_token_bitmask_inplace_triton

        apply_token_bitmask_inplace_triton(logits, bits)
        return
    shifts = torch.arange(32, dtype=torch.int32, device=bits.device)
    excluded = (bits.unsqueeze(-1) >> shifts).bitwise_and(1).flatten(1)[:, : logits.shape[1]] == 0
    logits[:, : excluded.shape[1]].masked_fill_(excluded, -torch.inf)


def set_tokens(bits: torch.Tensor, tokens: Sequence[int], row: int, allowed: bool, reset: bool) -> None:
    """Allow or exclude tokens in a row; with ``reset``, allow only these, or exclude only these."""
    words = bits[row].numpy()
    if reset:
        words[:] = 0 if allowed else -1
    chosen = packed(np.array(tokens, dtype=np.int64), len(words))
    words[:] = words | chosen if allowed else words & ~chosen
