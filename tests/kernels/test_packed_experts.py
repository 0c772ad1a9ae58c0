"""Packed weights of all experts: stacked, as plain ones, and on a GPU their products."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from record_weights import scaled_floats, weights

from constrain.kernels import (
    Activation,
    ExpertChoice,
    ExpertMLP,
    Routing,
    StackedWeight,
    TensorCoreWeight,
    expert_linear,
    expert_mlp,
    route,
    stacks,
)
from constrain.kernels.cuda import address, module, stream
from constrain.kernels.expert_mlp import expert_mlp_reference
from constrain.kernels.experts import expert_linear_static
from constrain.kernels.graphs import Graph
from constrain.kernels.weights.fragments import RecordForm

HALVES = [torch.float16, torch.bfloat16]
ROUNDING = {torch.float16: 4e-3, torch.bfloat16: 2e-2}
#: Codes, inputs of a group, and whether there are zero points.
FORMS: list[tuple[str, int, bool]] = [
    *(("int4", size, zeros) for size in (32, 128) for zeros in (False, True)),
    ("int8", 32, False),
    ("int8", 128, False),
    ("float8", 128, False),
    ("float4", 32, False),
    ("scaled_float4", 128, False),
]
SCALES = [torch.float32, torch.float16, torch.bfloat16]
NAMES = [f"{kind} {size}{zeros * ' zeros'}" for kind, size, zeros in FORMS]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def one(form: tuple[str, int, bool], outputs: int, inputs: int, dtype: torch.dtype) -> TensorCoreWeight:
    kind, size, zeros = form
    if kind == "scaled_float4":
        return scaled_floats(outputs, inputs, dtype)[0]
    return weights(kind, outputs, inputs, size, zeros, dtype, SCALES[size % 3])


def in_order(form: tuple[str, int, bool], outputs: int, inputs: int, dtype: torch.dtype) -> TensorCoreWeight:
    """A weight of which some inputs have two columns or more, and the columns an order of their own."""
    order = torch.cat((torch.arange(inputs), torch.randint(inputs, (32,))))[torch.randperm(inputs + 32)]
    return replace(one(form, outputs, inputs + 32, dtype), inputs=inputs, order=order.int())


def stacked(
    form: tuple[str, int, bool],
    count: int,
    outputs: int,
    inputs: int,
    dtype: torch.dtype = torch.bfloat16,
    ordered: bool = False,
) -> StackedWeight:
    make = in_order if ordered else one
    found = StackedWeight.of((make(form, outputs, inputs, dtype) for _ in range(count)), count)
    assert found is not None
    return found


@pytest.mark.parametrize("make", [one, in_order])
@pytest.mark.parametrize("form", FORMS, ids=NAMES)
def test_experts_are_stacked_as_they_are(form: tuple[str, int, bool], make: Any) -> None:
    each = [make(form, 32, 136, torch.bfloat16) for _ in range(3)]
    stack = StackedWeight.of(iter(each), 3)
    assert stack is not None and len(stack) == 3 and stack.outputs == 32
    assert stack.nbytes == sum(weight.nbytes for weight in each)
    dense = torch.stack([weight.dequantized(slice(None), torch.float32) for weight in each])
    assert torch.equal(stack.dequantized(None, torch.float32), dense)
    assert torch.equal(stack.dequantized(torch.tensor([2, 0, 2]), torch.float32), dense[[2, 0, 2]])
    for own, found in zip(each, stack, strict=True):
        assert found.shape == own.shape and torch.equal(found.records, own.records)
        assert torch.equal(found.dequantized(slice(None), torch.float32), own.dequantized(slice(None), torch.float32))
    assert [weight.shape for weight in stack[1:]] == [(32, 136)] * 2
    with pytest.raises(IndexError):
        stack[3]


def test_experts_that_no_kernel_takes_together() -> None:
    small, other = one(FORMS[0], 32, 136, torch.bfloat16), one(FORMS[1], 32, 136, torch.bfloat16)
    assert StackedWeight.of([small, other], 2) is None
    ordered = replace(small, order=torch.randperm(136).int())
    assert StackedWeight.of([small, ordered], 2) is None and StackedWeight.of([ordered, small], 2) is None
    assert StackedWeight.of([ordered, in_order(FORMS[0], 32, 136, torch.bfloat16)], 2) is None
    assert StackedWeight.of([small, torch.zeros(32, 136)], 2) is None
    assert StackedWeight.of([torch.zeros(32, 136)], 1) is None
    assert StackedWeight.of([one(FORMS[0], 24, 136, torch.bfloat16)], 1) is None
    assert not stacks(RecordForm("int8", 128, torch.float16, zeros=True), 32)
    assert not stacks(RecordForm("float4", 128, torch.float16), 32)
    assert not stacks(RecordForm("float8", 32, torch.float16), 32)


@pytest.mark.parametrize("compute", [expert_linear, expert_linear_static])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("rows", "chosen", "shared"), [(1, 2, True), (5, 3, True), (5, 3, False)])
def test_products(compute: Any, rows: int, chosen: int, shared: bool, ordered: bool) -> None:
    stack = stacked(FORMS[0], 8, 32, 136, ordered=ordered)
    x = torch.randn(rows, 1 if shared else chosen, 136)
    experts = torch.rand(rows, 8).topk(chosen).indices
    expected = expert_linear(x, stack.dequantized(None, torch.float32), experts)
    torch.testing.assert_close(compute(x, stack, experts), expected, rtol=1e-4, atol=1e-4)


# ---- On a GPU.


def layer(
    form: tuple[str, int, bool],
    count: int,
    size: int,
    width: int,
    dtype: torch.dtype,
    activation: Activation = Activation.SILU,
    biased: bool = False,
    ordered: tuple[bool, bool] = (False, False),
) -> ExpertMLP:
    gate_up = stacked(form, count, 2 * width, size, dtype, ordered[0])
    down = stacked(form, count, size, width, dtype, ordered[1])
    biases = (torch.randn(count, 2 * width) / 4, torch.randn(count, size) / 4) if biased else (None, None)
    on_gpu = [None if bias is None else bias.to("cuda", dtype) for bias in biases]
    return ExpertMLP(_moved(gate_up), _moved(down), activation, *on_gpu)


def _moved(stack: StackedWeight) -> StackedWeight:
    whole = stack.whole.to(torch.device("cuda"))
    assert isinstance(whole, TensorCoreWeight)
    return StackedWeight(whole, stack.experts, None if stack.order is None else stack.order.cuda())


def choose(rows: int, count: int, chosen: int, same: bool) -> ExpertChoice:
    scores = torch.rand(1 if same else rows, count, device="cuda")
    experts = scores.topk(chosen).indices.expand(rows, chosen).contiguous()
    return ExpertChoice(experts, torch.rand(rows, chosen, device="cuda") + 0.1)


def exact(x: torch.Tensor, choice: ExpertChoice, mlp: ExpertMLP, residual: torch.Tensor | None) -> torch.Tensor:
    """The same in float32, with dequantised weights."""
    plain = ExpertMLP(
        mlp.gate_up.dequantized(None, torch.float32),  # type: ignore[union-attr]
        mlp.down.dequantized(None, torch.float32),  # type: ignore[union-attr]
        mlp.activation,
        None if mlp.gate_up_bias is None else mlp.gate_up_bias.float(),
        None if mlp.down_bias is None else mlp.down_bias.float(),
    )
    return expert_mlp_reference(x.float(), choice, plain, None if residual is None else residual.float())


def check(mlp: ExpertMLP, rows: int, chosen: int, dtype: torch.dtype, same: bool = False) -> None:
    size = mlp.down.outputs  # type: ignore[union-attr]
    x, residual = torch.randn(2, rows, size, device="cuda").to(dtype)
    choice = choose(rows, len(mlp.down), chosen, same)
    for rest in (None, residual):
        found, expected = expert_mlp(x, choice, mlp, rest).float(), exact(x, choice, mlp, rest)
        error, norm = (found - expected).norm(dim=-1), expected.norm(dim=-1)
        assert bool((error < ROUNDING[dtype] * norm).all()), f"{rows} rows: {float((error / norm).max()):.1e}"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("form", FORMS, ids=NAMES)
@pytest.mark.parametrize(("count", "chosen", "size", "width"), [(8, 2, 64, 48), (128, 8, 336, 176), (3, 3, 1040, 528)])
def test_layers_on_a_gpu(
    form: tuple[str, int, bool], count: int, chosen: int, size: int, width: int, dtype: torch.dtype
) -> None:
    mlp = layer(form, count, size, width, dtype)
    for rows in (1, 2, 7, 8, 9, 16, 31, 32, 33, 64):
        check(mlp, rows, chosen, dtype)
    check(mlp, 32, chosen, dtype, same=True)
    check(mlp, 70, chosen, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("ordered", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("form", FORMS[:6], ids=NAMES[:6])
def test_inputs_in_an_order_of_each_expert_on_a_gpu(
    form: tuple[str, int, bool], ordered: tuple[bool, bool], dtype: torch.dtype
) -> None:
    for count, chosen, size, width in ((8, 2, 64, 48), (128, 8, 336, 176), (3, 3, 1040, 528)):
        mlp = layer(form, count, size, width, dtype, ordered=ordered)
        for rows in (1, 2, 8, 9, 32, 33, 64):
            check(mlp, rows, chosen, dtype)
        check(mlp, 32, chosen, dtype, same=True)
        check(mlp, 70, chosen, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize(("activation", "biased"), list(product(Activation, (False, True))))
def test_activations_and_biases_on_a_gpu(activation: Activation, biased: bool) -> None:
    for rows, dtype, form in product((1, 20), HALVES, (FORMS[3], FORMS[7])):
        check(layer(form, 16, 64, 96, dtype, activation, biased), rows, 3, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("ordered", [(False, False), (True, True)])
@pytest.mark.parametrize("rows", [1, 8, 32, 64, 100])
def test_a_graph_serves_every_choice(rows: int, ordered: tuple[bool, bool]) -> None:
    mlp = layer(FORMS[0], 32, 160, 48, torch.bfloat16, ordered=ordered)
    x, logits = torch.randn(rows, 160, device="cuda").bfloat16(), torch.randn(rows, 32, device="cuda").bfloat16()
    graph = Graph(lambda: expert_mlp(x, route(logits, Routing(4)), mlp, x))
    for _ in range(5):
        x.copy_(torch.randn(rows, 160, device="cuda"))
        logits.copy_(torch.randn(rows, 32, device="cuda"))
        found, expected = graph().float(), exact(x, route(logits, Routing(4)), mlp, x)
        assert bool(((found - expected).norm(dim=-1) < 2e-2 * expected.norm(dim=-1)).all())


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 33}, "too many rows"),
        ({"width": 40}, "sizes must be multiples of 16"),
        ({"count": 3}, "weights of another shape"),
        ({"x": 0}, "null or misaligned pointer"),
        ({"gathered": 0}, "null or misaligned pointer"),
    ],
)
def test_arguments_are_checked(changes: dict[str, int], message: str) -> None:
    mlp = layer(FORMS[0], 4, 64, 32, torch.bfloat16, ordered=(True, False))
    memory = torch.zeros(4096, device="cuda")
    of_rows = ("x", "experts", "weights", "gate_up_bias", "down_bias", "residual", "inner", "out")
    pointers = (*of_rows, "gate_up_order", "down_order", "gathered")
    strides = dict.fromkeys(("x_stride", "residual_stride", "out_stride"), 64)
    sizes = {"rows": 1, "count": 4, "chosen": 2, "size": 64, "width": 32}
    given: dict[str, Any] = dict.fromkeys(pointers, address(memory)) | strides | sizes | changes
    views = {"gate_up": mlp.gate_up.view(), "down": mlp.down.view()}  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=message):
        module.packed_expert_mlp(**given, **views, activation="silu", dtype="bfloat16", stream=stream(memory))
