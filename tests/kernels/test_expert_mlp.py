"""Experts of a layer, with and without kernels, against a loop over experts in double precision."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from constrain.kernels import Activation, ExpertChoice, ExpertMLP, Routing, Scoring, expert_mlp, route
from constrain.kernels.activation import gated_activation_reference
from constrain.kernels.cuda import address, module, stream
from constrain.kernels.expert_mlp import expert_mlp_grouped
from constrain.kernels.graphs import Graph
from constrain.kernels.routing import route_reference

HALVES = [torch.float16, torch.bfloat16]
ROUNDING = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


class Layer:
    """Random experts, of a scale that keeps outputs near one."""

    def __init__(
        self,
        count: int,
        size: int,
        width: int,
        dtype: torch.dtype,
        device: str = "cuda",
        activation: Activation = Activation.SILU,
        biased: bool = False,
    ) -> None:
        self.device = device
        random = self._random = torch.Generator(device).manual_seed(0)

        def weight(*shape: int) -> torch.Tensor:
            return (torch.randn(shape, device=device, generator=random) / shape[-1] ** 0.5).to(dtype)

        biases = (weight(count, 2 * width), weight(count, size)) if biased else (None, None)
        self.mlp = ExpertMLP(weight(count, 2 * width, size), weight(count, size, width), activation, *biases)
        self.count, self.size = count, size

    def rows(self, number: int) -> torch.Tensor:
        x = torch.randn(number, self.size, device=self.device, generator=self._random)
        return x.to(self.mlp.gate_up.dtype)  # type: ignore[union-attr]

    def choice(self, rows: int, chosen: int, same: bool = False) -> ExpertChoice:
        """Random experts of each row, with ``same`` equal ones for all rows, and their weights."""
        scores = torch.rand(1 if same else rows, self.count, device=self.device, generator=self._random)
        experts = scores.topk(chosen).indices.expand(rows, chosen).contiguous()
        weights = torch.rand(rows, chosen, device=self.device, generator=self._random) + 0.1
        return ExpertChoice(experts, weights)

    def exact(self, x: torch.Tensor, choice: ExpertChoice) -> torch.Tensor:
        """The sum in double precision, one expert after the other."""
        out = torch.zeros(len(x), self.size, dtype=torch.float64, device=self.device)
        for number in choice.experts.unique().tolist():
            rows, places = (choice.experts == number).nonzero(as_tuple=True)
            out[rows] += self._expert(x[rows].double(), number) * choice.weights[rows, places].unsqueeze(1)
        return out

    def _expert(self, x: torch.Tensor, number: int) -> torch.Tensor:
        def linear(rows: torch.Tensor, weight: Any, bias: Any) -> torch.Tensor:
            return F.linear(rows, weight[number].double(), None if bias is None else bias[number].double())

        inner = linear(x, self.mlp.gate_up, self.mlp.gate_up_bias)
        return linear(gated_activation_reference(inner, self.mlp.activation), self.mlp.down, self.mlp.down_bias)


def close(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether the relative errors of the whole and of each row are within rounding."""
    error, norm = (actual.double() - expected).norm(dim=-1), expected.norm(dim=-1)
    rounding = ROUNDING[actual.dtype]
    return bool(error.norm() < rounding * norm.norm()) and bool((error < 2 * rounding * norm).all())


def check(layer: Layer, rows: int, chosen: int, compute: Any = expert_mlp, same: bool = False) -> None:
    x, residual = layer.rows(rows), layer.rows(rows)
    choice = layer.choice(rows, chosen, same)
    expected = layer.exact(x, choice)
    assert close(compute(x, choice, layer.mlp), expected)
    given = residual.clone()
    assert close(compute(x, choice, layer.mlp, residual), expected + residual.double())
    assert torch.equal(residual, given)


@pytest.mark.parametrize(("rows", "count", "chosen"), [(1, 8, 2), (5, 16, 4), (3, 1, 1)])
@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("biased", [False, True])
def test_reference(rows: int, count: int, chosen: int, activation: Activation, biased: bool) -> None:
    check(Layer(count, 24, 16, torch.float32, "cpu", activation, biased), rows, chosen)


@pytest.mark.skipif(
    sys.modules["constrain.kernels.expert_mlp"]._grouped_product is None, reason="needs a newer version of torch"
)
@pytest.mark.parametrize(("rows", "count", "chosen"), [(1, 8, 2), (70, 16, 4), (3, 1, 1)])
@pytest.mark.parametrize("biased", [False, True])
def test_rows_sorted_by_their_experts(rows: int, count: int, chosen: int, biased: bool) -> None:
    layer = Layer(count, 24, 16, torch.bfloat16, "cpu", biased=biased)
    for same in (False, True):
        check(layer, rows, chosen, expert_mlp_grouped, same)


@pytest.mark.parametrize(("capability", "groups"), [((8, 9), False), ((9, 0), True), ((12, 0), False)])
def test_groups_are_multiplied_where_torch_has_a_kernel(
    capability: tuple[int, int], groups: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere torch refuses, or its host waits for the choice."""
    own: Any = sys.modules["constrain.kernels.expert_mlp"]
    monkeypatch.setattr(own, "_grouped_product", torch.bmm)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert own._multiplies_groups(torch.zeros(1, 8, dtype=torch.bfloat16)) is groups
    assert not own._multiplies_groups(torch.zeros(1, 8, dtype=torch.float16))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("count", "chosen"), [(8, 2), (128, 8), (60, 4), (1, 1), (512, 3)])
@pytest.mark.parametrize(("size", "width"), [(8, 8), (136, 72), (1032, 520)])
def test_few_rows_on_a_gpu(count: int, chosen: int, size: int, width: int, dtype: torch.dtype) -> None:
    if count == 512 and size > 1000:
        pytest.skip("more memory than a test needs")
    layer = Layer(count, size, width, dtype)
    for rows in (1, 2, 7, 9, 16, 17, 64):
        check(layer, rows, chosen)
    check(layer, 15, chosen, same=True)
    check(layer, 33, chosen, same=True)


@pytest.mark.gpu
@pytest.mark.parametrize(("activation", "biased"), list(product(Activation, (False, True))))
def test_activations_and_biases_on_a_gpu(activation: Activation, biased: bool) -> None:
    for rows, dtype in product((1, 16, 64), HALVES):
        check(Layer(16, 64, 88, dtype, activation=activation, biased=biased), rows, 3)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("count", "chosen", "size", "width"), [(8, 2, 4096, 14_336), (32, 4, 2880, 2880), (128, 8, 2048, 768)]
)
def test_layers_of_large_models(count: int, chosen: int, size: int, width: int) -> None:
    layer = Layer(count, size, width, torch.bfloat16)
    for rows, same in product((1, 2, 7, 16, 32, 64), (False, True)):
        check(layer, rows, chosen, same=same)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rows", [65, 300])
def test_many_rows_on_a_gpu(rows: int, dtype: torch.dtype) -> None:
    for biased in (False, True):
        check(Layer(128, 136, 72, dtype, biased=biased), rows, 8)
        check(Layer(8, 136, 72, dtype, biased=biased), rows, 2, same=True)


@pytest.mark.gpu
def test_cases_without_a_kernel_on_a_gpu() -> None:
    check(Layer(8, 136, 72, torch.float32), 5, 2)
    check(Layer(8, 36, 12, torch.bfloat16), 5, 2)
    check(Layer(520, 16, 8, torch.bfloat16), 5, 2)


@pytest.mark.gpu
def test_kernels_need_no_other_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fallback would be correct, but slow."""
    own = sys.modules["constrain.kernels.expert_mlp"]
    for name in ("expert_mlp_reference", "expert_mlp_grouped"):
        monkeypatch.setattr(own, name, None)
    monkeypatch.setattr(sys.modules["constrain.kernels.routing"], "route_reference", None)
    layer = Layer(128, 136, 72, torch.bfloat16)
    for rows in (1, 16):
        x = layer.rows(rows)
        expert_mlp(x, route(torch.randn(rows, 128, device="cuda").to(x), Routing(8)), layer.mlp)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 8, 16, 64, 150])
@pytest.mark.parametrize(("count", "chosen"), [(8, 2), (128, 8)])
def test_a_graph_serves_every_choice(rows: int, count: int, chosen: int) -> None:
    """Several layers one after the other, from logits of routers to outputs."""
    layers = [Layer(count, 136, 72, torch.bfloat16) for _ in range(3)]
    x = layers[0].rows(rows)
    logits = torch.randn(3, rows, count, device="cuda").to(x)

    def steps() -> torch.Tensor:
        y = x
        for layer, own in zip(layers, logits, strict=True):
            y = expert_mlp(y, route(own, Routing(chosen)), layer.mlp, y)
        return y

    graph = Graph(steps)
    for turn in range(10):
        x.copy_(layers[0].rows(rows))
        logits.copy_(torch.randn(3, rows, count, device="cuda"))
        if turn % 5 == 4:
            logits.copy_(logits[:, :1].expand_as(logits))
        found, y = graph().clone(), x.double()
        for layer, own in zip(layers, logits, strict=True):
            y = y + layer.exact(y, route_reference(own, Routing(chosen)))
        assert close(found, y)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("count", "chosen"), [(1, 1), (8, 2), (128, 8), (160, 6), (512, 32)])
@pytest.mark.parametrize(("scoring", "normalised", "corrected"), list(product(Scoring, (False, True), (False, True))))
def test_routing_on_a_gpu(
    count: int, chosen: int, scoring: Scoring, normalised: bool, corrected: bool, dtype: torch.dtype
) -> None:
    # Numbers that differ in 16 bits, so that there are no equals to choose from.
    steps = torch.stack([torch.randperm(count) for _ in range(70)]) - count // 2
    logits = (steps / 64).to("cuda", dtype)
    correction = torch.arange(count, device="cuda") * 1e-4 if corrected else None
    routing = Routing(chosen, scoring, normalised, 2.5)
    for given in (logits, logits[:1], logits.repeat(1, 2)[:, :count]):
        experts, weights = route(given, routing, correction)
        expected, expected_weights = route_reference(given, routing, correction)
        assert experts.dtype is torch.int64 and weights.dtype is torch.float32
        assert torch.equal(experts, expected) or corrected
        torch.testing.assert_close(weights.sort().values, expected_weights.sort().values, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
def test_equal_and_unusual_logits_on_a_gpu() -> None:
    logits = torch.zeros(4, 40, device="cuda", dtype=torch.bfloat16)
    logits[1], logits[2], logits[3, 7] = -torch.inf, torch.nan, torch.nan
    logits[1, 30] = 1
    experts, weights = route(logits, Routing(3))
    assert experts[0].tolist() == [0, 1, 2] and weights[0].tolist() == pytest.approx([1 / 3] * 3)
    assert experts[1].tolist() == [30, 0, 1] and weights[1].tolist() == [1, 0, 0]
    # The weights are not numbers, but the experts are still some to read.
    assert all(len({*row}) == 3 and min(row) >= 0 and max(row) < 40 for row in experts.tolist())


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 17}, "too many rows"),
        ({"count": 513}, "unsupported number of experts"),
        ({"chosen": 9}, "unsupported number of chosen experts"),
        ({"size": 12}, "the size must be a multiple of 8"),
        ({"width": 12}, "the width must be a multiple of 8"),
        ({"down": 0}, "null or misaligned pointer"),
    ],
)
def test_arguments_are_checked(changes: dict[str, int], message: str) -> None:
    memory = torch.zeros(4096, device="cuda")
    pointers = ("x", "experts", "weights", "gate_up", "gate_up_bias", "down", "down_bias", "residual", "inner", "out")
    strides = dict.fromkeys(("x_stride", "residual_stride", "out_stride"), 8)
    sizes = {"rows": 1, "count": 8, "chosen": 2, "size": 8, "width": 8}
    given: dict[str, Any] = dict.fromkeys(pointers, address(memory)) | strides | sizes | changes
    with pytest.raises(ValueError, match=message):
        module.expert_mlp(**given, activation="silu", dtype="float16", stream=stream(memory))
