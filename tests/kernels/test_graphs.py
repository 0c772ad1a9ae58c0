"""Recording of work as CUDA graphs."""

from __future__ import annotations

import gc

import pytest
import torch

from constrain.kernels.graphs import Graph


@pytest.mark.gpu
def test_garbage_is_not_collected_while_a_graph_is_recorded(cuda: torch.device) -> None:
    x, collects = torch.ones(4, device=cuda), []

    def compute() -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            collects.append(gc.isenabled())
        return x * 2

    graph = Graph(compute)
    assert collects == [False] and gc.isenabled()
    x.fill_(3)
    assert graph().tolist() == [6.0] * 4


@pytest.mark.gpu
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
