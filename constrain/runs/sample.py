"""Random samples of inputs of unknown number."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def sample(items: Iterable[T], number: int, seed: int = 0) -> list[T]:
    """Return some of the items, each with the same probability, in their order; all if there are not more.

    Reservoir sampling (Vitter 1985, algorithm R): only ``number`` items are in memory.

    Args:
        items: the items.
        number: how many to return.
        seed: the same seed gives the same sample of the same items.
    """
    chance = random.Random(seed)
    kept: list[tuple[int, T]] = []
    for position, item in enumerate(items):
        if len(kept) < number:
            kept.append((position, item))
        elif (slot := chance.randrange(position + 1)) < number:
            kept[slot] = position, item
    return [item for _, item in sorted(kept, key=lambda each: each[0])]
