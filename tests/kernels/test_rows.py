"""Norms, gated activations and small products: the references against torch, and on a GPU the kernels against them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from constrain.kernels import (
    Activation,
    RowNorm,
    gated_activation,
    gated_linear,
    layer_norm,
    linear,
    normalise_heads,
    rms_norm,
)
from constrain.kernels.activation import gated_activation_reference
from constrain.kernels.norm import rms_norm_reference

HALVES = [torch.float16, torch.bfloat16]
ACTIVATIONS = list(Activation)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether the error, relative to the norm of what is expected, is that of rounding to ``dtype``."""
    error = (actual.double() - expected.double()).norm() / expected.double().norm()
    return float(error) < {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}[dtype]


def test_residual_is_summed_and_normalised() -> None:
    x, residual, weight = torch.randn(3, 8), torch.randn(3, 8), torch.randn(8)
    total = x + residual
    assert torch.allclose(rms_norm(x, weight, 1e-5, residual), rms_norm(total, weight, 1e-5))
    assert torch.equal(residual, total)


def test_layer_norm() -> None:
    x, weight, bias, residual = torch.randn(2, 3, 8), torch.randn(8), torch.randn(8), torch.randn(2, 3, 8)
    total = x + residual
    centred = total - total.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias
    assert torch.allclose(layer_norm(x, weight, bias, 1e-5, residual), expected, atol=1e-6)
    assert torch.equal(residual, total)


@pytest.mark.parametrize("centred", [False, True])
def test_norm_of_heads(centred: bool) -> None:
    qkv, weight = torch.randn(2, 3, 5, 8), torch.randn(3, 8)
    expected = qkv.clone()
    each = expected[:, :, :3]
    each -= each.mean(-1, keepdim=True) if centred else 0
    each *= (each.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight
    normalise_heads(qkv.narrow(2, 0, 3), weight, 1e-5, centred=centred)
    assert torch.allclose(qkv, expected, atol=1e-6)


def test_clamped_swiglu() -> None:
    gate, up = torch.tensor([1.0, 9.0, -9.0, 7.0]), torch.tensor([2.0, 8.0, -8.0, -1.0])
    clamped = torch.tensor([1.0, 7.0, -9.0, 7.0])
    expected = clamped / (1 + torch.exp(-1.702 * clamped)) * torch.tensor([3.0, 8.0, -6.0, 0.0])
    assert torch.allclose(gated_activation(torch.cat((gate, up)), Activation.CLAMPED_SWIGLU), expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_products(activation: Activation) -> None:
    x, weight, bias, residual = torch.randn(2, 1, 16), torch.randn(6, 16), torch.randn(6), torch.randn(2, 1, 6)
    product = x @ weight.T + bias
    assert torch.allclose(linear(x, weight, bias, residual), product + residual, atol=1e-5)
    expected = gated_activation_reference(product, activation)
    assert torch.allclose(gated_linear(x, weight, bias, activation), expected, atol=1e-5)
    norm = RowNorm(torch.randn(16), 1e-5)
    product = rms_norm(x, norm.weight, norm.eps) @ weight.T + bias
    assert torch.allclose(linear(x, weight, bias, residual, norm), product + residual, atol=1e-5)
    expected = gated_activation_reference(product, activation)
    assert torch.allclose(gated_linear(x, weight, bias, activation, norm), expected, atol=1e-5)
    norm = RowNorm(torch.randn(16), 1e-5, torch.randn(16), centred=True)
    product = F.layer_norm(x, (16,), norm.weight, norm.bias, norm.eps) @ weight.T + bias
    assert torch.allclose(linear(x, weight, bias, residual, norm), product + residual, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(1, 8), (5, 320), (2, 3, 4096), (300, 1, 128), (3, 16_384)])
def test_norms_on_a_gpu(shape: tuple[int, ...], dtype: torch.dtype, cuda: torch.device) -> None:
    n = shape[-1]
    x, residual = (torch.randn(shape, device=cuda, dtype=dtype) * 3 for _ in range(2))
    weight, bias = (torch.randn(n, device=cuda, dtype=dtype) for _ in range(2))
    total = residual + x
    exact = total.float()
    normed = rms_norm_reference(exact, weight.float(), 1e-5)
    summed = residual.clone()
    assert close(rms_norm(x, weight, 1e-5, summed), normed, dtype) and torch.equal(summed, total)
    assert close(rms_norm(total, weight, 1e-5), normed, dtype)
    assert close(rms_norm(total, None, 1e-5), rms_norm_reference(exact, None, 1e-5), dtype)
    expected = F.layer_norm(exact, (n,), weight.float(), bias.float(), 1e-5)
    assert close(layer_norm(x, weight, bias, 1e-5, residual), expected, dtype) and torch.equal(residual, total)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 8), (2, 1, 36, 128), (3, 5, 7, 96), (1, 2, 40, 256), (2, 2, 3, 264)])
def test_norms_of_heads_on_a_gpu(
    shape: tuple[int, int, int, int], centred: bool, dtype: torch.dtype, cuda: torch.device
) -> None:
    batch, width, heads, dim = shape
    qkv = torch.randn(batch, width, heads + 3, dim, device=cuda).to(dtype)
    weight, values = torch.randn(heads, dim, device=cuda).to(dtype), qkv[:, :, heads:].clone()
    exact = qkv[:, :, :heads].double()
    exact -= exact.mean(-1, keepdim=True) if centred else 0
    exact *= (exact.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight.double()
    torch.cuda.synchronize()
    normalise_heads(qkv.narrow(2, 0, heads), weight, 1e-5, centred=centred)
    assert close(qkv[:, :, :heads], exact, dtype) and torch.equal(qkv[:, :, heads:], values)


@pytest.mark.gpu
def test_norm_of_rows_with_gaps(cuda: torch.device) -> None:
    whole = torch.randn(6, 3, 64, device=cuda, dtype=torch.bfloat16)
    weight = torch.randn(64, device=cuda, dtype=torch.bfloat16)
    for x in (whole[:, 1], whole[::2, 2], whole[:, :2]):
        assert close(rms_norm(x, weight, 1e-5), rms_norm_reference(x.float(), weight.float(), 1e-5), whole.dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1, 16), (3, 1, 1536), (700, 28_672)])
def test_gated_activations_on_a_gpu(
    shape: tuple[int, ...], activation: Activation, dtype: torch.dtype, cuda: torch.device
) -> None:
    gate_up = torch.randn(shape, device=cuda, dtype=dtype) * 4
    expected = gated_activation_reference(gate_up.float(), activation)
    assert close(gated_activation(gate_up, activation), expected, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9])
@pytest.mark.parametrize(
    ("inputs", "outputs"), [(8, 37), (64, 16), (320, 1024), (4096, 6144), (1000, 24), (520, 100), (14_336, 4096)]
)
def test_small_products_on_a_gpu(inputs: int, outputs: int, rows: int, dtype: torch.dtype, cuda: torch.device) -> None:
    x = torch.randn(rows, 1, inputs, device=cuda, dtype=dtype)
    weight = torch.randn(2 * outputs, inputs, device=cuda, dtype=dtype) / inputs**0.5
    bias = torch.randn(2 * outputs, device=cuda, dtype=dtype)
    residual = torch.randn(rows, 1, outputs, device=cuda, dtype=dtype)
    torch.cuda.synchronize()
    exact = x.double() @ weight.double().T
    assert close(linear(x, weight), exact, dtype)
    first = linear(x, weight[:outputs], bias[:outputs], residual)
    assert close(first, exact[..., :outputs] + bias[:outputs].double() + residual.double(), dtype)
    for activation in ACTIVATIONS:
        gated = gated_activation_reference(exact + bias.double(), activation)
        assert close(gated_linear(x, weight, bias, activation), gated, dtype)
    norm = RowNorm(torch.randn(inputs, device=cuda, dtype=dtype), 1e-5)
    x *= 5
    torch.cuda.synchronize()
    exact = rms_norm_reference(x.double(), norm.weight.double(), norm.eps) @ weight.double().T + bias.double()
    assert close(linear(x, weight, bias, norm=norm), exact, dtype)
    gated = gated_activation_reference(exact, activation)
    assert close(gated_linear(x, weight, bias, activation, norm), gated, dtype)


@pytest.mark.gpu
def test_products_that_the_kernel_does_not_take(cuda: torch.device) -> None:
    x, weight = torch.randn(2, 20, device=cuda), torch.randn(4, 20, device=cuda)
    for dtype in (torch.float32, torch.bfloat16):  # 20 is not a multiple of 8
        assert close(linear(x.to(dtype), weight.to(dtype)), x.to(dtype).double() @ weight.to(dtype).double().T, dtype)
    every_other = torch.randn(4, 64, device=cuda, dtype=torch.half)[:, ::2]
    rows = torch.randn(1, 32, device=cuda, dtype=torch.half)
    assert close(linear(rows, every_other), rows.double() @ every_other.double().T, torch.half)
