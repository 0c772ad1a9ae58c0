"""CUDA graph capture and replay, a second stream for small copies, and copies that the host does not wait for."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Generic, TypeVar

import torch

from constrain.errors import GenerationError

T = TypeVar("T")

_WARM_UP_RUNS = 2


class Graph(Generic[T]):
    """A computation captured as a CUDA graph: one call launches all of its kernels, instead of one call for each.

    The computation reads and writes tensors that stay where they are. Each run overwrites the result of the last.
    """

    def __init__(
        self, compute: Callable[[], T], device: torch.device | None = None, others: Sequence[torch.device] = ()
    ) -> None:
        """Run and capture a computation.

        Args:
            compute: must queue the same kernels each time.
            device: the GPU on which it begins and ends; by default the current one.
            others: further GPUs that it uses.

        Raises:
            GenerationError: work on several GPUs cannot be recorded.
        """
        # The graph uses memory that `compute` may own.
        self._compute = compute
        self._device = device or torch.device("cuda", torch.cuda.current_device())
        self._others = tuple(others)
        self._pools = [_memory_pool(other) for other in self._others]
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            side = self._warm_up()
            try:
                with torch.cuda.graph(self._graph, stream=side), _without_collection(), self._on_all_devices():
                    self._out = compute()
            except RuntimeError as cause:
                if not self._others:
                    raise
                raise GenerationError(
                    f"work on {1 + len(self._others)} GPUs cannot be recorded as a CUDA graph here; run it without, by "
                    "config.no_graphs = True"
                ) from cause

    def __call__(self) -> T:
        # Work on the other devices is ordered with the graph as work on its own device is.
        for other in self._others:
            torch.cuda.current_stream(self._device).wait_stream(torch.cuda.current_stream(other))
        self._graph.replay()
        for other in self._others:
            torch.cuda.current_stream(other).wait_stream(torch.cuda.current_stream(self._device))
        return self._out

    def _warm_up(self) -> Any:
        """Run the computation on another stream, and return that."""
        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_RUNS):
                self._compute()
        torch.cuda.current_stream().wait_stream(side)
        return side

    @contextmanager
    def _on_all_devices(self) -> Iterator[None]:
        """Record on the other devices too: their streams branch off the one that is recorded, and join it again."""
        recorded = torch.cuda.current_stream(self._device)
        with ExitStack() as stack:
            sides = []
            for other, pool in zip(self._others, self._pools, strict=True):
                side = torch.cuda.Stream(other)  # type: ignore[no-untyped-call]
                side.wait_stream(recorded)
                stack.enter_context(torch.cuda.stream(side))
                stack.enter_context(torch.cuda.use_mem_pool(pool, other))
                sides.append(side)
            # A stream also makes its device the current one.
            stack.enter_context(torch.cuda.device(self._device))
            yield
            for side in sides:
                recorded.wait_stream(side)


def _memory_pool(device: torch.device) -> Any:
    """Return a pool of memory of a device, which lasts as long as the graph that uses it."""
    with torch.cuda.device(device):
        return torch.cuda.MemPool()


@contextmanager
def _without_collection() -> Iterator[None]:
    """Suspend garbage collection, which may free another graph; CUDA forbids that while one is recorded."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class SideStream:
    """A second stream of a GPU, for small copies that run while the current stream computes.

    On other devices all work is done in the order in which it is queued.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self.follow()

    def follow(self) -> None:
        """Make later work on this stream wait for what is now queued on the current stream."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))

    def join(self) -> None:
        """Make later work on the current stream wait for what is now queued on this stream."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)

    def queue(self) -> AbstractContextManager[Any]:
        """Queue work on this stream within a ``with`` block."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


class Event:
    """A CUDA event, recorded on the current stream of a device by the constructor; elsewhere it has always passed."""

    def __init__(self, device: torch.device) -> None:
        self._event: Any = None
        if device.type == "cuda":
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(device))

    @property
    def passed(self) -> bool:
        """True once the device has done the work that was queued before the event."""
        return self._event is None or self._event.query()

    def wait(self) -> None:
        """Wait for the device to do that work."""
        if self._event is not None:
            self._event.synchronize()


class Uploads:
    """Copies values from the host to tensors on a device without waiting for it.

    Attributes:
        bytes: number of bytes copied so far.
    """

    def __init__(self, device: torch.device) -> None:
        self.bytes = 0
        self._pinned = device.type == "cuda"

    def send(self, target: torch.Tensor, values: torch.Tensor | Sequence[int] | Sequence[float]) -> None:
        """Copy as many values as ``target`` has into it; a tensor must be on the CPU, and must not be changed later."""
        given = torch.as_tensor(values, dtype=target.dtype).view(target.shape)
        target.copy_(given.pin_memory() if self._pinned else given, non_blocking=True)
        self.bytes += target.nbytes
