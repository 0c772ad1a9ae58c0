"""Loading of many tensors from files to GPUs, at the speed of the disk.

Threads read the files part by part into a ring of pinned buffers, in the order in which the tensors will be copied.
Meanwhile the GPUs copy the parts asynchronously from the buffers to the tensors, and convert them there.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from constrain.errors import WeightsError
from constrain.kernels import GroupedWeight, PackedWeight

# Enough to saturate the bus to an H200 when the files are in the page cache; larger values are not faster.
PART_BYTES = 8 * 1024**2
BUFFERS = 24
THREADS = 12


class TensorSource(Protocol):
    """A source of the weights of modules."""

    def copy(self, key: str, target: torch.Tensor) -> None:
        """Fill ``target`` with the tensor ``key``, converted to its dtype; on a GPU by its current stream."""

    def packed(self, key: str, shape: tuple[int, int], device: torch.device) -> PackedWeight | None:
        """Return a weight on ``device`` in the quantised form in which it is stored.

        ``None`` if it is stored in another way, there are no products with it, or the source only fills tensors.
        """

    def packed_experts(self, key: str, shape: tuple[int, ...]) -> list[GroupedWeight] | None:
        """Return the weights ``[outputs, inputs]`` of all experts in the quantised form in which they are stored.

        ``None`` if they are stored in another way, or the source only fills tensors. ``shape`` is that of the tensor
        that :meth:`copy` fills.
        """


class LoadOrder:
    """A source without tensors, which records the requests of modules: names and shapes, in ``tensors``."""

    def __init__(self) -> None:
        self.tensors: list[tuple[str, tuple[int, ...]]] = []

    def copy(self, key: str, target: torch.Tensor) -> None:
        self.tensors.append((key, tuple(target.shape)))

    def packed(self, key: str, shape: tuple[int, int], device: torch.device) -> None:
        pass

    def packed_experts(self, key: str, shape: tuple[int, ...]) -> None:
        pass


@dataclass(frozen=True)
class Region:
    """The place of a tensor in a file: ``start`` and ``size`` in bytes."""

    key: str
    file: Path
    dtype: torch.dtype
    start: int
    size: int

    def parts(self) -> Iterator[Region]:
        """Split the region into parts that fit into a buffer."""
        for start in range(0, self.size, PART_BYTES):
            yield Region(self.key, self.file, self.dtype, self.start + start, min(PART_BYTES, self.size - start))


class _Buffer:
    """A pinned buffer for a part, and the event after which it can be reused."""

    def __init__(self, size: int) -> None:
        self._bytes = torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
        self._view: Any = memoryview(self._bytes.numpy())  # type: ignore[arg-type]
        self._copied: Any = None

    def fill(self, part: Region, descriptor: int) -> None:
        self.wait()
        done = 0
        while done < part.size:
            try:
                count = os.preadv(descriptor, [self._view[done : part.size]], part.start + done)
            except OSError as cause:
                raise WeightsError(f"{part.file}: tensor {part.key} cannot be read ({cause.strerror})") from cause
            if count == 0:
                raise WeightsError(f"{part.file}: tensor {part.key} is cut off; the file has become shorter")
            done += count

    def copy_to(self, target: torch.Tensor, stored: torch.dtype) -> None:
        """Copy the content to a flat tensor, asynchronously if that is on a GPU."""
        values = self._bytes[: target.numel() * stored.itemsize].view(stored)
        if values.dtype is not target.dtype:
            values = values.to(target.device, non_blocking=True)
        target.copy_(values, non_blocking=True)
        if target.is_cuda:
            self._copied = _event(target.device)

    def wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()


class TensorReader:
    """Prefetches tensors, each of which is to be copied once, in the order of ``regions``.

    Additional memory is at most ``BUFFERS`` times ``PART_BYTES``.

    Args:
        regions: regions of the tensors that files hold unquantised.
        others: has the other tensors.

    Raises:
        WeightsError: a file cannot be opened. Also raised by ``copy`` if a part cannot be read.
    """

    def __init__(self, regions: Sequence[Region], others: TensorSource) -> None:
        self._regions = {region.key: region for region in regions}
        self._others = others
        parts = [part for region in regions for part in region.parts()]
        self._parts = iter(parts)
        self._filled: deque[tuple[_Buffer, Future[None]]] = deque()
        self._descriptors: dict[Path, int] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="weights")
        largest = max((part.size for part in parts), default=0)
        self._buffers = [_Buffer(largest) for _ in parts[:BUFFERS]]
        try:
            for buffer in self._buffers:
                self._prefetch(buffer)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TensorReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading, and wait for the copies."""
        self._pool.shutdown(cancel_futures=True)
        for buffer in self._buffers:
            buffer.wait()
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def copy(self, key: str, target: torch.Tensor) -> None:
        """See :class:`TensorSource`; ``target`` is contiguous, and of the shape of the tensor."""
        region = self._regions.get(key)
        if region is None:
            self._others.copy(key, target)
            return
        for part in torch.split(target.view(-1), PART_BYTES // region.dtype.itemsize):
            buffer, filled = self._filled.popleft()
            filled.result()
            buffer.copy_to(part, region.dtype)
            self._prefetch(buffer)

    def packed(self, key: str, shape: tuple[int, int], device: torch.device) -> PackedWeight | None:
        """See :class:`TensorSource`."""
        return self._others.packed(key, shape, device)

    def packed_experts(self, key: str, shape: tuple[int, ...]) -> list[GroupedWeight] | None:
        """See :class:`TensorSource`."""
        return self._others.packed_experts(key, shape)

    def _prefetch(self, buffer: _Buffer) -> None:
        part = next(self._parts, None)
        if part is not None:
            filled = self._pool.submit(buffer.fill, part, self._descriptor(part.file))
            self._filled.append((buffer, filled))

    def _descriptor(self, file: Path) -> int:
        if file not in self._descriptors:
            try:
                self._descriptors[file] = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as cause:
                raise WeightsError(f"{file}: cannot be read ({cause.strerror})") from cause
        return self._descriptors[file]


def _event(device: torch.device) -> Any:
    """Record an event on the current stream; a thread that waits for it sleeps instead of spinning."""
    event: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event
