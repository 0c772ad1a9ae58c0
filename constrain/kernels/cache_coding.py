"""How keys and values are written down in a cache: as they are, as short floats, or as rotated groups of integers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import TypeAlias

import torch

#: Tensors of equal leading dimensions, which together hold one array of states.
Parts: TypeAlias = tuple[torch.Tensor, ...]

_GROUP = 32
_HALF_MAX = torch.finfo(torch.half).max


class Coding(ABC):
    """A way to write down states ``[..., head_dim]``, head by head and position by position.

    Attributes:
        kernel_bits: of a state, in which the compiled kernels know the coding; 0 where they do not.
    """

    kernel_bits = 0

    @abstractmethod
    def layout(self, head_dim: int) -> list[tuple[int, torch.dtype]]:
        """Last dimension and dtype of each part."""

    @abstractmethod
    def encode(self, x: torch.Tensor) -> Parts:
        """The parts for states ``[..., head_dim]``."""

    @abstractmethod
    def decode(self, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
        """The states, in ``dtype``, that parts stand for."""


class PlainCoding(Coding):
    """States as they are, in the dtype in which the model computes.

    Args:
        dtype: of the states.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self.kernel_bits = 16 if dtype in (torch.half, torch.bfloat16) else 0

    def layout(self, head_dim: int) -> list[tuple[int, torch.dtype]]:
        return [(head_dim, self._dtype)]

    def encode(self, x: torch.Tensor) -> Parts:
        return (x,)

    def decode(self, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
        return parts[0]


class FloatCoding(Coding):
    """One byte an element: the upper half of a float16, which is a float8 e5m2 rounded towards zero.

    An element within the range of float16 loses less than a quarter of itself, or less than 2**-16 where it is smaller
    than 2**-14.
    """

    def layout(self, head_dim: int) -> list[tuple[int, torch.dtype]]:
        return [(head_dim, torch.uint8)]

    def encode(self, x: torch.Tensor) -> Parts:
        bits = x.clamp(-_HALF_MAX, _HALF_MAX).half().view(torch.int16)
        return ((bits >> 8).to(torch.uint8),)

    def decode(self, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
        return (parts[0].to(torch.int16) << 8).view(torch.half).to(dtype)


class GroupCoding(Coding):
    """Integers of 4 or 8 bits, and a float16 scale for every 32 elements of a head.

    Each group is turned by a Hadamard matrix first, which spreads an outlier over the group, so that it does not take
    the precision of the others (Ashkboos et al. 2024, QuaRot). The turned elements become the nearest of ``2**bits``
    steps from ``-scale`` to ``scale``, the largest of their magnitudes. So each is wrong by half a step at most, which
    is ``scale / (2**bits - 1)``, and the error of a group keeps its Euclidean norm when it is turned back.

    Heads that are not a multiple of 32 have groups of the largest power of two that divides them.

    Args:
        bits: 4 or 8.
    """

    def __init__(self, bits: int) -> None:
        self.bits = self.kernel_bits = bits
        self._half_range = (2**bits - 1) / 2

    def layout(self, head_dim: int) -> list[tuple[int, torch.dtype]]:
        return [(head_dim * self.bits // 8, torch.uint8), (head_dim // group_size(head_dim), torch.half)]

    def encode(self, x: torch.Tensor) -> Parts:
        size = group_size(x.shape[-1])
        turned = _grouped(x.float(), size) @ _hadamard(size, x.device)
        scale = turned.abs().amax(dim=-1).clamp(max=_HALF_MAX).half()
        steps = turned / scale.float().clamp(min=torch.finfo(torch.float).tiny).unsqueeze(-1)
        codes = ((steps.clamp(-1, 1) + 1) * self._half_range).round_().to(torch.uint8).flatten(-2)
        return (codes if self.bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4), scale

    def decode(self, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
        packed, scale = parts
        codes = packed if self.bits == 8 else torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
        size = codes.shape[-1] // scale.shape[-1]
        turned = (_grouped(codes, size) / self._half_range - 1) * scale.float().unsqueeze(-1)
        states: torch.Tensor = turned @ _hadamard(size, packed.device)
        return states.flatten(-2).to(dtype)


def group_size(head_dim: int) -> int:
    """Elements that share a scale: the largest power of two that divides ``head_dim``, but no more than 32."""
    return min(_GROUP, head_dim & -head_dim)


def _grouped(x: torch.Tensor, size: int) -> torch.Tensor:
    return x.reshape(*x.shape[:-1], -1, size)


@cache
def _hadamard(size: int, device: torch.device) -> torch.Tensor:
    """The orthonormal, symmetric Hadamard matrix of Sylvester's construction, which is its own inverse; float32."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.kron(matrix, torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
    matrix /= size**0.5
    return matrix.to(device)
