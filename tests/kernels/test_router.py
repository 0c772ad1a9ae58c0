"""Norm, router and choice in one function."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from constrain.kernels import ExpertChoice, Routing, RowNorm, Scoring, linear, route, route_normed
from constrain.kernels.cuda import address, module, stream
from constrain.kernels.graphs import Graph
from constrain.kernels.norm import normed, rms_norm_reference
from constrain.kernels.routing import route_reference

EPS = 1e-5


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def parts(rows: int, width: int, count: int) -> tuple[torch.Tensor, RowNorm, torch.Tensor, torch.Tensor]:
    """States, a norm, and the weight and bias of a router whose logits are far apart."""
    x, weight, bias = torch.randn(rows, width) * 3, torch.randn(count, width) / width**0.5, torch.randn(count)
    return x, RowNorm(torch.rand(width) + 0.5, EPS), weight * 2, bias


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_it_is_the_three_functions_one_after_the_other(centred: bool, biased: bool) -> None:
    x, norm, weight, bias = parts(5, 24, 7)
    given, norm = bias if biased else None, replace(norm, centred=centred)
    rows, choice = route_normed(x, norm, weight, given, Routing(3))
    assert torch.equal(rows, normed(x, norm))
    expected = route(linear(rows, weight, given), Routing(3))
    assert torch.equal(choice.experts, expected.experts) and torch.equal(choice.weights, expected.weights)


# ---- On a GPU.


def on_gpu(rows: int, width: int, count: int) -> tuple[torch.Tensor, RowNorm, torch.Tensor, torch.Tensor]:
    x, norm, weight, bias = parts(rows, width, count)
    moved = [tensor.to("cuda", torch.bfloat16) for tensor in (x, norm.weight, weight, bias)]
    return moved[0], RowNorm(moved[1], EPS), moved[2], moved[3]


def check(
    found: tuple[torch.Tensor, ExpertChoice],
    x: torch.Tensor,
    norm: RowNorm,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    routing: Routing,
    correction: torch.Tensor | None = None,
) -> None:
    """Compare with float64; of experts that are about equal, either may be chosen."""
    rows, (experts, weights) = found
    exact = rms_norm_reference(x.double(), norm.weight.double(), EPS)
    torch.testing.assert_close(rows.double(), exact, rtol=2**-7, atol=1e-3)
    logits = exact @ weight.double().T + (0 if bias is None else bias.double())
    scores = logits.sigmoid() if routing.scoring is Scoring.SIGMOID else logits.softmax(-1)
    rank = scores if correction is None else scores + correction
    chosen = scores.gather(1, experts)
    total = chosen.sum(-1, keepdim=True) if routing.normalised else 1.0
    torch.testing.assert_close(weights.double(), chosen / total * routing.scale, rtol=0.1, atol=5e-3)
    assert all(len(set(row)) == routing.chosen for row in experts.tolist())
    margin = rank.gather(1, experts) - rank.topk(routing.chosen).values
    assert bool((margin.abs() < 0.06 * rank.topk(routing.chosen).values.abs() + 5e-3).all())


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("count", "chosen"), [(1, 1), (8, 2), (16, 16), (40, 8), (60, 4), (128, 8), (128, 32), (129, 8)]
)
@pytest.mark.parametrize("width", [64, 136, 2048, 4104])
def test_choices_on_a_gpu(count: int, chosen: int, width: int) -> None:
    """With up to 8 rows in one kernel, and with more."""
    for rows, biased in product((1, 2, 3, 8, 9), (False, True)):
        x, norm, weight, bias = on_gpu(rows, width, count)
        given = bias if biased and count % 8 == 0 else None
        check(route_normed(x, norm, weight, given, Routing(chosen)), x, norm, weight, given, Routing(chosen))


@pytest.mark.gpu
@pytest.mark.parametrize(("scoring", "normalised", "scale"), list(product(Scoring, (False, True), (1.0, 2.5))))
def test_scores_on_a_gpu(scoring: Scoring, normalised: bool, scale: float) -> None:
    x, norm, weight, bias = on_gpu(4, 256, 64)
    correction, routing = torch.rand(64, device="cuda"), Routing(6, scoring, normalised, scale)
    for given in (None, correction):
        check(route_normed(x, norm, weight, bias, routing, given), x, norm, weight, bias, routing, given)


@pytest.mark.gpu
def test_rows_apart_in_memory_and_equal_logits() -> None:
    x, norm, weight, _ = on_gpu(6, 64, 32)
    apart = torch.zeros(6, 128, device="cuda", dtype=torch.bfloat16)
    apart[:, :64] = x
    check(route_normed(apart[:, :64], norm, weight, None, Routing(4)), x, norm, weight, None, Routing(4))
    _, choice = route_normed(x, norm, torch.zeros_like(weight), None, Routing(4))
    expected = route_reference(torch.zeros(6, 32), Routing(4))
    assert choice.experts.tolist() == [[0, 1, 2, 3]] * 6
    torch.testing.assert_close(choice.weights.cpu(), expected.weights)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 8])
def test_graphs_and_repeated_calls(rows: int) -> None:
    """Every replay reads its rows; what follows at once reads what the kernel has written."""
    x, norm, weight, _ = on_gpu(rows, 2048, 128)

    def run() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        found, _ = route_normed(x, norm, weight, None, Routing(8))
        again, second = route_normed(found, norm, weight, None, Routing(8))
        return again, second.experts, second.weights

    graph = Graph(run)
    for _ in range(20):
        x.copy_(torch.randn(rows, 2048, device="cuda"))
        again, experts, weights = graph()
        first, _ = route_normed(x, norm, weight, None, Routing(8))
        check((again, ExpertChoice(experts, weights)), first, norm, weight, None, Routing(8))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 9}, "too many rows"),
        ({"count": 129}, "unsupported number of experts"),
        ({"chosen": 9}, "unsupported number of chosen experts"),
        ({"width": 60}, "the width must be a multiple of 8"),
        ({"normed": 0}, "null or misaligned pointer"),
        ({"experts": 0}, "null pointer"),
    ],
)
def test_arguments_are_checked(changes: dict[str, int], message: str) -> None:
    memory = torch.zeros(4096, device="cuda")
    pointers = ("x", "norm_weight", "weight", "bias", "correction", "normed", "experts", "weights")
    sizes = {"x_stride": 64, "rows": 1, "width": 64, "count": 8, "chosen": 2}
    given: dict[str, Any] = dict.fromkeys(pointers, address(memory)) | sizes | changes
    scores = {"scoring": "softmax", "normalised": True, "scale": 1.0, "eps": EPS}
    with pytest.raises(ValueError, match=message):
        module.route_normed(**given, **scores, stream=stream(memory))
