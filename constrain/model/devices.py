"""Distribution of modules over devices."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from constrain.arguments import check_type
from constrain.errors import ModelError

_RESERVE_FIRST = 192 * 1024**2
_RESERVE_OTHERS = 64 * 1024**2


def first_device() -> torch.device:
    """The first GPU, or the CPU where there is none."""
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def default_dtype(device: torch.device, stored: torch.dtype) -> torch.dtype:
    """Choose a compute dtype: float32 on the CPU (none is faster); on a GPU bfloat16 if stored as such, or float16."""
    if device.type == "cpu":
        return torch.float32
    return torch.bfloat16 if stored is torch.bfloat16 else torch.float16


def split_by_size(sizes: Sequence[int], gpu_split: Sequence[float] | None) -> list[torch.device]:
    """Choose a device for every module: fill GPUs in order up to ``gpu_split`` GB each; without it, all on the first.

    Raises:
        ModelError: the modules need more than the split allows.
    """
    if not torch.cuda.is_available():
        return [torch.device("cpu")] * len(sizes)
    if not gpu_split:
        return [torch.device("cuda:0")] * len(sizes)
    return _fill(sizes, [int(gigabytes * 1024**3) for gigabytes in gpu_split])


def split_by_free_memory(
    sizes: Sequence[int], reserve: int | Sequence[int] | None, working: int = 0
) -> list[torch.device]:
    """Choose a device for every module: fill devices in order up to :func:`free_memory`, less ``working`` bytes each.

    Raises:
        ModelError: the modules need more than the devices have.
    """
    devices = _fill(sizes, [free - working for free in free_memory(reserve)])
    return devices if torch.cuda.is_available() else [torch.device("cpu")] * len(devices)


def free_memory(reserve: int | Sequence[int] | None) -> list[int]:
    """Free bytes of every GPU, less ``reserve`` bytes each; without a GPU, those of the machine."""
    if not torch.cuda.is_available():
        return [_available_memory()]
    count = torch.cuda.device_count()
    if reserve is None:
        reserves = [_RESERVE_FIRST] + [_RESERVE_OTHERS] * (count - 1)
    elif isinstance(reserve, int):
        reserves = [reserve] * count
    else:
        reserves = [*reserve, *[_RESERVE_OTHERS] * count][:count]
    return [torch.cuda.mem_get_info(index)[0] - reserves[index] for index in range(count)]


_CONTROL_GROUP = Path("/sys/fs/cgroup")


def _available_memory() -> int:
    """Bytes that a program may take without swapping; all of the machine's where the system does not tell them.

    In a container, at most what is left of its memory limit; cached files count as free (control groups, version 2).
    """
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError):
        if found := re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE):
            available = int(found[1]) * 1024
    with suppress(OSError, ValueError):  # "max": no limit
        limit, taken = (int((_CONTROL_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = re.search(r"^inactive_file (\d+)$", (_CONTROL_GROUP / "memory.stat").read_text(), re.MULTILINE)
        available = min(available, max(0, limit - taken + (int(cached[1]) if cached else 0)))
    return available


def listed_devices(devices: Sequence[str | torch.device]) -> tuple[torch.device, ...]:
    """Return devices by their names; all of them are GPUs, or all the CPU, and they may repeat.

    Raises:
        ArgumentError: they are not listed.
        ModelError: one is none, or they are of several types.
    """
    check_type("devices", devices, (list, tuple), "a list of devices")
    try:
        chosen = tuple(torch.device(each) for each in devices)
    except (RuntimeError, TypeError) as error:
        raise ModelError(f"devices={list(devices)}: {error}") from error
    if len({each.type for each in chosen}) != 1:
        raise ModelError(f"devices={list(devices)}: name one device or more, all GPUs or all the CPU")
    count = torch.cuda.device_count()
    for each in chosen:
        if each.type == "cuda" and (each.index or 0) >= count:
            raise ModelError(f"devices={list(devices)}: there is no {each}; the machine has {count} GPUs")
    return tuple(torch.device("cuda", each.index or 0) if each.type == "cuda" else each for each in chosen)


def _fill(sizes: Sequence[int], budgets: list[int]) -> list[torch.device]:
    return [torch.device("cuda", index) for index in fill(sizes, budgets)]


def fill(sizes: Sequence[int], budgets: list[int]) -> list[int]:
    """Return the index of the budget that each module is assigned to: budgets are used up in order.

    Raises:
        ModelError: the modules need more.
    """
    places: list[int] = []
    index = 0
    for number, size in enumerate(sizes):
        while index < len(budgets) and size > budgets[index]:
            index += 1
        if index == len(budgets):
            missing = sum(sizes[number:]) / 1024**3
            raise ModelError(f"Insufficient VRAM for model and cache: {missing:.2f} GiB have no place on any device")
        budgets[index] -= size
        places.append(index)
    return places
