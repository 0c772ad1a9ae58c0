"""Division of a number of heads, features or rows among shards."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

# Kernels are fastest with multiples of these numbers of features, and weights of few bits have groups of them.
_UNITS = (128, 64, 32, 16, 8, 4, 2, 1)
# With this many units per shard, shares differ little from equal ones.
_ENOUGH_UNITS = 4


def divide(total: int, weights: Sequence[float], unit: int = 1) -> tuple[range, ...]:
    """Divide ``range(total)`` in proportion to ``weights``, in whole units; the last may have less.

    The units that are left over after rounding down go to those of the largest remainders (method of Hamilton).
    """
    units = -(-total // unit)
    exact = [units * weight / sum(weights) for weight in weights]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: shares[i] - exact[i])
    for index in by_remainder[: units - sum(shares)]:
        shares[index] += 1
    ends = [min(total, end * unit) for end in accumulate(shares)]
    return tuple(range(start, end) for start, end in zip([0, *ends], ends, strict=False))


def best_unit(total: int, shards: int, least: int = 1) -> int:
    """Return the largest unit that divides ``total`` evenly among shards, else nearly evenly.

    Args:
        total: number of heads, features or rows.
        shards: number of shards.
        least: smallest unit that is allowed, a power of two.
    """
    fitting = [unit for unit in _UNITS if total % unit == 0 and unit >= least]
    even = [unit for unit in fitting if total // unit % shards == 0]
    fine = [unit for unit in fitting if total // unit >= _ENOUGH_UNITS * shards]
    return (even + fine + fitting[-1:] + [total])[0]
