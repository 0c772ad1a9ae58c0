"""Sets of tokens that filters allow, with a name by which a copy of them elsewhere is found again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

from constrain.engine.bitmask import unpacked

#: Tokens of a mask that is told by them rather than by its bits.
MOST_FEW = 64


class TokenMask(Protocol):
    """An immutable set of tokens, such as the engine's own masks are."""

    @property
    def id(self) -> Hashable:
        """Its name: masks of one name are equal, as long as one of them is kept."""

    @property
    def count(self) -> int:
        """Number of tokens."""

    @property
    def tokens(self) -> Sequence[int] | None:
        """The tokens, ascending, where they are few; ``None`` where they are many, but never for :data:`MOST_FEW`."""

    def fill(self, bits: Any) -> None:
        """Write the tokens into a row of bits: int32, bit ``i % 32`` of word ``i // 32``."""


class RowMask:
    """A mask that is known by its bits alone."""

    def __init__(self, bits: np.ndarray) -> None:
        self._bits = bits

    @cached_property
    def id(self) -> bytes:
        return blake2b(self._bits.tobytes(), digest_size=16).digest()

    @cached_property
    def count(self) -> int:
        return int.from_bytes(self._bits.tobytes(), "little").bit_count()

    @cached_property
    def tokens(self) -> Sequence[int] | None:
        return unpacked(self._bits).tolist() if self.count <= MOST_FEW else None

    def fill(self, bits: Any) -> None:
        bits[:] = self._bits


def few(mask: TokenMask | None) -> Sequence[int] | None:
    """The tokens of a mask, if they are :data:`MOST_FEW` at most."""
    return None if mask is None or mask.count > MOST_FEW else mask.tokens


def row(mask: TokenMask, words: int) -> np.ndarray:
    """A mask as a packed row of so many words."""
    bits = np.empty(words, dtype=np.int32)
    mask.fill(bits)
    return bits
