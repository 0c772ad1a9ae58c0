"""Weights in the order of tensor cores: the order as the lanes read it, and on a GPU the products."""

from __future__ import annotations

import pytest
import torch
from record_weights import random_codes, scaled_floats, weights

from constrain.kernels import Activation, Int4Weight, RowNorm, gated_linear, linear
from constrain.kernels.activation import gated_activation_reference
from constrain.kernels.gather import gathered
from constrain.kernels.norm import normed, rms_norm_reference
from constrain.kernels.weights.fragments import BITS, RecordForm, find_form, make_records, read_records
from constrain.kernels.weights.tensor_core import TensorCoreWeight

KINDS = ["int4", "int8", "float8", "float4"]
HALVES = [torch.float16, torch.bfloat16]
ROWS = [1, 2, 3, 7, 8, 9, 13, 16, 17, 31, 32, 33, 47, 63, 64]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def element(record: torch.Tensor, kind: str, row: int, column: int) -> int:
    """The code of a tile's row and column, found as the lanes of a warp find it."""
    quarter, t, within = column // 32, column % 32 // 8, column % 8
    lane, half, pair, second = 4 * (row % 8) + t, within // 4, within % 4 // 2, within % 2
    codes = record[: 16 * 128 * BITS[kind] // 8].view(-1, 32, 16)  # a lane loads 16 bytes at a time
    if BITS[kind] == 8:
        return int(codes[quarter, lane, 8 * half + 4 * pair + 2 * second + row // 8])
    words = codes[quarter // 2, lane].view(2, 2, 4)[quarter % 2, half].tolist()
    word = int.from_bytes(bytes(words), "little")
    return word >> 16 * second + 4 * (2 * pair + row // 8) & 15


@pytest.mark.parametrize("kind", KINDS)
def test_lanes_find_the_codes(kind: str) -> None:
    codes = random_codes(kind, 32, 256)
    form = RecordForm(kind, 128, torch.float16)
    records = make_records(codes, torch.ones(32, 2).half(), None, 128, form)
    assert records.shape == (2, 2, form.bytes)
    for row, column in [(0, 0), (5, 9), (8, 1), (15, 127), (13, 77), (3, 38), (10, 102)]:
        for tile in range(2):
            for span in range(2):
                expected = int(codes[16 * tile + row, 128 * span + column])
                assert element(records[tile, span], kind, row, column) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [32, 64, 128, 256, 1000])
def test_records_are_the_weight(kind: str, size: int) -> None:
    codes, scales = random_codes(kind, 21, 328), torch.rand(21, -(-328 // size)).bfloat16()
    zeros = torch.randint(0, 16, scales.shape).to(torch.uint8) if kind.startswith("int") else None
    form = find_form(kind, size, 328, torch.bfloat16, zeros is not None)
    assert form is not None
    found = read_records(make_records(codes, scales, zeros, size, form), form)

    def of_inputs(values: torch.Tensor) -> torch.Tensor:
        return values.float().repeat_interleave(size, dim=1)[:, :328]

    if kind == "float8":
        values = codes.view(torch.float8_e4m3fn).float()
    elif kind == "float4":
        table = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        values = torch.tensor([*table, *(-each for each in table)])[codes.long()]
    else:
        assert zeros is not None
        values = codes.float() - of_inputs(zeros)
    assert torch.equal(found[:21, :328], values * of_inputs(scales))
    assert not found[21:].any()


def test_floats_with_scales_of_eight_bits() -> None:
    weight, dense = scaled_floats(37, 328, torch.float16)
    assert weight.nbytes == weight.form.size(37, 328) == 3 * 3 * (16 * 128 // 2 + 16 * 8 + 16 * 4)
    torch.testing.assert_close(weight.dequantized(slice(0, 37), torch.float32), dense, rtol=3e-7, atol=0)
    assert not weight.padded(48).dequantized(slice(37, 48), torch.float32).any()
    assert (
        TensorCoreWeight.of_scaled_floats(*(torch.zeros(1, 4).to(torch.uint8),) * 2, torch.ones(1), HALVES[0]) is None
    )


def test_groups_without_a_form() -> None:
    codes, scales = random_codes("int4", 16, 96), torch.rand(16, 2)
    assert find_form("int4", 48, 96, torch.float16, zeros=False) is None
    assert find_form("int4", 32, 100, torch.float16, zeros=False) is None
    assert TensorCoreWeight.of_codes("int4", codes, scales, None, 48, torch.float16) is None


def test_rows_and_padding() -> None:
    weight = weights("int4", 37, 200, 64, True, torch.float16, torch.float16)
    dense = weight.dequantized(slice(0, 37), torch.float32)
    assert torch.equal(weight.dequantized(slice(18, 35), torch.float32), dense[18:35])
    chosen = torch.tensor([[36, 0], [17, 17]])
    assert torch.equal(weight.dequantized(chosen, torch.float32), dense[chosen])
    assert torch.equal(weight[chosen[0]], dense[chosen[0]].half())
    longer = weight.padded(64)
    assert longer.shape == (64, 200)
    assert torch.equal(longer.dequantized(slice(0, 64), torch.float32)[:37], dense)
    assert not longer.dequantized(slice(37, 64), torch.float32).any()


@pytest.mark.parametrize("rows", [2, 70])
def test_products_by_dequantisation(rows: int) -> None:
    weight = weights("int8", 48, 72, 32, True, torch.bfloat16, torch.float32)
    x, bias, residual = torch.randn(rows, 72), torch.randn(48), torch.randn(rows, 48)
    dense = weight.dequantized(slice(0, 48), torch.float32)
    torch.testing.assert_close(linear(x, weight, bias, residual.clone()), linear(x, dense, bias, residual.clone()))
    expected = gated_linear(x, dense, bias, Activation.SILU)
    torch.testing.assert_close(gated_linear(x, weight, bias, Activation.SILU), expected)


def test_gathers_of_norms() -> None:
    x, order = torch.randn(2, 3, 16), torch.tensor([3, 15, 3, 0]).int()
    for centred in (False, True):
        norm = RowNorm(torch.randn(16), 1e-5, torch.randn(16) if centred else None, centred)
        assert torch.equal(gathered(x, order, norm), normed(x, norm)[..., order])
    assert torch.equal(gathered(x, order), x[..., order])


@pytest.mark.parametrize("order", [False, True])
def test_order_of_inputs(order: bool) -> None:
    codes, scales = random_codes("int4", 20, 96), torch.rand(20, 3)
    places = torch.randperm(96).int() if order else None
    weight = TensorCoreWeight.of_codes("int4", codes, scales, None, 32, torch.float16, places)
    reference = Int4Weight(codes[:, ::2] | codes[:, 1::2] << 4, scales, 32, None, places)
    assert weight is not None
    whole = slice(0, 20)
    assert torch.equal(weight.dequantized(whole, torch.float32), reference.dequantized(whole, torch.float32))
    x = torch.randn(3, 96)
    torch.testing.assert_close(linear(x, weight), linear(x, reference))


def check(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Compare ``[rows, outputs]``; a failure says which rows and outputs are wrong."""
    wanted = expected.double().to(actual.device)
    errors = (actual.double() - wanted).abs().nan_to_num(torch.inf)
    bound = {torch.float16: 1e-3, torch.bfloat16: 1e-2}[actual.dtype]
    relative = float(errors.norm() / wanted.norm())
    rows, outputs = (errors > 10 * bound * wanted.std()).nonzero().T.tolist()
    assert relative < bound, (
        f"{what} {[*actual.shape]}: error {relative:.1e}, at most {float(errors.max()):.1e}; {len(rows)} are wrong, "
        f"in the rows {sorted({*rows})[:64]} and the outputs {sorted({*outputs})[:64]}"
    )


def check_products(weight: TensorCoreWeight, rows: int, cuda: torch.device) -> None:
    """Compare all products of one weight on a GPU with the dequantised weight in float64."""
    (outputs, inputs), dtype = weight.shape, weight.dtype
    dense = weight.dequantized(slice(0, outputs), torch.float32)
    on_device = weight.to(cuda)
    check(on_device.dequantized(slice(0, outputs), dtype).cpu(), dense, "weight")
    half = outputs // 2
    x, bias, residual = torch.randn(rows, inputs), torch.randn(outputs), torch.randn(rows, outputs)
    x, bias, residual, factor = (each.to(cuda, dtype) for each in (x, bias, residual, torch.randn(inputs)))
    torch.cuda.synchronize()
    exact = x.double() @ dense.to(cuda).double().T
    first = linear(x, on_device, bias, residual)
    check(first, exact + bias.double() + residual.double(), "product")
    assert torch.equal(linear(x, on_device, bias, residual), first)  # sums have one order
    gated = gated_activation_reference(exact + bias.double(), Activation.SILU)
    assert gated.shape == (rows, half)
    check(gated_linear(x, on_device, bias, Activation.SILU), gated, "gated product")
    norm = RowNorm(factor, 1e-5)
    exact = rms_norm_reference(x.double(), factor.double(), 1e-5) @ dense.to(cuda).double().T
    check(linear(x, on_device, norm=norm), exact, "product of a norm")
    gated = gated_activation_reference(exact, Activation.SILU)
    check(gated_linear(x, on_device, None, Activation.SILU, norm), gated, "gated product of a norm")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("size", [32, 64, 128, 100_000])
def test_products_of_four_bits_on_a_gpu(size: int, rows: int, dtype: torch.dtype, cuda: torch.device) -> None:
    for outputs, inputs, zeros in ((64, 1024, False), (150, 712, True), (1056, 4096, True)):
        check_products(weights("int4", outputs, inputs, size, zeros, dtype, torch.float16), rows, cuda)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("size", "zeros"), [(128, False), (32, True)])
def test_one_row_as_integers_on_a_gpu(size: int, zeros: bool, dtype: torch.dtype, cuda: torch.device) -> None:
    # More spans than the warps read at a time, and more than there is room for, where another kernel multiplies.
    for outputs, inputs in ((64, 20_616), (32, 262_144)):
        check_products(weights("int4", outputs, inputs, size, zeros, dtype, torch.float16), 1, cuda)
    weight = weights("int4", 64, 4096, size, zeros, dtype, torch.float16)
    dense, weight = weight.dequantized(slice(0, 64), torch.float32).to(cuda).double(), weight.to(cuda)
    x = torch.randn(1, 4096, device=cuda).to(dtype)
    x[:, ::300] *= 1000  # beside these the others of a span have few bits
    check(linear(x, weight), x.double() @ dense.T, "product with outliers")
    assert not linear(torch.zeros_like(x), weight).any()
    x[0, 77] = torch.nan
    assert linear(x, weight).isnan().all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rows", [1, 5, 8, 16, 20, 64])
@pytest.mark.parametrize(
    ("kind", "size", "scales"),
    [
        ("int8", 32, torch.float16),
        ("int8", 100_000, torch.float32),
        ("float8", 128, torch.float32),
        ("float8", 100_000, torch.bfloat16),
        ("float4", 32, torch.bfloat16),
    ],
)
def test_products_of_other_codes_on_a_gpu(
    kind: str, size: int, scales: torch.dtype, rows: int, dtype: torch.dtype, cuda: torch.device
) -> None:
    for outputs, inputs in ((150, 712), (1056, 4096)):
        check_products(weights(kind, outputs, inputs, size, kind == "int8", dtype, scales), rows, cuda)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 3, 8, 29])
@pytest.mark.parametrize(("kind", "size"), [("int4", 128), ("int8", 32), ("float8", 128), ("float4", 32)])
def test_products_of_more_outputs_than_blocks_on_a_gpu(kind: str, size: int, rows: int, cuda: torch.device) -> None:
    # A block has several tiles, for which it keeps its rows where they are normalised, or more inputs than rings hold.
    outputs = 128 * torch.cuda.get_device_properties(cuda).multi_processor_count
    for inputs in (1160, 4096):
        check_products(weights(kind, outputs, inputs, size, kind == "int8", torch.bfloat16, torch.float16), rows, cuda)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rows", [1, 5, 8, 16, 20, 64])
def test_products_of_floats_with_scales_of_eight_bits_on_a_gpu(
    rows: int, dtype: torch.dtype, cuda: torch.device
) -> None:
    for outputs, inputs in ((150, 712), (1056, 4096)):
        check_products(scaled_floats(outputs, inputs, dtype)[0], rows, cuda)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rows", [0, 1, 64, 65])
@pytest.mark.parametrize(("width", "columns"), [(8, 2), (520, 1032), (4096, 15_072)])
def test_gathers_on_a_gpu(width: int, columns: int, rows: int, dtype: torch.dtype, cuda: torch.device) -> None:
    x, order = torch.randn(rows, width + 8, device=cuda).to(dtype)[:, :width], torch.randint(0, width, (columns,))
    order = order.int().to(cuda)
    norm = RowNorm(torch.randn(width, device=cuda).to(dtype), 1e-5)
    torch.cuda.synchronize()
    assert torch.equal(gathered(x, order), x[:, order])
    expected = rms_norm_reference(x.double(), norm.weight.double(), 1e-5)[:, order]
    torch.testing.assert_close(gathered(x, order, norm).double(), expected, rtol=8e-3, atol=1e-6)
    centred = RowNorm(norm.weight, 1e-5, norm.weight, centred=True)
    assert torch.equal(gathered(x, order, centred), normed(x, centred)[:, order])


@pytest.mark.gpu
def test_many_rows_and_graphs_on_a_gpu(cuda: torch.device) -> None:
    weight = weights("int4", 96, 512, 128, True, torch.bfloat16, torch.float16).to(cuda)
    dense = weight.dequantized(slice(0, 96), torch.bfloat16)
    x = torch.randn(300, 512, device=cuda, dtype=torch.bfloat16)
    check(linear(x, weight), x.double() @ dense.double().T, "product of many rows")
    graph, few = torch.cuda.CUDAGraph(), x[:20].clone()
    expected = linear(few, weight)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = linear(few, weight)
    graph.replay()
    assert torch.equal(out, expected)


@pytest.mark.gpu
def test_arguments_that_cannot_be_right(cuda: torch.device) -> None:
    from constrain.kernels import cuda as kernels

    weight = weights("int4", 32, 128, 128, False, torch.float16, torch.float16).to(cuda)
    assert weight._view(weight.records, 32).nbytes == weight.records.nbytes
    out = torch.empty(32, 128, device=cuda, dtype=torch.half)
    for wrong in ({"inputs": 100}, {"group": 48}, {"outputs": 0}, {"records": 8}):
        given = {"records": kernels.address(weight.records), "codes": "int4", "group": 128, "scales": "float16"}
        given |= {"zeros": False, "outputs": 32, "inputs": 128, **wrong}
        with pytest.raises(ValueError, match="packed product"):
            kernels.module.unpack_weight(
                kernels.module.PackedWeight(**given), out=kernels.address(out), dtype="float16", stream=0
            )
