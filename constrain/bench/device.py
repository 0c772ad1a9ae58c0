"""Timing helpers, and the measured memory bandwidth of a GPU."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch

from constrain.kernels import cuda
from constrain.kernels.graphs import Graph

_WARM_UP = 3
_REPLAYS = 15


def conditions() -> dict[str, Any]:
    """Return the environment of a measurement: ``date``, ``device``, and the versions of ``torch`` and ``cuda``."""
    return {
        "date": date.today().isoformat(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else _processor(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def synchronize() -> None:
    """Wait until the GPU, if there is one, has finished all queued work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def run_seconds(work: Callable[[], Any]) -> float:
    """Return the wall-clock time of one run, including its queued GPU work."""
    synchronize()
    begin = time.perf_counter()
    _made = work()  # kept alive so that freeing it is not timed
    synchronize()
    return time.perf_counter() - begin


def event_seconds(work: Callable[[], Any], repeats: int) -> list[float]:
    """Return the GPU times, by CUDA events, of work queued ``repeats`` times without synchronizing in between."""
    timed: Any = partial(torch.cuda.Event, enable_timing=True)
    events = [(timed(), timed()) for _ in range(repeats + _WARM_UP)]
    for begin, end in events:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1000 for begin, end in events[_WARM_UP:]]


def _graph_seconds(work: Callable[[], Any]) -> float:
    """Return the median replay time of work captured as a CUDA graph."""
    return statistics.median(event_seconds(Graph(work), _REPLAYS))


def seconds_per_call(calls: list[Callable[[], Any]]) -> float:
    """Return the median time per call of several calls that run back to back in a CUDA graph.

    The calls should use different memory, more in total than the GPU's caches hold.
    """

    def work() -> None:
        for call in calls:
            call()

    return _graph_seconds(work) / len(calls)


def read_bandwidth(gigabytes: float = 8.0) -> float:
    """Measure the memory read bandwidth, in bytes per second, of a kernel that only reads."""
    memory = torch.randn(int(gigabytes * 1e9 / 4) // 4 * 4, device="cuda")
    out = torch.empty(1, dtype=torch.int32, device="cuda")

    def read() -> None:
        cuda.module.read_all(
            memory=cuda.address(memory), bytes=memory.nbytes, out=cuda.address(out), stream=cuda.stream(memory)
        )

    return memory.nbytes / _graph_seconds(read)


def _processor() -> str:
    """Return the name of the CPU and the number of threads that torch uses."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {torch.get_num_threads()} threads"
