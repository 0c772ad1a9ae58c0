"""A tensor that grows along one dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_MIN_CAPACITY = 64


class SeqTensor:
    """Growable tensor; appending takes amortised time proportional to the size of the new data.

    Args:
        shape: shape of the tensor; its size along ``seq_dim`` is ignored.
        dtype, device: dtype and device of the tensor.
        seq_dim: the dimension that grows; may be negative.
        init_cap: initial capacity; -1: a default.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        seq_dim: int,
        device: torch.device | str = "cpu",
        init_cap: int = -1,
    ) -> None:
        self.seq_dim = seq_dim % len(shape)
        capacity = _MIN_CAPACITY if init_cap < 0 else init_cap
        sizes = [capacity if dim == self.seq_dim else size for dim, size in enumerate(shape)]
        self._storage = torch.empty(sizes, dtype=dtype, device=device)
        self._length = 0
        self._pending: list[float] = []

    @staticmethod
    def from_tensor(tensor: Tensor, seq_dim: int) -> SeqTensor:
        """Copy ``tensor``."""
        copy = SeqTensor(tensor.shape, tensor.dtype, seq_dim, tensor.device, init_cap=tensor.shape[seq_dim])
        copy.append(tensor)
        return copy

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return self._length > 0

    def append(self, new_data: Tensor | SeqTensor | None) -> None:
        """Append data; ``None`` appends nothing."""
        if new_data is None:
            return
        tensor = new_data.torch() if isinstance(new_data, SeqTensor) else new_data
        self._flush()
        end = self._length + tensor.shape[self.seq_dim]
        if end > self._storage.shape[self.seq_dim]:
            self._grow(end)
        self._storage.narrow(self.seq_dim, self._length, end - self._length).copy_(tensor)
        self._length = end

    def append_one(self, value: float) -> None:
        """Append a number to a tensor whose other dimensions are 1."""
        # Collected and converted together, since creating a tensor takes as long for one number as for many.
        self._pending.append(value)
        self._length += 1

    def set(self, new_data: Tensor | SeqTensor | None = None) -> None:
        """Replace the content."""
        # The new content may be a view of this storage.
        content = new_data.torch() if isinstance(new_data, SeqTensor) else new_data
        content = None if content is None else content.clone()
        self.clear()
        self.append(content)

    def clear(self) -> None:
        """Remove the content."""
        self._pending.clear()
        self._length = 0

    def truncate(self, new_len: int) -> None:
        """Remove the content from ``new_len`` on."""
        self._flush()
        self._length = min(self._length, new_len)

    def torch(self) -> Tensor:
        """View of the content."""
        self._flush()
        return self._storage.narrow(self.seq_dim, 0, self._length)

    def torch_slice(self, a: int | None, b: int | None) -> Tensor:
        """View of the content from ``a`` to ``b``; ``None`` is an open end."""
        index = [slice(None)] * self._storage.dim()
        index[self.seq_dim] = slice(a, b)
        return self.torch()[tuple(index)]

    def last(self, start: int) -> list[Any]:
        """Numbers from ``start`` on of a tensor whose other dimensions are 1."""
        stored = self._length - len(self._pending)
        if start >= stored:
            return self._pending[start - stored :]
        return [*self._storage.narrow(self.seq_dim, start, stored - start).flatten().tolist(), *self._pending]

    def slice(self, a: int | None, b: int | None) -> SeqTensor:
        """Copy of the content from ``a`` to ``b``; ``None`` is an open end."""
        return SeqTensor.from_tensor(self.torch_slice(a, b), self.seq_dim)

    def clone(self, drop: int | None = None) -> SeqTensor:
        """Copy of the content without the last ``drop`` entries."""
        return self.slice(None, max(0, self._length - (drop or 0)))

    def _flush(self) -> None:
        """Move numbers of :meth:`append_one` to the storage."""
        if not self._pending:
            return
        numbers, self._pending = self._pending, []
        self._length -= len(numbers)
        shape = [1] * self._storage.dim()
        shape[self.seq_dim] = len(numbers)
        self.append(torch.tensor(numbers, dtype=self._storage.dtype).view(shape))

    def _grow(self, length: int) -> None:
        sizes = list(self._storage.shape)
        sizes[self.seq_dim] = max(length, 2 * sizes[self.seq_dim])
        grown = self._storage.new_empty(sizes)
        grown.narrow(self.seq_dim, 0, self._length).copy_(self.torch())
        self._storage = grown
