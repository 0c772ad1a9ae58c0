"""Masks: sets of allowed tokens, with an identity by which copies on a device are cached."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from constrain.engine.bitmask import mass, packed, set_bits, unpacked

#: Maximum number of tokens of a mask that is sent to the device as a list of ids instead of bits.
MAX_LISTED_TOKENS = 64
#: Capacity of the caches of intersections, differences and single tokens.
_CACHE_SIZE = 256


class TokenMask(Protocol):
    """An immutable set of tokens. The engine's masks implement this protocol."""

    @property
    def id(self) -> Hashable:
        """Identity: masks with the same one are equal. Valid as long as one of them is referenced."""

    @property
    def count(self) -> int:
        """Number of tokens."""

    @property
    def tokens(self) -> Sequence[int] | None:
        """The tokens, ascending; ``None`` if there are many, but never for up to :data:`MAX_LISTED_TOKENS`."""

    def __contains__(self, token: int, /) -> bool:
        """Whether a token is allowed."""

    def fill(self, bits: Any) -> None:
        """Write the tokens into a packed row: int32, bit ``i % 32`` of word ``i // 32``."""

    def mass(self, probabilities: npt.ArrayLike) -> float:
        """Return the sum of the probabilities of the tokens; ``probabilities``: one number for each of the model's."""


class RowMask:
    """A mask of a packed row; tokens beyond the row are excluded."""

    def __init__(self, bits: npt.NDArray[np.int32]) -> None:
        self._bits = bits

    @property
    def words(self) -> int:
        """Number of words of the row."""
        return len(self._bits)

    @cached_property
    def id(self) -> bytes:
        return blake2b(self._bits.tobytes(), digest_size=16).digest()

    @cached_property
    def count(self) -> int:
        return int.from_bytes(self._bits.tobytes(), "little").bit_count()

    @cached_property
    def tokens(self) -> Sequence[int] | None:
        return unpacked(self._bits).tolist() if self.count <= MAX_LISTED_TOKENS else None

    def __contains__(self, token: int, /) -> bool:
        return 0 <= token < 32 * len(self._bits) and bool(self._bits[token >> 5] >> (token & 31) & 1)

    def fill(self, bits: Any) -> None:
        bits[: len(self._bits)] = self._bits
        bits[len(self._bits) :] = 0

    def mass(self, probabilities: npt.ArrayLike) -> float:
        return mass(self, probabilities)


def mask_of(tokens: Sequence[int], width: int) -> RowMask:
    """Return the mask that allows exactly these of ``width`` tokens."""
    return RowMask(packed(tokens, (width + 31) // 32))


def token_list(mask: TokenMask | None) -> Sequence[int] | None:
    """Return the tokens of a mask, if there are at most :data:`MAX_LISTED_TOKENS`."""
    return None if mask is None or mask.count > MAX_LISTED_TOKENS else mask.tokens


def all_tokens(mask: TokenMask, width: int) -> npt.NDArray[np.intp]:
    """Return the tokens of a mask, ascending; ``width`` is the number of logits."""
    listed = mask.tokens
    return np.flatnonzero(flags(mask, width)) if listed is None else np.array(listed, dtype=np.intp)


def row(mask: TokenMask, words: int) -> npt.NDArray[np.int32]:
    """Return a mask as a packed row of ``words`` words."""
    bits = np.empty(words, dtype=np.int32)
    mask.fill(bits)
    return bits


def flags(mask: TokenMask | None, width: int) -> npt.NDArray[np.bool_]:
    """Return a mask (``None`` for all tokens) as one Boolean for each of ``width`` tokens."""
    if mask is None:
        return np.ones(width, dtype=np.bool_)
    return set_bits(mask, width)


def contains(mask: TokenMask | None, token: int) -> bool:
    """Whether a mask allows a token; ``None`` allows all."""
    return mask is None or token in mask


def intersect(masks: Iterable[TokenMask], words: int) -> TokenMask:
    """Intersect masks.

    Args:
        masks: the masks, at least one.
        words: number of words of a packed row.
    """
    distinct = {mask.id: mask for mask in masks}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    return _intersection(frozenset(map(_Key, distinct.values())), words)


def exclude(mask: TokenMask | None, tokens: Collection[int], width: int) -> TokenMask:
    """Remove tokens from a mask; returns the mask itself if no token would remain.

    Args:
        mask: the mask; ``None`` for all tokens.
        tokens: the tokens to remove.
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
    """Reduce a mask that allows the end-of-sequence token to this token; other masks, and ``None``, are unchanged."""
    return mask if mask is None or eos is None or eos not in mask else _single(eos)


class _Key:
    """A key of caches: the identity of a mask, with a reference to the mask that keeps it valid."""

    def __init__(self, mask: TokenMask) -> None:
        self.mask = mask

    def __hash__(self) -> int:
        return hash(self.mask.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.mask.id == other.mask.id


@lru_cache(_CACHE_SIZE)
def _intersection(keys: frozenset[_Key], words: int) -> TokenMask:
    return RowMask(np.bitwise_and.reduce([row(key.mask, words) for key in keys]))


@lru_cache(_CACHE_SIZE)
def _difference(key: _Key, tokens: frozenset[int], words: int) -> TokenMask:
    found = [token for token in tokens if token in key.mask]
    if not found or len(found) == key.mask.count:
        return key.mask
    return RowMask(row(key.mask, words) & ~packed(found, words))


@lru_cache(_CACHE_SIZE)
def _single(token: int) -> TokenMask:
    return mask_of([token], token + 1)


@lru_cache(8)
def _all(width: int) -> TokenMask:
    return mask_of(range(width), width)
