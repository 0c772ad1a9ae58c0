"""Work that a GPU does again and again, started by a single call; and what is sent to it between."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")

_WARM_UP_RUNS = 2


class Graph(Generic[T]):
    """Work on tensors that stay where they are, as a CUDA graph: hundreds of kernels would otherwise wait for the host.

    What a run returns is overwritten by the next.
    """

    def __init__(self, compute: Callable[[], T]) -> None:
        """Run ``compute``, which is to be done the same way each time, and record it."""
        # It may own memory that the graph uses.
        self._compute = compute
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_RUNS):
                compute()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph), _without_collection():
            self._out = compute()

    def __call__(self) -> T:
        self._graph.replay()
        return self._out


@contextmanager
def _without_collection() -> Iterator[None]:
    """Another graph must not be freed while one is recorded, which it may be when garbage is collected."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Beside:
    """A stream for small copies beside the work of a GPU's current stream; elsewhere all is done in turn."""

    def __init__(self, device: torch.device) -> None:
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self.follow()

    def follow(self) -> None:
        """Have what is queued here from now on wait for what is in the current stream."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))

    def join(self) -> None:
        """Have what is queued in the current stream from now on wait for what is here."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)

    def queue(self) -> AbstractContextManager[Any]:
        """Queue work here."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


class Mark:
    """A place in what is queued in the current stream of a device: behind all that is there when this is made."""

    def __init__(self, device: torch.device) -> None:
        self._event: Any = None
        if device.type == "cuda":
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(device))

    @property
    def passed(self) -> bool:
        """Whether the device has got there."""
        return self._event is None or self._event.query()


class Uploads:
    """Sends values to tensors on a device without waiting for it.

    Attributes:
        bytes: sent so far.
    """

    def __init__(self, device: torch.device) -> None:
        self.bytes = 0
        self._pinned = device.type == "cuda"

    def send(self, target: torch.Tensor, values: torch.Tensor | Sequence[int] | Sequence[float]) -> None:
        """Copy values, as many as ``target`` has, into it; a tensor must be on the CPU, and is not to be changed."""
        given = torch.as_tensor(values, dtype=target.dtype).view(target.shape)
        target.copy_(given.pin_memory() if self._pinned else given, non_blocking=True)
        self.bytes += target.nbytes
