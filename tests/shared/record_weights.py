"""Random weights in the order of tensor cores."""

from __future__ import annotations

import torch

from constrain.kernels import TensorCoreWeight
from constrain.kernels.weights.fragments import BITS

SPREADS = {"int4": 6, "int8": 100, "float8": 100, "float4": 3}
"""About the standard deviations of the codes' values."""


def random_codes(kind: str, outputs: int, inputs: int) -> torch.Tensor:
    codes = torch.randint(0, 1 << BITS[kind], (outputs, inputs)).to(torch.uint8)
    return codes.masked_fill_(codes & 127 == 127, 0) if kind == "float8" else codes  # not a number


def weights(
    kind: str, outputs: int, inputs: int, size: int, zeros: bool, dtype: torch.dtype, scales: torch.dtype
) -> TensorCoreWeight:
    """A weight whose products with normally distributed rows are about as large as these, which float16 needs."""
    values = ((torch.rand(outputs, -(-inputs // size)) + 0.2) / (SPREADS[kind] * inputs**0.5)).to(scales)
    points = torch.randint(0, 1 << BITS[kind], values.shape).to(torch.uint8) if zeros else None
    weight = TensorCoreWeight.of_codes(kind, random_codes(kind, outputs, inputs), values, points, size, dtype)
    assert weight is not None
    return weight


def scaled_floats(outputs: int, inputs: int, dtype: torch.dtype) -> tuple[TensorCoreWeight, torch.Tensor]:
    """A weight with a scale in E4M3 for each 16 inputs, from the least to the largest, and what it stands for."""
    codes = random_codes("float4", outputs, inputs)
    scales = torch.randint(1, 0x7F, (outputs, -(-inputs // 16))).to(torch.uint8)
    scales[0, :2] = torch.tensor([1, 0x7E])
    factors = (torch.rand(outputs) + 0.2) / (200 * inputs**0.5)
    weight = TensorCoreWeight.of_scaled_floats(codes, scales, factors, dtype)
    assert weight is not None
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])[(codes & 7).long()] * (1 - (codes >> 3) * 2.0)
    of_inputs = scales.view(torch.float8_e4m3fn).float().repeat_interleave(16, dim=1)[:, :inputs]
    return weight, values * of_inputs * factors.unsqueeze(1)
