"""Integers of several widths as columns of four bits: nothing is lost, and products are those of the weight."""

from __future__ import annotations

import pytest
import torch

from constrain.kernels import Activation, RowNorm, TensorCoreWeight, gated_linear, linear
from constrain.kernels.activation import gated_activation_reference
from constrain.kernels.norm import rms_norm_reference
from constrain.kernels.weights.bits import Groups
from constrain.kernels.weights.nibbles import IntegerRows, as_nibbles, find_columns, share_columns

OUTPUTS = 48
TABLES: dict[str, Groups] = {
    "four": ((4, 128), (4, 128), (4, 64)),
    "narrow": ((4, 64), (3, 64), (2, 32)),
    "five": ((5, 32), (4, 128), (4, 96)),
    "six": ((6, 16), (5, 32), (3, 32), (2, 32), (4, 16)),
    "eight": ((8, 32), (8, 32), (6, 96), (4, 128), (2, 16)),
    "all eight": ((8, 128), (8, 40)),
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def random_rows(groups: Groups, outputs: int = OUTPUTS) -> tuple[IntegerRows, torch.Tensor]:
    """Rows of random integers, the outermost among them, and the weight that they stand for."""
    values, columns = [], []
    scales = (torch.rand(outputs, len(groups)) / 50).half()
    for number, (bits, inputs) in enumerate(groups):
        middle = 1 << bits - 1
        codes = torch.randint(-middle, middle, (outputs, inputs))
        codes[0, :2] = torch.tensor([-middle, middle - 1])
        values.append(codes.to(torch.int8))
        columns.append(codes * scales[:, number, None].float())
    return IntegerRows(torch.cat(values, dim=1), scales, groups), torch.cat(columns, dim=1)


def random_weight(groups: Groups, dtype: torch.dtype) -> tuple[TensorCoreWeight, torch.Tensor]:
    rows, dense = random_rows(groups)
    order = torch.randperm(dense.shape[1])
    return as_nibbles([rows], [groups], order, dtype), torch.empty_like(dense).index_copy_(1, order, dense)


@pytest.mark.parametrize("name", TABLES)
def test_nothing_is_lost(name: str) -> None:
    weight, dense = random_weight(TABLES[name], torch.float16)
    assert weight.shape == dense.shape and weight.form.zeros is ("eight" in name)
    assert torch.equal(weight.dequantized(slice(0, OUTPUTS), torch.float32), dense)
    chosen = torch.tensor([[3, 47], [0, 3]])
    assert torch.equal(weight.dequantized(chosen, torch.float32), dense[chosen])
    assert torch.equal(weight[chosen[0]], dense[chosen[0]].half())
    assert weight[chosen[0, :0]].shape == (0, dense.shape[1])
    assert find_columns([TABLES[name]]).size(OUTPUTS) == weight.nbytes
    x, residual = torch.randn(5, dense.shape[1]), torch.randn(5, OUTPUTS)
    torch.testing.assert_close(linear(x, weight, None, residual.clone()), x @ dense.T + residual)


@pytest.mark.parametrize(
    ("table", "group", "count"),
    [
        (((4, 128),) * 32, 128, 4096),
        (((4, 128), (3, 128), (2, 64)), 128, 384),
        (((4, 32), (3, 64)), 32, 96),
        (((5, 128), (4, 128)), 128, 384),
        (((8, 32),) * 4 + ((4, 128),) * 31, 32, 4224),
    ],
)
def test_columns_take_the_least_memory(table: Groups, group: int, count: int) -> None:
    columns = find_columns([table])
    assert (columns.form.group, columns.count) == (group, count)


def test_weights_of_the_same_inputs_are_joined() -> None:
    """The joined weight has the widest codes and the smallest groups of its parts."""
    tables: list[Groups] = [((5, 32), (4, 96)), ((4, 64), (2, 64)), ((8, 16), (3, 112))]
    rows, dense = zip(
        *(random_rows(table, outputs) for table, outputs in zip(tables, (16, 7, 32), strict=True)), strict=True
    )
    weight = as_nibbles(rows, tables, None, torch.bfloat16)
    assert weight.shape == (55, 128)
    assert torch.equal(weight.dequantized(slice(0, 55), torch.float32), torch.cat(dense))


def test_weights_are_joined_unless_that_takes_much_memory() -> None:
    four, small, five = ((4, 128),) * 32, ((4, 32),) * 128, ((5, 128),) * 32
    assert share_columns([four, small], [64, 64])
    assert share_columns([four, five], [16, 1024])
    assert not share_columns([four, five], [1024, 16])


def test_scales_beyond_float16() -> None:
    rows = IntegerRows(torch.tensor([[127] * 32]).to(torch.int8), torch.tensor([[60_000.0]]).half(), ((8, 32),))
    weight = as_nibbles([rows], [rows.groups], None, torch.bfloat16)
    assert torch.equal(
        weight.dequantized(slice(0, 1), torch.float32), torch.full((1, 32), 127 * rows.scales.float().item())
    )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3, 8, 16, 64, 70])
@pytest.mark.parametrize("name", TABLES)
def test_products_on_a_gpu(name: str, rows: int, dtype: torch.dtype, cuda: torch.device) -> None:
    """With a bias and a residual, an activation, and a norm, each compared with the weight in float64."""
    weight, dense = random_weight(TABLES[name], dtype)
    on_device, exact = weight.to(cuda), dense.to(cuda).double()
    whole = on_device.dequantized(slice(0, OUTPUTS), torch.float32)
    assert torch.equal(whole.cpu(), dense)
    x, bias, residual, factor = (
        torch.randn(*shape, device=cuda).to(dtype)
        for shape in ((rows, dense.shape[1]), (OUTPUTS,), (rows, OUTPUTS), (dense.shape[1],))
    )
    torch.cuda.synchronize()
    norm = RowNorm(factor, 1e-5)
    product = x.double() @ exact.T
    of_norm = rms_norm_reference(x.double(), factor.double(), 1e-5) @ exact.T
    check(linear(x, on_device, bias, residual), product + bias.double() + residual.double())
    check(
        gated_linear(x, on_device, bias, Activation.SILU),
        gated_activation_reference(product + bias.double(), Activation.SILU),
    )
    check(linear(x, on_device, norm=norm), of_norm)
    check(gated_linear(x, on_device, None, Activation.SILU, norm), gated_activation_reference(of_norm, Activation.SILU))


def check(found: torch.Tensor, expected: torch.Tensor) -> None:
    bound = {torch.float16: 2e-3, torch.bfloat16: 1e-2}[found.dtype]
    error = float((found.double() - expected).norm() / expected.norm())
    assert error < bound, f"error {error:.1e}"
