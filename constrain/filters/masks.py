"""Sets of allowed tokens, with an identity by which a copy on a device is found again."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from constrain.engine.bitmask import packed, unpacked

#: Most tokens of a mask that is sent as a list of tokens rather than as bits.
MOST_FEW = 64
#: Combinations of masks that are cached, of each kind.
_CACHED = 256


class TokenMask(Protocol):
    """An immutable set of tokens, such as the engine's own masks are."""

    @property
    def id(self) -> Hashable:
        """Its identity: masks of the same identity are equal, as long as one of them is referenced."""

    @property
    def count(self) -> int:
        """Number of tokens."""

    @property
    def tokens(self) -> Sequence[int] | None:
        """The tokens, ascending, where they are few; ``None`` where they are many, but never for :data:`MOST_FEW`."""

    def __contains__(self, token: int, /) -> bool:
        """Whether a token is allowed."""

    def fill(self, bits: Any) -> None:
        """Write the tokens into a row of bits: int32, bit ``i % 32`` of word ``i // 32``."""


class RowMask:
    """A mask that is known by its bits alone; tokens beyond them are excluded."""

    def __init__(self, bits: npt.NDArray[np.int32]) -> None:
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

    def __contains__(self, token: int, /) -> bool:
        return 0 <= token < 32 * len(self._bits) and bool(self._bits[token >> 5] >> (token & 31) & 1)

    def fill(self, bits: Any) -> None:
        bits[: len(self._bits)] = self._bits
        bits[len(self._bits) :] = 0


def few(mask: TokenMask | None) -> Sequence[int] | None:
    """The tokens of a mask, if they are :data:`MOST_FEW` at most."""
    return None if mask is None or mask.count > MOST_FEW else mask.tokens


def row(mask: TokenMask, words: int) -> npt.NDArray[np.int32]:
    """A mask as a packed row of this many words."""
    bits = np.empty(words, dtype=np.int32)
    mask.fill(bits)
    return bits


def flags(mask: TokenMask | None, width: int) -> npt.NDArray[np.bool_]:
    """Whether a mask, ``None`` for all tokens, allows each of this many tokens."""
    if mask is None:
        return np.ones(width, dtype=np.bool_)
    bits = row(mask, (width + 31) // 32).view(np.uint8)
    return np.unpackbits(bits, count=width, bitorder="little").view(np.bool_)


def contains(mask: TokenMask | None, token: int) -> bool:
    """Whether a mask allows a token; ``None`` allows all."""
    return mask is None or token in mask


def intersect(masks: Iterable[TokenMask], words: int) -> TokenMask:
    """The tokens that all of some masks, at least one, allow.

    Args:
        masks: the masks.
        words: of a packed row.
    """
    distinct = {mask.id: mask for mask in masks}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    return _intersection(frozenset(map(_Key, distinct.values())), words)


def exclude(mask: TokenMask | None, tokens: Collection[int], width: int) -> TokenMask:
    """A mask without some tokens; the mask itself where nothing would be left.

    Args:
        mask: the mask; ``None`` for all tokens.
        tokens: those that are excluded.
        width: number of logits.
    """
    if mask is None:
        mask = _all(width)
    return _difference(_Key(mask), frozenset(tokens), (width + 31) // 32)


@overload
def only_end(mask: TokenMask, eos: int | None) -> TokenMask: ...
@overload
def only_end(mask: TokenMask | None, eos: int | None) -> TokenMask | None: ...
def only_end(mask: TokenMask | None, eos: int | None) -> TokenMask | None:
    """The end of the sequence alone, where a mask allows it; the mask itself elsewhere.

    ``None``, the mask of a constraint that excludes nothing, stays.
    """
    return mask if mask is None or eos is None or eos not in mask else _single(eos)


class _Key:
    """A mask by its identity, which it keeps valid by referring to the mask."""

    def __init__(self, mask: TokenMask) -> None:
        self.mask = mask

    def __hash__(self) -> int:
        return hash(self.mask.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.mask.id == other.mask.id


@lru_cache(_CACHED)
def _intersection(keys: frozenset[_Key], words: int) -> TokenMask:
    return RowMask(np.bitwise_and.reduce([row(key.mask, words) for key in keys]))


@lru_cache(_CACHED)
def _difference(key: _Key, tokens: frozenset[int], words: int) -> TokenMask:
    found = [token for token in tokens if token in key.mask]
    if not found or len(found) == key.mask.count:
        return key.mask
    return RowMask(row(key.mask, words) & ~packed(found, words))


@lru_cache(_CACHED)
def _single(token: int) -> TokenMask:
    return RowMask(packed([token], (token >> 5) + 1))


@lru_cache(8)
def _all(width: int) -> TokenMask:
    return RowMask(packed(np.arange(width), (width + 31) // 32))
