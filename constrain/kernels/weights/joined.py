"""Several weights of the same inputs as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
import torch.nn.functional as F

from constrain.kernels.weights.packed import PackedWeight, Weight


def join_weights(parts: Sequence[Weight], outputs: int, dtype: torch.dtype) -> PackedWeight:
    """Return the rows of several weights, and zeros up to ``outputs``, prepared for states of ``dtype``.

    At least one of them is packed.
    """
    packed = [part for part in parts if isinstance(part, PackedWeight)]
    merged = parts[0] if len(parts) == 1 else type(packed[0]).merged(packed)
    if not isinstance(merged, PackedWeight) or len(packed) < len(parts):
        return JoinedWeight(parts, dtype).prepared(dtype)
    if merged.shape[0] < outputs:
        merged = merged.padded(outputs)
    return merged.prepared(dtype)


class JoinedWeight(PackedWeight):
    """The rows of several weights, one after the other; for weights whose forms or orders of inputs differ.

    Attributes:
        parts: the weights, plain or packed, all of the same number of inputs.
        dtype: type of the parts that are plain, and of rows that are taken out.
    """

    def __init__(self, parts: Sequence[Weight], dtype: torch.dtype) -> None:
        self.parts, self.dtype = tuple(parts), dtype
        self._ends = list(accumulate(part.shape[0] for part in parts))

    @property
    def shape(self) -> tuple[int, int]:
        return self._ends[-1], self.parts[0].shape[1]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def device(self) -> torch.device:
        return self.parts[0].device

    def to(self, device: torch.device) -> JoinedWeight:
        """See :class:`PackedWeight`."""
        return JoinedWeight([part.to(device) for part in self.parts], self.dtype)

    def prepared(self, dtype: torch.dtype) -> JoinedWeight:
        """See :class:`PackedWeight`."""
        parts = [part if isinstance(part, torch.Tensor) else part.prepared(dtype) for part in self.parts]
        return JoinedWeight(parts, dtype)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """See :class:`PackedWeight`."""
        products = [F.linear(x, part) if isinstance(part, torch.Tensor) else part.product(x) for part in self.parts]
        return torch.cat(products, dim=-1)

    def dequantized(self, rows: torch.Tensor | slice, dtype: torch.dtype) -> torch.Tensor:
        """See :class:`PackedWeight`; every part dequantises as many rows as are asked for."""
        if isinstance(rows, slice):
            rows = torch.arange(self.shape[0], device=self.device)[rows]
        found = torch.empty(0)
        for part, end in zip(self.parts, self._ends, strict=True):
            start = end - part.shape[0]
            theirs = (rows - start).clamp(0, part.shape[0] - 1)
            values = part[theirs].to(dtype) if isinstance(part, torch.Tensor) else part.dequantized(theirs, dtype)
            found = values if start == 0 else torch.where((rows >= start).unsqueeze(-1), values, found)
        return found

    def __getitem__(self, rows: torch.Tensor) -> JoinedWeight:
        """See :class:`PackedWeight`; the rows are plain."""
        return JoinedWeight([self.dequantized(rows, self.dtype)], self.dtype)

    def padded(self, outputs: int) -> JoinedWeight:
        """See :class:`PackedWeight`; the new rows are plain."""
        rows, inputs = self.shape
        zeros = torch.zeros(outputs - rows, inputs, dtype=self.dtype, device=self.device)
        return JoinedWeight([*self.parts, zeros], self.dtype)
