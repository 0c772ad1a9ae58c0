"""Products of the CPU with weights of all codes, against those with the weights that they stand for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from constrain.kernels import InterleavedWeight, linear, multiplies_packed
from constrain.kernels.weights.bits import FLOAT4, FLOAT8, unpack_bits

pytestmark = pytest.mark.skipif(
    not multiplies_packed(torch.device("cpu"), torch.float32), reason="products are for processors with AVX2 or AVX-512"
)

KINDS = [2, 3, 4, 5, 6, 8, FLOAT4, FLOAT8]
#: Groups of one kind, whose last is shorter; and of all kinds.
GROUPS = [((kind, 64), (kind, 64), (kind, 32)) for kind in KINDS] + [tuple((kind, 32) for kind in KINDS)]
SCALES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn]
OUTPUTS = 100


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator())


def random_weight(
    groups: tuple[tuple[int, int], ...], scale: torch.dtype = torch.float16, zeros: bool = False, order: bool = False
) -> tuple[InterleavedWeight, torch.Tensor]:
    """A random weight, and what it stands for, computed from the definition of each code."""
    words, columns = [], []
    scales = (floats(OUTPUTS, len(groups)) / 9).to(scale)
    points = torch.randint(-8, 9, scales.shape, generator=generator()).to(torch.int8) if zeros else None
    for number, (kind, inputs) in enumerate(groups):
        bits = kind % 100
        stream = torch.randint(-(1 << 31), 1 << 31, (OUTPUTS, inputs * bits // 32), generator=generator()).int()
        if kind == FLOAT8:  # without those that are not numbers
            stream &= -0x01010102
        words.append(stream)
        codes = values(unpack_bits(stream, bits), kind)
        zero = points[:, number, None] if points is not None else 0
        columns.append((codes - zero) * scales[:, number, None].float())
    dense = torch.cat(columns, dim=1)
    places = torch.randperm(dense.shape[1], generator=generator()) if order else None
    if places is not None:
        dense = dense[:, places.argsort()]
    return InterleavedWeight.of_rows(torch.cat(words, dim=1), scales, points, places, groups), dense


def values(codes: torch.Tensor, kind: int) -> torch.Tensor:
    if kind == FLOAT8:
        return codes.view(torch.float8_e4m3fn).float()
    if kind == FLOAT4:
        sign, exponent, mantissa = codes >> 3, codes >> 1 & 3, codes & 1
        magnitude = torch.where(exponent == 0, mantissa * 0.5, (1 + mantissa * 0.5) * 2.0 ** (exponent.float() - 1))
        return torch.where(sign == 1, -magnitude, magnitude)
    return torch.where(codes >> kind - 1 == 1, codes.int() - (1 << kind), codes.int()).float()


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize("zeros", [False, True])
def test_products_are_those_of_the_dequantised_weight(groups: tuple[tuple[int, int], ...], zeros: bool) -> None:
    weight, dense = random_weight(groups, zeros=zeros)
    torch.testing.assert_close(weight.dequantized(slice(0, OUTPUTS), torch.float32), dense, rtol=1e-6, atol=0)
    for count in (*range(1, 19), 100):
        x = floats(count, weight.shape[1])
        exact = x.double() @ dense.double().T
        error = (linear(x, weight).double() - exact).norm() / exact.norm()
        assert error < 2e-6, count


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_types_of_scales_and_an_order_of_inputs(scale: torch.dtype) -> None:
    weight, dense = random_weight(GROUPS[-1], scale, order=True)
    x = floats(3, weight.shape[1])
    torch.testing.assert_close(linear(x, weight), x @ dense.T, rtol=1e-4, atol=1e-3)
    chosen = torch.tensor([[3, 99], [0, 3]])
    torch.testing.assert_close(weight.dequantized(chosen, torch.float32), dense[chosen], rtol=1e-6, atol=0)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("groups", GROUPS, ids=str)
def test_a_row_does_not_depend_on_the_others(groups: tuple[tuple[int, int], ...]) -> None:
    weight, _ = random_weight(groups, zeros=True)
    x = floats(40, weight.shape[1])
    together = linear(x, weight)
    for start in (0, 7, 39):
        for count in (1, 2, 3, 5, 8, 9, 20):
            assert torch.equal(linear(x[start : start + count], weight), together[start : start + count])


@pytest.mark.parametrize("zeros", [False, True])
def test_chosen_rows_give_the_same_products_and_new_rows_zeros(zeros: bool) -> None:
    weight, _ = random_weight(GROUPS[-1], zeros=zeros, order=True)
    x, chosen = floats(3, weight.shape[1]), torch.tensor([99, 0, 31, 32, 99])
    products = linear(x, weight)
    assert torch.equal(linear(x, weight[chosen]), products[:, chosen])
    padded = weight.padded(150)
    assert padded.shape == (150, weight.shape[1])
    assert torch.equal(linear(x, padded), torch.nn.functional.pad(products, (0, 50)))


def test_no_rows_and_strides() -> None:
    weight, _ = random_weight(GROUPS[2])
    x = floats(4, 320)
    assert torch.equal(linear(x[::2, ::2], weight), linear(x[::2, ::2].contiguous(), weight))
    assert linear(x[:0, :160], weight).shape == (0, OUTPUTS)
