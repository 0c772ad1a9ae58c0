"""Small helpers of exllamav2: copies between devices, memory statistics, packed bits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from typing import ParamSpec, TypeVar

import torch
from rich.progress import Progress

P = ParamSpec("P")
T = TypeVar("T")
Tensors = TypeVar("Tensors", torch.Tensor, list[torch.Tensor], tuple[torch.Tensor, ...])

__all__ = [
    "cuda_sync_active",
    "get_all_gpu_memory",
    "get_basic_progress",
    "get_visible_devices",
    "integer_split",
    "pack_4bit",
    "pairwise",
    "print_vram_usage",
    "print_vram_usage_peak",
    "safe_move_tensor",
    "test_gpu_peer_copy",
    "timed",
    "unpack_4bit",
]

_MIB = 1024**2


def safe_move_tensor(tensor: Tensors, device: str | torch.device | int, non_blocking: bool = False) -> Tensors:
    """Move a tensor, or several, to a device."""
    if isinstance(tensor, torch.Tensor):
        return tensor.to(device, non_blocking=non_blocking)
    return type(tensor)(part.to(device, non_blocking=non_blocking) for part in tensor)


def test_gpu_peer_copy(device_a: torch.device, device_b: torch.device) -> bool:
    """Whether a copy of a tensor from one device to the other is correct."""
    sent = torch.arange(16, device=device_a)
    return torch.equal(sent.cpu(), sent.to(device_b).cpu())


def timed(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function to print the time of each call."""

    @wraps(function)
    def measured(*args: P.args, **kwargs: P.kwargs) -> T:
        begin = time.perf_counter()
        result = function(*args, **kwargs)
        print(f"{function.__name__}: {time.perf_counter() - begin:.6f} s")
        return result

    return measured


def cuda_sync_active() -> None:
    """Wait for all work of all GPUs."""
    for index in range(torch.cuda.device_count()):
        torch.cuda.synchronize(index)


def get_basic_progress() -> Progress:
    """Create a progress display for the console."""
    return Progress()


def get_visible_devices() -> list[int]:
    """Indices of the GPUs that can be used."""
    return list(range(torch.cuda.device_count()))


def get_all_gpu_memory() -> dict[int, dict[str, float]]:
    """Memory of each GPU in MiB, by index: ``total``, ``used`` and ``free``."""
    found = {}
    for index in get_visible_devices():
        free, total = (size / _MIB for size in torch.cuda.mem_get_info(index))
        found[index] = {"total": total, "used": total - free, "free": free}
    return found


def print_vram_usage() -> None:
    """Print the memory that torch has allocated on each GPU."""
    for index in get_visible_devices():
        print(f"cuda:{index}: {torch.cuda.memory_allocated(index) / _MIB:,.2f} MiB")


def print_vram_usage_peak() -> None:
    """Print the peak memory that torch has allocated on each GPU since the last call."""
    for index in get_visible_devices():
        print(f"cuda:{index}: {torch.cuda.max_memory_allocated(index) / _MIB:,.2f} MiB")
        torch.cuda.reset_peak_memory_stats(index)


def integer_split(x: int, split: Sequence[float], minimum: int = 1) -> list[int]:
    """Split ``x`` into integers proportional to ``split`` (largest remainders), each 0 or at least ``minimum``."""
    exact = [x * share / sum(split) for share in split]
    parts = [int(part) if part >= minimum else 0 for part in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: parts[i] - exact[i])
    growing = [i for i in by_remainder if parts[i]] or by_remainder[:1]
    for step in range(x - sum(parts)):
        parts[growing[step % len(growing)]] += 1
    return parts


def pack_4bit(unpacked: torch.Tensor) -> torch.Tensor:
    """Pack numbers below 16, uint8 ``[k, n]``, eight to a word: int32 ``[k, n / 8]``, the first in the lowest bits."""
    nibbles = unpacked.to(torch.int32).unflatten(1, (-1, 8))  # type: ignore[no-untyped-call]
    packed: torch.Tensor = torch.zeros_like(nibbles[..., 0])
    for i in range(8):
        packed |= nibbles[..., i] << (4 * i)
    return packed


def unpack_4bit(packed: torch.Tensor) -> torch.Tensor:
    """Inverse of :func:`pack_4bit`."""
    return torch.stack([packed >> (4 * i) & 15 for i in range(8)], dim=-1).flatten(1).to(torch.uint8)
