"""Times and limits of a GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

from constrain.kernels import cuda

_WARM_UP = 3
# Its streams and events have no types.
_torch_cuda: Any = torch.cuda


def device_name() -> dict[str, Any]:
    """What a figure has to be read with."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {"device": properties.name, "torch": torch.__version__, "cuda": torch.version.cuda}


def graph_of(work: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """Work as a CUDA graph, after it has run once."""
    side = _torch_cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def event_seconds(work: Callable[[], Any], repeats: int) -> list[float]:
    """Times on the GPU's clock of work that is queued again and again, without waiting between."""
    events = [[_torch_cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats + _WARM_UP)]
    for begin, end in events:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1000 for begin, end in events[_WARM_UP:]]


def replay_seconds(graph: torch.cuda.CUDAGraph, repeats: int = 15) -> float:
    """Median time of a replay."""
    return statistics.median(event_seconds(graph.replay, repeats))


def seconds_per_call(calls: list[Callable[[], Any]]) -> float:
    """Median time of one of several calls that run one after the other in a graph.

    The calls should work on different memory, more than the caches hold in all.
    """

    def work() -> None:
        for call in calls:
            call()

    return replay_seconds(graph_of(work)) / len(calls)


def read_bandwidth(gigabytes: float = 8.0) -> float:
    """Bytes per second at which a kernel that does nothing else reads memory."""
    memory = torch.randn(int(gigabytes * 1e9 / 4) // 4 * 4, device="cuda")
    out = torch.empty(1, dtype=torch.int32, device="cuda")

    def read() -> None:
        cuda.module.read_all(
            memory=cuda.address(memory), bytes=memory.nbytes, out=cuda.address(out), stream=cuda.stream(memory)
        )

    return memory.nbytes / replay_seconds(graph_of(read))
