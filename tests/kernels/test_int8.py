"""Products with weights of eight bits against those with the weights that they stand for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from constrain.kernels import Activation, Int8Weight, RowNorm, gated_linear, linear, multiplies_packed

pytestmark = pytest.mark.skipif(
    not multiplies_packed(torch.device("cpu"), torch.float32), reason="products are for processors with AVX2 or AVX-512"
)

# Rows and inputs: of whole blocks, of parts of blocks, and enough of both that threads share the work.
SHAPES = [(64, 48), (33, 7), (1, 1), (1000, 448)]


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def weights(outputs: int, inputs: int, rows: int | None = None) -> tuple[Int8Weight, torch.Tensor]:
    """A random weight with zeros up to ``rows`` rows, and what it stands for."""
    generator = torch.Generator().manual_seed(outputs)
    codes = torch.randint(-128, 128, (outputs, inputs), dtype=torch.int8, generator=generator)
    scales = torch.rand(outputs, generator=generator) / 100
    dense = torch.zeros(rows or outputs, inputs)
    dense[:outputs] = codes * scales.unsqueeze(1)
    return Int8Weight.of_rows(codes, scales, rows or outputs), dense


def rows(count: int, inputs: int) -> torch.Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(1))


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_the_dequantised_weight(shape: tuple[int, int]) -> None:
    weight, dense = weights(*shape)
    for count in (*range(1, 19), 300):
        x = rows(count, shape[1])
        exact = x.double() @ dense.double().T
        error = (linear(x, weight).double() - exact).norm() / exact.norm()
        assert error < 1e-6, count


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_does_not_depend_on_the_others(shape: tuple[int, int]) -> None:
    weight, _ = weights(*shape)
    x = rows(300, shape[1])
    together = linear(x, weight)
    for start in (0, 7, 299):
        for count in (1, 2, 3, 5, 8, 9, 64):
            assert torch.equal(linear(x[start : start + count], weight), together[start : start + count])


def test_chosen_rows_of_a_weight_give_the_same_products() -> None:
    weight, dense = weights(100, 48, rows=128)
    x, chosen = rows(3, 48), torch.tensor([99, 0, 31, 32, 127, 0])
    assert torch.equal(linear(x, weight[chosen]), linear(x, weight)[:, chosen])
    assert torch.equal(weight.dequantized(chosen.view(2, 3), torch.float32), dense[chosen.view(2, 3)])


def test_bias_residual_norm_and_activation() -> None:
    weight, dense = weights(80, 48)
    x, bias, residual, norm = rows(6, 48).view(2, 3, 48), rows(1, 80)[0], rows(6, 80).view(2, 3, 80), rows(1, 48)[0]
    fused = RowNorm(norm, 1e-5)
    expected = linear(x, dense, bias, residual.clone(), fused)
    torch.testing.assert_close(linear(x, weight, bias, residual.clone(), fused), expected, atol=1e-5, rtol=1e-5)
    expected = gated_linear(x, dense, bias, Activation.SILU, fused)
    torch.testing.assert_close(gated_linear(x, weight, bias, Activation.SILU, fused), expected, atol=1e-5, rtol=1e-5)


def test_inputs_that_are_not_contiguous_and_no_inputs() -> None:
    weight, _ = weights(40, 48)
    x = rows(4, 96)
    assert torch.equal(linear(x[::2, ::2], weight), linear(x[::2, ::2].contiguous(), weight))
    assert linear(x[:0, :48], weight).shape == (0, 40)


def test_other_dtypes_and_devices_do_not_keep_them() -> None:
    assert not multiplies_packed(torch.device("cpu"), torch.bfloat16)
    assert not multiplies_packed(torch.device("cuda"), torch.float32)
