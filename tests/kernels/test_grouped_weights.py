"""Weights with a scale for each group of inputs: their formula, written down element by element, and products."""

from __future__ import annotations

import pytest
import torch

from constrain.kernels import Activation, GroupedInt8Weight, GroupedWeight, Int4Weight, RowNorm, gated_linear, linear


def random(*shape: int, high: int = 256) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(sum(shape))).to(torch.uint8)


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def grouped(
    bits: int, outputs: int, inputs: int, size: int, zeros: bool = False, order: bool = False
) -> tuple[GroupedWeight, torch.Tensor]:
    """A random weight, and what it stands for."""
    kind = {4: Int4Weight, 8: GroupedInt8Weight}[bits]
    codes, middle = random(outputs, inputs, high=1 << bits), 1 << bits - 1
    scales = (floats(outputs, -(-inputs // size)) / 50).half()
    points = random(*scales.shape, high=2 * middle + 1) if zeros else None
    places = torch.randperm(inputs, generator=torch.Generator().manual_seed(3)) if order else torch.arange(inputs)
    dense = torch.empty(outputs, inputs)
    for row in range(outputs):
        for column in range(inputs):
            zero = int(points[row, column // size]) if points is not None else middle
            value = (int(codes[row, column]) - zero) * float(scales[row, column // size])
            dense[row, places[column]] = value
    packed = codes[:, ::2] | codes[:, 1::2] << 4 if bits == 4 else codes
    return kind(packed, scales, size, points, places.int() if order else None), dense


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize(("inputs", "size"), [(64, 32), (48, 32), (16, 16)], ids=["groups", "last shorter", "rows"])
def test_a_weight_is_what_its_formula_says(bits: int, inputs: int, size: int, zeros: bool, order: bool) -> None:
    weight, dense = grouped(bits, 6, inputs, size, zeros, order)
    assert weight.shape == (6, inputs)
    assert torch.equal(weight.dequantized(slice(0, 6), torch.float32), dense)
    chosen = torch.tensor([[5, 0], [2, 5]])
    assert torch.equal(weight.dequantized(chosen, torch.float32), dense[chosen])
    assert torch.equal(weight[chosen[0]].dequantized(slice(0, 2), torch.float32), dense[[5, 0]])


@pytest.mark.parametrize("bits", [4, 8])
def test_products(bits: int) -> None:
    weight, dense = grouped(bits, 6, 64, 32, zeros=True, order=True)
    x, bias, residual, norm = floats(2, 3, 64), floats(6), floats(2, 3, 6), RowNorm(floats(64), 1e-5)
    expected = linear(x, dense, bias, residual.clone(), norm)
    torch.testing.assert_close(linear(x, weight, bias, residual.clone(), norm), expected)
    expected = gated_linear(x, dense, bias, Activation.SILU, norm)
    torch.testing.assert_close(gated_linear(x, weight, bias, Activation.SILU, norm), expected)


def test_products_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrain.kernels.weights.packed._PIECE", 100)
    weight, dense = grouped(4, 6, 48, 16)
    x = floats(3, 48)
    torch.testing.assert_close(linear(x, weight), x @ dense.T)


def test_memory() -> None:
    assert grouped(4, 6, 64, 32, zeros=True, order=True)[0].nbytes == 6 * 32 + 6 * 2 * 2 + 6 * 2 + 64 * 4
    assert grouped(8, 6, 64, 64)[0].nbytes == 6 * 64 + 6 * 2
