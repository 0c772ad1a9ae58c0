"""Formats of a KV cache: keys and values as they are, as truncated floats, or as groups of small integers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import TypeAlias

import torch

#: Tensors of equal leading dimensions that together hold an array of keys or values.
Parts: TypeAlias = tuple[torch.Tensor, ...]

_GROUP = 32
_HALF_MAX = torch.finfo(torch.half).max


class KVQuantization(ABC):
    """A format of states ``[..., head_dim]``, which is applied to each head and position on its own.

    Attributes:
        kernel_format: name by which the compiled kernels know the format; empty where they do not.
    """

    kernel_format = ""

    @abstractmethod
    def layout(self, head_dim: int) -> list[tuple[int, torch.dtype]]:
        """Return the last dimension and the dtype of each part."""

    @abstractmethod
    def quantize(self, x: torch.Tensor) -> Parts:
        """Return the parts for states ``[..., head_dim]``."""

    @abstractmethod
    def dequantize(self, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
        """Return the states ``[..., head_dim]`` that parts stand for, in ``dtype``."""


class Unquantized(KVQuantization):
    """States as they are, in the dtype in which the model computes.

    Args:
        dtype: of the states.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self.kernel_format = "plain" if dtype in (torch.half, torch.bfloat16) else ""

    def layout(self, head_dim: int) -> list[tuple[int, torch.dtype]]:
        return [(head_dim, self._dtype)]

    def quantize(self, x: torch.Tensor) -> Parts:
        return (x,)

    def dequantize(self, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
        return parts[0]


class TruncatedFloat(KVQuantization):
    """One byte an element: the upper half of a float16, which is a float8 e5m2 rounded towards zero.

    An element within the range of float16 loses less than a quarter of itself, or less than 2**-16 where it is smaller
    than 2**-14.
    """

    kernel_format = "float8"

    def layout(self, head_dim: int) -> list[tuple[int, torch.dtype]]:
        return [(head_dim, torch.uint8)]

    def quantize(self, x: torch.Tensor) -> Parts:
        bits = x.float().clamp(-_HALF_MAX, _HALF_MAX).half().view(torch.int16)
        return ((bits >> 8).to(torch.uint8),)

    def dequantize(self, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
        return (parts[0].to(torch.int16) << 8).view(torch.half).to(dtype)


class GroupQuantization(KVQuantization):
    """Integers of 4 or 8 bits, and a float16 scale for every 32 elements of a head.

    Each group is multiplied by a Hadamard matrix first, which spreads an outlier over the group, so that it does not
    take the precision of the others (Ashkboos et al. 2024, QuaRot). The products become the nearest of ``2**bits``
    steps from ``-scale`` to ``scale``, the largest of their magnitudes. So each is wrong by half a step at most, which
    is ``scale / (2**bits - 1)``, and the error of a group keeps its Euclidean norm when the product is undone.

    Heads that are not a multiple of 32 have groups of the largest power of two that divides them.

    Args:
        bits: 4 or 8.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.kernel_format = f"group{bits}"
        self._half_range = (2**bits - 1) / 2

    def layout(self, head_dim: int) -> list[tuple[int, torch.dtype]]:
        return [(head_dim * self.bits // 8, torch.uint8), (head_dim // group_size(head_dim), torch.half)]

    def quantize(self, x: torch.Tensor) -> Parts:
        size = group_size(x.shape[-1])
        spread = _grouped(x.float(), size) @ _hadamard(size, x.device)
        scale = spread.abs().amax(dim=-1).clamp(max=_HALF_MAX).half()
        steps = spread / scale.float().clamp(min=torch.finfo(torch.float).tiny).unsqueeze(-1)
        codes = ((steps.clamp(-1, 1) + 1) * self._half_range).round_().to(torch.uint8).flatten(-2)
        return (codes if self.bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4), scale

    def dequantize(self, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
        packed, scale = parts
        codes = packed if self.bits == 8 else torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
        size = codes.shape[-1] // scale.shape[-1]
        spread = (_grouped(codes, size) / self._half_range - 1) * scale.float().unsqueeze(-1)
        states: torch.Tensor = spread @ _hadamard(size, packed.device)
        return states.flatten(-2).to(dtype)


def group_size(head_dim: int) -> int:
    """Return how many elements share a scale: the largest power of two that divides ``head_dim``, 32 at most."""
    return min(_GROUP, head_dim & -head_dim)


def _grouped(x: torch.Tensor, size: int) -> torch.Tensor:
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


@cache
def _hadamard(size: int, device: torch.device) -> torch.Tensor:
    """Return the orthonormal, symmetric Hadamard matrix of Sylvester's construction, its own inverse; float32."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.kron(matrix, torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
    matrix /= size**0.5
    return matrix.to(device)
