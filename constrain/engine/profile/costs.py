"""Costs of single masks, and figures over many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

#: Number of bytes that are shown of the document before a mask.
_SHOWN = 40


@dataclass(frozen=True)
class MaskCost:
    """The cost of one mask, and what was done for it.

    Attributes:
        document: number of the document, from 0: those given first, then the sampled ones.
        position: bytes of the document before the mask.
        pointer: JSON pointer to the value there, or to the object that expects a key.
        before: the last bytes before it, as text.
        seconds: time.
        allowed: number of allowed tokens.
        cached: whether the mask was found in the cache of masks.
        nodes_visited: nodes of the vocabulary's trie that were visited.
        frames_walked: frames of the parse stack for which the trie was walked.
        rows_built: rows of the parse table that were built.
        within_budget: whether only tokens were allowed after which the rest fits into a number of tokens.
    """

    document: int
    position: int
    pointer: str
    before: str
    seconds: float
    allowed: int
    cached: bool
    nodes_visited: int
    frames_walked: int
    rows_built: int
    within_budget: bool = False

    @property
    def reason(self) -> str:
        """Why the mask took its time, in words."""
        parts = ["found in the cache"] if self.cached else [f"{self.nodes_visited:,} nodes visited"]
        if self.frames_walked:
            parts.append(f"{self.frames_walked:,} frames walked")
        if self.rows_built:
            parts.append(f"{self.rows_built:,} rows built")
        if self.within_budget:
            parts.append("limited to what fits the budget")
        return ", ".join(parts)


def shown(before: bytes) -> str:
    """Return the last bytes before a mask as text."""
    return before[-_SHOWN:].decode(errors="replace")


@dataclass(frozen=True)
class MaskTimes:
    """Figures over masks.

    Attributes:
        count: number of masks.
        cached: how many of them were found in the cache of masks.
        mean, p50, p99, slowest: times in seconds; 0 without a mask.
        nodes_visited: mean number of nodes visited.
    """

    count: int
    cached: int
    mean: float
    p50: float
    p99: float
    slowest: float
    nodes_visited: float

    @classmethod
    def of(cls, masks: Sequence[MaskCost]) -> MaskTimes:
        """Return the figures over some masks."""
        times = sorted(mask.seconds for mask in masks) or [0.0]
        count = max(1, len(masks))
        return cls(
            len(masks),
            sum(mask.cached for mask in masks),
            sum(times) / count,
            times[ceil(0.5 * len(times)) - 1],
            times[ceil(0.99 * len(times)) - 1],
            times[-1],
            sum(mask.nodes_visited for mask in masks) / count,
        )
