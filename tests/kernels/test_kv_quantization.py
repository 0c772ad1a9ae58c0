from __future__ import annotations

import math

import pytest
import torch

from constrain.kernels import GroupQuantization, KVQuantization, TruncatedFloat, Unquantized

HALF = torch.finfo(torch.half)


def states(head_dim: int = 64, outlier: float = 1.0) -> torch.Tensor:
    x = torch.randn(2, 5, 3, head_dim, generator=torch.Generator().manual_seed(head_dim))
    x[..., 7] *= outlier
    return x


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("head_dim", [8, 12, 64, 96, 128])
def test_groups_are_wrong_by_half_a_step_at_most(bits: int, head_dim: int) -> None:
    x, quantization = states(head_dim), GroupQuantization(bits)
    parts = quantization.quantize(x)
    assert [(part.shape[-1], part.dtype) for part in parts] == quantization.layout(head_dim)
    error = quantization.dequantize(parts, torch.float) - x
    scale = parts[1].float()
    size = head_dim // scale.shape[-1]
    # An orthonormal rotation keeps the norm: size errors of half a step each, and the rounding of the scale itself.
    bound = math.sqrt(size) * scale * (1 / (2**bits - 1) + HALF.eps)
    assert (error.unflatten(-1, (-1, size)).norm(dim=-1) <= bound).all()


def test_groups_of_thirty_two_where_heads_allow_it() -> None:
    assert GroupQuantization(4).layout(128) == [(64, torch.uint8), (4, torch.half)]
    assert GroupQuantization(8).layout(128) == [(128, torch.uint8), (4, torch.half)]
    assert GroupQuantization(8).layout(80) == [(80, torch.uint8), (5, torch.half)]


def test_an_outlier_takes_little_precision_from_its_group() -> None:
    x, quantization = states(outlier=50.0), GroupQuantization(4)
    others = torch.arange(64) != 7
    error = (quantization.dequantize(quantization.quantize(x), torch.float) - x)[..., others]
    # Without the rotation a step would be 2 / 15 of the outlier, and all else would round to nothing.
    unrotated_step = x[..., 7].abs().unsqueeze(-1) * 2 / 15
    assert (error.abs() < unrotated_step / 2).float().mean() > 0.95
    assert error.square().mean() < unrotated_step.square().mean() / 12 / 4


@pytest.mark.parametrize(
    "quantization", [GroupQuantization(4), GroupQuantization(8), TruncatedFloat()], ids=["4", "8", "float"]
)
def test_extremes_stay_finite(quantization: KVQuantization) -> None:
    for value in (0.0, 1e-8, 65504.0, -65504.0, 1e9, -1e30):
        x = torch.full((1, 1, 1, 32), value)
        decoded = quantization.dequantize(quantization.quantize(x), torch.float)
        assert decoded.isfinite().all()
        assert value or not decoded.any()


def test_floats_are_truncated() -> None:
    x = torch.cat([states().flatten(), torch.tensor([1e-5, -1e-5, 1.0, -1.75, 60000.0])])
    decoded = TruncatedFloat().dequantize(TruncatedFloat().quantize(x), torch.float)
    bound = (x.abs() / 4).clamp(min=2**-16)
    assert ((decoded - x).abs() <= bound).all() and (decoded.abs() <= x.abs() * (1 + HALF.eps)).all()
    assert decoded[-3:].tolist() == [1.0, -1.75, 57344.0]
    torch.testing.assert_close(decoded, x.half().to(torch.float8_e5m2).float(), rtol=0.25, atol=2**-16)


def test_plain_states_are_not_touched() -> None:
    x = states()
    assert Unquantized(torch.float).dequantize(Unquantized(torch.float).quantize(x), torch.float) is x


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float])
def test_states_are_dequantized_to_the_dtype_of_the_model(dtype: torch.dtype) -> None:
    x = states().to(dtype)
    for quantization in (GroupQuantization(8), TruncatedFloat()):
        decoded = quantization.dequantize(quantization.quantize(x), dtype)
        assert decoded.dtype == dtype
        torch.testing.assert_close(decoded, x, rtol=0.26, atol=0.05)
