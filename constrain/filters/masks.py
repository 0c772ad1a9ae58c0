"""Sets of tokens that filters allow, with a name by which a copy of them elsewhere is found again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from constrain import _core


#: Tokens of a mask that is told by them rather than by its bits.
MOST_FEW = 64


class TokenMask(Protocol):
    """An immutable set of tokens."""

    @property
    def key(self) -> Hashable:
        """Its name: masks of one name are equal, as long as one of them is kept."""

    @property
    def empty(self) -> bool:
        """Whether there is no token, as far as that is known without counting."""

    @property
    def few(self) -> Sequence[int] | None:
        """The tokens, ascending, where they are known to be :data:`MOST_FEW` at most."""

    def row(self) -> np.ndarray:
        """The tokens as a packed row: int32, bit ``i % 32`` of word ``i // 32``; not to be changed."""


class EngineMask:
    """A mask of the engine, which names them itself."""

    __slots__ = ("_mask", "_words", "key")

    def __init__(self, mask: _core.Mask, words: int) -> None:
        """``words``: of a row."""
        self.key = mask.id
        self._mask, self._words = mask, words

    @property
    def empty(self) -> bool:
        return self._mask.count == 0

    @property
    def few(self) -> Sequence[int] | None:
        return self._mask.tokens if self._mask.count <= MOST_FEW else None

    def row(self) -> np.ndarray:
        bits = np.empty(self._words, dtype=np.int32)
        self._mask.fill(bits)
        return bits


class RowMask:
    """A mask that is known by its bits alone."""

    def __init__(self, bits: np.ndarray) -> None:
        self._bits = bits

    @cached_property
    def key(self) -> bytes:
        return blake2b(self._bits.tobytes(), digest_size=16).digest()

    @property
    def empty(self) -> bool:
        return self.few == []

    @cached_property
    def few(self) -> Sequence[int] | None:
        """The token, where there is only one."""
        set_words = np.flatnonzero(self._bits)
        if set_words.size == 0:
            return []
        word = int(self._bits[set_words[0]]) & 0xFFFFFFFF
        if set_words.size > 1 or word & (word - 1):
            return None
        return [int(set_words[0]) * 32 + word.bit_length() - 1]

    def row(self) -> np.ndarray:
        return self._bits
