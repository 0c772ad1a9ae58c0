"""The interface of weights that stay packed in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import torch
import torch.nn.functional as F

from constrain.kernels.activation import Activation, gated_activation
from constrain.kernels.norm import RowNorm, normed

# Elements that are dequantised at a time, so that a product needs little memory in addition to the weight.
_PIECE = 1 << 24


class PackedWeight(ABC):
    """A weight ``[outputs, inputs]`` in fewer bits than products with it are computed in.

    The products here are the reference: rows are dequantised a few at a time. A class with a kernel overrides
    :meth:`product`, and :meth:`linear` and :meth:`gated_linear` where the kernel fuses more.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """``(outputs, inputs)``."""

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(tensor.nbytes for _, tensor in self._tensors())

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        _, tensor = next(self._tensors())
        found: torch.device = tensor.device
        return found

    def to(self, device: torch.device) -> PackedWeight:
        """Return a copy of this weight on another device."""
        moved = copy(self)
        moved.__dict__.update((name, tensor.to(device)) for name, tensor in self._tensors())
        return moved

    @abstractmethod
    def dequantized(self, rows: torch.Tensor | slice, dtype: torch.dtype) -> torch.Tensor:
        """Return rows as ``dtype``: int64 ``[...]`` or a slice of n to ``[..., inputs]`` or ``[n, inputs]``."""

    @abstractmethod
    def __getitem__(self, rows: torch.Tensor) -> Weight:
        """Return the weight of rows, int64 ``[n]``, packed or plain."""

    def rows(self, outputs: range) -> Weight:
        """Return the weight of some neighbouring outputs, packed or plain."""
        return self[torch.arange(outputs.start, outputs.stop)]

    def columns(self, inputs: range) -> PackedWeight | None:
        """Return the weight of some neighbouring inputs; ``None`` if they cannot be told apart from the others."""
        return None

    @abstractmethod
    def padded(self, outputs: int) -> PackedWeight:
        """Return this weight with rows of zeros up to ``outputs``."""

    @classmethod
    def merged(cls, parts: Sequence[PackedWeight]) -> PackedWeight | None:
        """Return several weights of the same inputs as one, row after row; ``None`` if this class cannot."""
        return None

    def prepared(self, dtype: torch.dtype) -> PackedWeight:
        """Return this weight in the form that its device multiplies fastest by states of ``dtype``.

        That form may be another class, which needs about the same memory and not this object. Called once, when the
        weight is loaded.
        """
        return self

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """``x @ weight.T``: ``[..., inputs]`` to a new contiguous ``[..., outputs]`` of the dtype of ``x``."""
        outputs, inputs = self.shape
        step = max(1, _PIECE // max(1, inputs))
        pieces = [
            F.linear(x, self.dequantized(slice(start, min(start + step, outputs)), x.dtype))
            for start in range(0, outputs, step)
        ]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1)

    def linear(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        norm: RowNorm | None = None,
    ) -> torch.Tensor:
        """See :func:`constrain.kernels.linear`."""
        y = self.product(normed(x, norm))
        if bias is not None:
            y.add_(bias)
        return y if residual is None else y.add_(residual)

    def gated_linear(
        self, x: torch.Tensor, bias: torch.Tensor | None, activation: Activation, norm: RowNorm | None = None
    ) -> torch.Tensor:
        """See :func:`constrain.kernels.gated_linear`."""
        return gated_activation(self.linear(x, bias, norm=norm), activation)

    def _tensors(self) -> Iterator[tuple[str, Any]]:
        """Attributes that are tensors, by name."""
        return ((name, value) for name, value in vars(self).items() if isinstance(value, torch.Tensor))


Weight = torch.Tensor | PackedWeight
"""A weight ``[outputs, inputs]``, plain or packed."""
