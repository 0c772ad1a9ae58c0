"""Weights of four or eight bits in the ``pack-quantized`` form of compressed-tensors.

A weight ``[outputs, inputs]`` is stored as ``weight_packed``, int32 ``[outputs, inputs * bits / 32]``, in whose words
the codes of neighbouring inputs follow one another from the lowest bits on, each with half of the range added to it;
``weight_scale`` ``[outputs, groups]``; and ``weight_shape``. An element is its code times the scale of its group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

PARTS = ("weight_packed", "weight_scale", "weight_shape")


@dataclass(frozen=True)
class CodedWeight:
    """A weight as codes and scales.

    Attributes:
        codes: int8 ``[outputs, inputs]``.
        scales: ``[outputs, groups]``, of the dtype that is stored.
        bits: 4 or 8.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    bits: int

    def dequantized(self) -> torch.Tensor:
        """Compute the weight, float32 ``[outputs, inputs]``."""
        groups = self.codes.float().view(*self.scales.shape, -1)
        return (groups * self.scales.float().unsqueeze(-1)).flatten(1)

    def tensors(self, key: str) -> dict[str, torch.Tensor]:
        """Return the tensors of the weight of a layer in files, by name."""
        shape = torch.tensor(self.codes.shape)
        parts = (pack(self.codes, self.bits), self.scales.contiguous(), shape)
        return {f"{key}.{name}": part.cpu() for name, part in zip(PARTS, parts, strict=True)}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, torch.Tensor], key: str, bits: int) -> CodedWeight:
        """Return the weight that :meth:`tensors` wrote."""
        packed, scales, shape = (tensors[f"{key}.{name}"] for name in PARTS)
        return cls(unpack(packed, bits)[:, : int(shape[1])].contiguous(), scales, bits)


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack codes, int8 ``[n, k]`` from ``-2**(bits - 1)`` on, into words, int32 ``[n, ceil(k * bits / 32)]``."""
    in_word = 32 // bits
    padded = torch.nn.functional.pad(codes.to(torch.int32) + (1 << (bits - 1)), (0, -codes.shape[1] % in_word))
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=codes.device)
    # Parts of a word have no bit in common, so that their sum, which may wrap around, is their union.
    return (padded.view(len(codes), -1, in_word) << shifts).sum(dim=-1, dtype=torch.int32)


def unpack(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Inverse of :func:`pack`; with codes for the padding at the end of each row."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    unsigned = (words.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    return (unsigned.flatten(1) - (1 << (bits - 1))).to(torch.int8)
