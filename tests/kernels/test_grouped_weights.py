"""Weights with a scale for each group of inputs: their formula, written down element by element, and products."""

from __future__ import annotations

import pytest
import torch

from constrain.kernels import (
    Activation,
    Float4Weight,
    Float8Weight,
    GroupedInt2Weight,
    GroupedInt3Weight,
    GroupedInt8Weight,
    GroupedWeight,
    Int4Weight,
    JoinedWeight,
    PackedWeight,
    RowNorm,
    gated_linear,
    join_weights,
    linear,
)
from constrain.kernels.weights.bits import pack_bits, pack_nibbles, unpack_bits


def random(*shape: int, high: int = 256) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(sum(shape))).to(torch.uint8)


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def grouped(
    bits: int, outputs: int, inputs: int, size: int, zeros: bool = False, order: bool = False
) -> tuple[GroupedWeight, torch.Tensor]:
    """A random weight, and what it stands for."""
    kind = {2: GroupedInt2Weight, 3: GroupedInt3Weight, 4: Int4Weight, 8: GroupedInt8Weight}[bits]
    codes, middle = random(outputs, inputs, high=1 << bits), 1 << bits - 1
    scales = (floats(outputs, -(-inputs // size)) / 50).half()
    points = random(*scales.shape, high=2 * middle) if zeros else None
    places = torch.randperm(inputs, generator=torch.Generator().manual_seed(3)) if order else torch.arange(inputs)
    dense = torch.empty(outputs, inputs)
    for row in range(outputs):
        for column in range(inputs):
            zero = int(points[row, column // size]) if points is not None else middle
            value = (int(codes[row, column]) - zero) * float(scales[row, column // size])
            dense[row, places[column]] = value
    packed = pack_nibbles(codes) if bits == 4 else pack_bits(codes, bits) if bits < 4 else codes
    return kind(packed, scales, size, points, places.int() if order else None), dense


@pytest.mark.parametrize(("bits", "stream"), [(2, [0b11100100]), (3, [0b10001000, 0b11000110, 0b11111010])])
def test_bits_are_packed_lowest_first(bits: int, stream: list[int]) -> None:
    codes = torch.arange(1 << bits).to(torch.uint8).repeat(4 // bits)[:8]
    packed = pack_bits(codes.repeat(8 // len(codes)), bits)
    assert packed[: len(stream)].tolist() == stream


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_packing_is_undone_by_unpacking(bits: int) -> None:
    codes = random(5, 96, high=1 << bits)
    assert torch.equal(unpack_bits(pack_bits(codes, bits), bits), codes)


def floats_of(kind: type[GroupedWeight], outputs: int) -> tuple[GroupedWeight, torch.Tensor]:
    """A random weight of floats, with factors, and what it stands for."""
    codes, factors = random(outputs, 64, high=16), floats(outputs)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])[codes.long()]
    packed = pack_bits(codes, 4)
    if kind is Float8Weight:
        packed = values.to(torch.float8_e4m3fn).view(torch.uint8)
    scales = floats(outputs, 4).abs().to(torch.float8_e4m3fn)
    dense = values * scales.float().repeat_interleave(16, dim=1) * factors.unsqueeze(1)
    return kind(packed, scales, 16, factors=factors), dense


def check_product(found: torch.Tensor, x: torch.Tensor, dense: torch.Tensor) -> None:
    """Compare a product with ``x @ dense.T``, whose order of sums depends on the processor."""
    rounding = torch.finfo(found.dtype).eps * x.shape[1] * (x.abs() @ dense.abs().T)
    assert ((found - x @ dense.T).abs() <= rounding).all()


@pytest.mark.parametrize("kind", [Float4Weight, Float8Weight])
def test_floats_with_a_factor_for_each_row(kind: type[GroupedWeight]) -> None:
    (first, dense), (second, other) = floats_of(kind, 6), floats_of(kind, 40)
    x = floats(3, 64)
    for weight in (first, first.prepared(torch.float32)):
        torch.testing.assert_close(weight.dequantized(slice(0, 6), torch.float32), dense)
        check_product(linear(x, weight), x, dense)
        check_product(linear(x, weight[torch.tensor([5, 0])]), x, dense[[5, 0]])
        check_product(linear(x, weight.padded(50)), x, torch.nn.functional.pad(dense, (0, 0, 0, 44)))
    joined = join_weights([first, second], 64, torch.float32)
    assert not isinstance(joined, JoinedWeight) and joined.shape == (64, 64)
    check_product(linear(x, joined)[:, :46], x, torch.cat((dense, other)))


def test_a_part_without_factors_is_joined_as_with_ones() -> None:
    (first, dense), (second, other) = floats_of(Float4Weight, 6), floats_of(Float4Weight, 10)
    assert second.factors is not None
    plain = Float4Weight(second.codes, second.scales, 16)
    joined = join_weights([first, plain], 16, torch.float64)
    expected = torch.cat((dense, other / second.factors.unsqueeze(1)))
    torch.testing.assert_close(dense_of(joined), expected)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize(
    ("bits", "inputs", "size"),
    [(bits, *each) for bits in (2, 4, 8) for each in ((64, 32), (48, 32), (16, 16))] + [(3, 64, 32), (3, 96, 64)],
)
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


def dense_of(weight: PackedWeight) -> torch.Tensor:
    return weight.dequantized(slice(0, weight.shape[0]), torch.float32)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [(False, False), (True, False), (True, True)])
def test_weights_of_one_form_become_one(bits: int, zeros: tuple[bool, bool]) -> None:
    parts, dense = zip(*(grouped(bits, n, 64, 32, zero) for n, zero in zip((6, 10), zeros, strict=True)), strict=True)
    joined = join_weights(parts, 20, torch.float64)
    assert isinstance(joined, GroupedWeight) and joined.shape == (20, 64)
    assert (joined.zeros is None) is (zeros == (False, False))
    assert torch.equal(dense_of(joined), torch.cat([*dense, torch.zeros(4, 64)]))


def test_weights_of_other_forms_are_joined() -> None:
    shapes = [(4, False), (8, False), (4, True)]
    parts, dense = zip(*(grouped(bits, 6, 64, 32, order=order) for bits, order in shapes), strict=True)
    joined = join_weights(parts, 18, torch.float32)
    assert isinstance(joined, JoinedWeight) and joined.shape == (18, 64)
    assert joined.nbytes >= sum(part.nbytes for part in parts)
    together, x = torch.cat(dense), floats(3, 64)
    assert torch.equal(dense_of(joined), together)
    torch.testing.assert_close(linear(x, joined), x @ together.T)
    chosen = torch.tensor([17, 0, 6, 6])
    torch.testing.assert_close(linear(x, joined[chosen]), x @ together[chosen].T)
    torch.testing.assert_close(dense_of(joined.padded(20)), torch.nn.functional.pad(together, (0, 0, 0, 2)))


def test_groups_of_other_sizes_are_joined() -> None:
    parts, dense = zip(*(grouped(4, 6, 64, size) for size in (32, 64)), strict=True)
    joined = join_weights(parts, 12, torch.float32)
    assert isinstance(joined, JoinedWeight)
    torch.testing.assert_close(dense_of(joined), torch.cat(dense))


@pytest.mark.parametrize("size", [64, 32])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_form_for_the_device_is_the_same_weight(bits: int, zeros: bool, size: int) -> None:
    weight, dense = grouped(bits, 40, 80, size, zeros, order=True)
    prepared = weight.prepared(torch.float32)
    torch.testing.assert_close(dense_of(prepared), dense, rtol=1e-6, atol=0)
    x = floats(3, 80)
    torch.testing.assert_close(linear(x, prepared), x @ dense.T, rtol=1e-4, atol=1e-4)
    assert weight.prepared(torch.bfloat16) is weight


def test_inputs_that_fill_no_words_stay_as_they_are() -> None:
    weight, dense = grouped(4, 6, 20, 10)
    assert weight.prepared(torch.float32) is weight
    x = floats(3, 20)
    torch.testing.assert_close(linear(x, weight), x @ dense.T)


def test_another_device() -> None:
    weight, _ = grouped(4, 6, 64, 32, zeros=True)
    moved = weight.to(torch.device("meta"))
    assert moved.device.type == "meta" and moved.shape == weight.shape and weight.device.type == "cpu"
