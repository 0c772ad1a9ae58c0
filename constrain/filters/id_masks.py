"""Collections of token ids, as filters return them, as masks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from numbers import Integral
from threading import Lock

import numpy as np
import numpy.typing as npt

from constrain.engine.bitmask import SetDigest, pack_ids, packed, unpacked
from constrain.errors import FilterError
from constrain.filters.masks import RowMask, row

#: Number of ids from which on the mask of a set is kept, and most of such masks.
_LARGE, _MAX_KEPT = 4096, 1024


class IdMasks:
    """Masks of collections of ids, shared by the filters of a step.

    A frozenset or tuple that many filters return is packed once. Other collections may have changed since they were
    packed, even within a step, so they are packed again, except large sets whose hash tables are as they were; those
    with equal ids get the same mask.
    """

    def __init__(self) -> None:
        # The collection itself is kept, so that no other one gets its identity.
        self._of_constants: dict[tuple[int, int], tuple[Collection[int], RowMask]] = {}
        self._of_rows: dict[bytes, RowMask] = {}

    def mask(self, ids: Collection[int], words: int) -> RowMask:
        """Return the mask of a collection, as a row of ``words`` words; errors as for :func:`pack`."""
        if type(ids) is set and len(ids) >= _LARGE:
            return _large_sets.mask(ids, words, self._of_row)
        if type(ids) is not frozenset and type(ids) is not tuple:
            return self._of_row(ids, words)
        key = id(ids), words
        if key not in self._of_constants:
            self._of_constants[key] = ids, self._of_row(ids, words)
        return self._of_constants[key][1]

    def _of_row(self, ids: Collection[int], words: int) -> RowMask:
        bits = pack(ids, words)
        return self._of_rows.setdefault(bits.tobytes(), RowMask(bits))


class LargeSets:
    """Masks of large sets, as long as these do not change: a digest of a hash table takes less time than packing."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[SetDigest, RowMask]] = {}
        self._lock = Lock()

    def mask(self, ids: set[int], words: int, make: Callable[[set[int], int], RowMask]) -> RowMask:
        """Return the mask of a set, by ``make`` if the set has changed."""
        key = id(ids), words
        with self._lock:
            # Before it is packed: if it changes meanwhile, its next digest is another.
            digest, known = SetDigest(ids), self._known.pop(key, None)
            mask = known[1] if known is not None and known[0] == digest else make(ids, words)
            while len(self._known) >= _MAX_KEPT:
                del self._known[next(iter(self._known))]  # the one that was wanted longest ago
            self._known[key] = digest, mask
            return mask


_masks, _large_sets = IdMasks(), LargeSets()


def new_step() -> None:
    """Start a step of all sequences, with an empty cache."""
    global _masks
    _masks = IdMasks()


def mask_of_ids(ids: Collection[int], words: int) -> RowMask:
    """Return the mask of a collection of ids; errors as for :func:`pack`."""
    return _masks.mask(ids, words)


def first_of(mask: RowMask) -> int:
    """Return the smallest token of a mask, which must not be empty."""
    return int(unpacked(row(mask, mask.words))[0])


def pack(ids: Collection[int], words: int) -> npt.NDArray[np.int32]:
    """Pack ids into a row of a bitmask.

    Raises:
        FilterError: an element is not an integer, or an id is outside the row.
    """
    bits = pack_ids(ids, words)
    if bits is not None:
        return bits
    # Ids of other types than ``int``, or an element that is no id, which the error names.
    kinds = {each for each in set(map(type, ids)) if each is bool or not issubclass(each, Integral)}
    if kinds:
        wrong = next(each for each in ids if type(each) in kinds)
        raise FilterError(f"next() returned {wrong!r:.60}, which is no token id, but of type {type(wrong).__name__}")
    outside = [each for each in (min(ids), max(ids)) if not 0 <= each < words * 32] if len(ids) else []
    if outside:
        raise FilterError(f"next() returned token id {outside[0]}, outside the {words * 32} of the model")
    return packed(np.fromiter(ids, dtype=np.int64, count=len(ids)), words)
