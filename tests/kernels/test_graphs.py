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
