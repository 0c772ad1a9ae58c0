"""A tensor that grows along one dimension."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_MIN_CAPACITY = 64


class SeqTensor:
    """Growable tensor: appending costs amortised time in what is appended, however much there is already.

    Args:
        shape: of the tensor; its size along ``seq_dim`` is ignored.
        dtype, device: of the tensor.
        seq_dim: the dimension that grows; may be negative.
        init_cap: capacity to begin with; -1: a default.
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
        self._open: list[float] = []

    @staticmethod
    def from_tensor(tensor: Tensor, seq_dim: int) -> SeqTensor:
        """A copy of ``tensor``."""
        made = SeqTensor(tensor.shape, tensor.dtype, seq_dim, tensor.device, init_cap=tensor.shape[seq_dim])
        made.append(tensor)
        return made

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return self._length > 0

    def append(self, new_data: Tensor | SeqTensor | None) -> None:
        """Add at the end; ``None`` adds nothing."""
        if new_data is None:
            return
        tensor = new_data.torch() if isinstance(new_data, SeqTensor) else new_data
        self._close()
        end = self._length + tensor.shape[self.seq_dim]
        if end > self._storage.shape[self.seq_dim]:
            self._grow(end)
        self._storage.narrow(self.seq_dim, self._length, end - self._length).copy_(tensor)
        self._length = end

    def append_one(self, value: float) -> None:
        """Add a number at the end of a tensor whose other dimensions are 1."""
        # They become a tensor together, since making one takes as long for one number as for many.
        self._open.append(value)
        self._length += 1

    def set(self, new_data: Tensor | SeqTensor | None = None) -> None:
        """Replace all content."""
        # What is set may be a view of this very storage.
        content = new_data.torch() if isinstance(new_data, SeqTensor) else new_data
        content = None if content is None else content.clone()
        self.clear()
        self.append(content)

    def clear(self) -> None:
        """Forget all content."""
        self._open.clear()
        self._length = 0

    def truncate(self, new_len: int) -> None:
        """Forget everything from ``new_len`` on."""
        self._close()
        self._length = min(self._length, new_len)

    def torch(self) -> Tensor:
        """View of the content."""
        self._close()
        return self._storage.narrow(self.seq_dim, 0, self._length)

    def torch_slice(self, a: int | None, b: int | None) -> Tensor:
        """View of the content from ``a`` to ``b``; ``None`` is an open end."""
        index = [slice(None)] * self._storage.dim()
        index[self.seq_dim] = slice(a, b)
        return self.torch()[tuple(index)]

    def slice(self, a: int | None, b: int | None) -> SeqTensor:
        """Copy of the content from ``a`` to ``b``; ``None`` is an open end."""
        return SeqTensor.from_tensor(self.torch_slice(a, b), self.seq_dim)

    def clone(self, drop: int | None = None) -> SeqTensor:
        """Copy of the content, without the last ``drop``."""
        return self.slice(None, max(0, self._length - (drop or 0)))

    def _close(self) -> None:
        """Bring what was added number by number to the rest."""
        if not self._open:
            return
        numbers, self._open = self._open, []
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
