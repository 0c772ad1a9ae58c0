"""Packed bitmasks over a vocabulary: bit ``i % 32`` of word ``i // 32`` is 1 where token ``i`` is allowed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from constrain import _core
from constrain._core import SetDigest as SetDigest
from constrain.arguments import check_count
from constrain.errors import BitmaskError, ConstrainError


def allocate_bitmask(rows: int, size: int) -> npt.NDArray[np.int32]:
    """Allocate a bitmask that allows every token: int32 ``(rows, ceil(size / 32))``.

    Raises:
        BitmaskError: a number is negative, or not an integer.
    """
    check_count("rows", rows, error=BitmaskError)
    check_count("size", size, error=BitmaskError)
    return np.full((rows, (size + 31) // 32), -1, dtype=np.int32)


def packed(tokens: Sequence[int] | npt.NDArray[np.int64], words: int) -> npt.NDArray[np.int32]:
    """Pack token ids, all below ``32 * words``, into a row of a bitmask that allows exactly these."""
    flags = np.zeros(words * 32, dtype=np.uint8)
    flags[np.asarray(tokens, dtype=np.int64)] = 1
    return np.packbits(flags, bitorder="little").view(np.int32)


def pack_ids(ids: Any, words: int) -> npt.NDArray[np.int32] | None:
    """Pack a set, frozenset, list, tuple or array of token ids, like :func:`packed`, in native code.

    Returns:
        The row; ``None`` if the collection has another type, an element is not an ``int``, or an id does not fit.
    """
    return _core.pack_ids(ids, words)


def unpacked(row: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
    """Unpack a row of a bitmask into the allowed token ids, ascending."""
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))


def set_bits(mask: Any, size: int) -> npt.NDArray[np.bool_]:
    """Return a mask, which has ``fill(bits)``, as one Boolean for each of ``size`` tokens."""
    bits = np.empty((size + 31) // 32, dtype=np.int32)
    mask.fill(bits)
    return np.unpackbits(bits.view(np.uint8), count=size, bitorder="little").view(np.bool_)


def mass(mask: Any, probabilities: npt.ArrayLike) -> float:
    """Return the sum of the probabilities of the tokens of a mask, in float64.

    Args:
        mask: the mask, which has ``fill(bits)``.
        probabilities: one number for each token of the model.

    Raises:
        BitmaskError: the probabilities have not one dimension.
    """
    shares = np.asarray(probabilities, dtype=np.float64)
    if shares.ndim != 1:
        raise BitmaskError(f"probabilities are one number for each token, not an array of shape {shares.shape}")
    return float(shares[set_bits(mask, len(shares))].sum())


def fill_bitmasks(
    matchers: Sequence[_core.Matcher],
    bits: Any,
    rows: Sequence[int] | None = None,
    threads: int | None = None,
    *,
    budgets: Sequence[int | None] | None = None,
) -> None:
    """Fill one row for each matcher, on several threads.

    Args:
        matchers: the matchers, no two of which are clones of one another.
        bits: a bitmask of :func:`allocate_bitmask`, or any writable int32 buffer or CPU tensor of that shape.
        rows: the row for each matcher; by default the first rows.
        threads: maximum number of threads; by default one for each processor.
        budgets: for each matcher the remaining tokens, the end-of-sequence token included, or ``None``; see
            :meth:`Matcher.fill_bitmask`.

    Raises:
        BitmaskError: the buffer does not fit, or another argument is invalid.
        BudgetError: a budget is less than its matcher's ``min_tokens()``.
    """
    try:
        _core.fill_bitmasks(
            matchers,
            bits,
            range(len(matchers)) if rows is None else rows,
            [None] * len(matchers) if budgets is None else budgets,
            threads or os.cpu_count() or 1,
        )
    except ConstrainError:
        raise
    except (TypeError, ValueError) as error:
        raise BitmaskError(
            "matchers must be a list of matchers, rows and budgets lists of numbers of at least 0 with one for each "
            "matcher, and threads a number of at least 1"
        ) from error
