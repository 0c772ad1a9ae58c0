"""Recording of work as CUDA graphs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from constrain.kernels.graphs import Graph


@pytest.fixture
def _eager_collection() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


@pytest.mark.gpu
@pytest.mark.usefixtures("_eager_collection")
def test_garbage_is_not_collected_while_a_graph_is_recorded(cuda: torch.device) -> None:
    x = torch.ones(4, device=cuda)

    def compute() -> torch.Tensor:
        cycle: list[object] = []
        cycle.append(cycle)
        return x * 2

    forgotten: list[object] = [Graph(compute)]
    forgotten.append(forgotten)
    gc.disable()
    del forgotten
    gc.enable()
    graph = Graph(compute)
    x.fill_(3)
    assert graph().tolist() == [6.0] * 4
    assert gc.isenabled()
