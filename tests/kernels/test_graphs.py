"""Work that is recorded as a CUDA graph."""

from __future__ import annotations

import pytest
import torch

from constrain.kernels.graphs import Graph

pytestmark = pytest.mark.gpu


def test_a_graph_computes_from_what_its_inputs_hold() -> None:
    x = torch.zeros(8, device="cuda")
    graph = Graph(lambda: (x + 1) * 2)
    for value in (0.0, 3.0):
        x.fill_(value)
        assert graph().tolist() == [2 * value + 2] * 8


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_graph_of_two_gpus() -> None:
    """Memory of the second is of the graph too: what is allocated later does not overwrite it."""
    first, second = torch.device("cuda:0"), torch.device("cuda:1")
    x, weight = torch.zeros(1024, 64, device=first), torch.ones(64, 64, device=second)

    def compute() -> torch.Tensor:
        there = x.to(second)
        for _ in range(4):
            there = (there @ weight) / 64 + x.to(second)
        return there.to(first) + x

    graph = Graph(compute, first, [second])
    for value in (1.0, -2.0):
        others = [torch.full((1024, 64), 7.0, device=second) for _ in range(8)]
        x.fill_(value)
        torch.testing.assert_close(graph(), torch.full_like(x, 6 * value))
        assert all((each == 7.0).all() for each in others)
