"""Routing and products of experts against loops over tokens."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from constrain.kernels import Activation, Routing, Scoring, expert_linear, gated_activation, route
from constrain.kernels.experts import expert_linear_static


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("scoring", "normalised", "scale"), list(product(Scoring, (False, True), (1.0, 2.5))))
def test_the_best_experts_are_chosen(scoring: Scoring, normalised: bool, scale: float) -> None:
    logits = random(5, 7)
    experts, weights = route(logits, Routing(3, scoring, normalised, scale))
    scores = logits.sigmoid() if scoring is Scoring.SIGMOID else logits.exp() / logits.exp().sum(-1, keepdim=True)
    for row, chosen, given in zip(scores, experts.tolist(), weights, strict=True):
        assert chosen == sorted(range(7), key=lambda expert: -row[expert])[:3]
        total = sum(row[chosen].tolist()) if normalised else 1.0
        torch.testing.assert_close(given, row[chosen] * scale / total)


def test_a_correction_changes_the_choice_and_not_the_weights() -> None:
    logits, correction = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([-5.0, 0.0, 0.5])
    experts, weights = route(logits, Routing(2, Scoring.SIGMOID, normalised=False), correction)
    assert experts.tolist() == [[2, 1]]
    torch.testing.assert_close(weights, logits.sigmoid()[:, [2, 1]])


@pytest.mark.parametrize(("best_of_group", "expected"), [(1, [0, 4]), (2, [4, 2])])
def test_experts_are_chosen_from_the_best_groups(best_of_group: int, expected: list[int]) -> None:
    # The first group has the best expert of all, the others have the best pairs.
    logits = torch.tensor([[0.9, 0.1, 0.6, 0.5, 0.8, 0.4]]).logit()
    routing = Routing(2, Scoring.SIGMOID, groups=3, chosen_groups=2, best_of_group=best_of_group)
    assert route(logits, routing)[0].tolist() == [expected]


def by_token(
    x: torch.Tensor, weight: torch.Tensor, experts: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    rows = x.expand(*experts.shape, -1)
    out = [
        [weight[expert] @ rows[i, j] + (0 if bias is None else bias[expert]) for j, expert in enumerate(chosen)]
        for i, chosen in enumerate(experts.tolist())
    ]
    return torch.stack([torch.stack(row) for row in out])


@pytest.mark.parametrize("compute", [expert_linear, expert_linear_static])
@pytest.mark.parametrize(("rows", "count"), [(1, 8), (2, 128), (6, 4), (3, 1)])
@pytest.mark.parametrize("shared", [True, False])
def test_each_row_meets_its_experts(compute: object, rows: int, count: int, shared: bool) -> None:
    chosen = min(2, count)
    x, weight = random(rows, 1 if shared else chosen, 16), random(count, 24, 16, seed=1)
    experts = torch.rand(rows, count, generator=torch.Generator().manual_seed(2)).topk(chosen).indices
    torch.testing.assert_close(compute(x, weight, experts), by_token(x, weight, experts), atol=1e-5, rtol=1e-5)  # type: ignore[operator]


def test_biases_and_activations() -> None:
    x, weight, bias = random(4, 1, 16), random(6, 32, 16, seed=1), random(6, 32, seed=2)
    experts = torch.tensor([[0, 5], [1, 0], [2, 5], [5, 3]])
    expected = gated_activation(by_token(x, weight, experts, bias), Activation.SILU)
    torch.testing.assert_close(expert_linear(x, weight, experts, bias, Activation.SILU), expected, atol=1e-5, rtol=1e-5)


def test_experts_that_are_not_chosen_are_not_read() -> None:
    class Forbidden:
        def __getattr__(self, name: str) -> object:
            raise AssertionError("read")

    x, weight = random(1, 1, 16), random(3, 24, 16, seed=1)
    weights = [weight[0], Forbidden(), weight[2]]
    experts = torch.tensor([[2, 0]])
    found = expert_linear(x, weights, experts)  # type: ignore[arg-type]
    torch.testing.assert_close(found, by_token(x, weight, experts), atol=1e-5, rtol=1e-5)
