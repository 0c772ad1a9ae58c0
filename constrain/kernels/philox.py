"""Counter-based random numbers: a seed and a position give the same number on every device, in every batch."""

from __future__ import annotations

from functools import cache

import torch

from constrain.kernels import cuda

_WORD = 0xFFFFFFFF
_ROUNDS = 10


def philox_uniform(seeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Random numbers in [0, 1): the lower 64 bits of Philox 4x32-10 over ``2**64`` (Salmon et al. 2011).

    Args:
        seeds: int64 ``[rows]``, the keys, contiguous.
        positions: int32 ``[rows]``, the counters, contiguous.

    Returns:
        float64 ``[rows]``; 1.0 where the nearest float64 is.
    """
    if seeds.is_cuda and cuda.module is not None:
        return _philox_cuda(seeds, positions)
    return philox_uniform_reference(seeds, positions)


def philox_uniform_reference(seeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """:func:`philox_uniform` in plain torch, whose int64 products wrap around as those of unsigned words do."""
    multipliers, increments = _constants(seeds.device)
    zero = torch.zeros_like(seeds)
    counters = positions.long()
    # Words 0 and 2 of the counter, words 1 and 3, and the words of the key.
    even = torch.stack((counters & _WORD, zero), dim=1)
    odd = torch.stack((counters >> 32 & _WORD, zero), dim=1)
    keys = torch.stack((seeds & _WORD, seeds >> 32 & _WORD), dim=1) + increments & _WORD
    for key in keys:
        products = even * multipliers
        even, odd = (products >> 32 & _WORD).flip(1) ^ odd ^ key, (products & _WORD).flip(1)
    return odd[:, 0].double() * 2.0**-32 + even[:, 0].double() * 2.0**-64


@cache
def _constants(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Multipliers ``[2]``, and the increments of the key in each round ``[rounds, 1, 2]``."""
    multipliers = torch.tensor([0xD2511F53, 0xCD9E8D57])
    increments = torch.arange(_ROUNDS).view(-1, 1, 1) * torch.tensor([0x9E3779B9, 0xBB67AE85])
    return multipliers.to(device), increments.to(device)


def _philox_cuda(seeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    numbers = torch.empty(len(seeds), dtype=torch.float64, device=seeds.device)
    with torch.cuda.device(seeds.device):
        cuda.module.philox_uniform(
            seeds=cuda.address(seeds),
            positions=cuda.address(positions),
            numbers=cuda.address(numbers),
            rows=len(seeds),
            stream=cuda.stream(seeds),
        )
    return numbers
