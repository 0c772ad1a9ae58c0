"""Speed of loading weights from files to a GPU, compared with the limits of disk and bus."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from constrain.bench.device import conditions, run_seconds
from constrain.bench.shapes import Shape
from constrain.model import ExLlamaV2, ExLlamaV2Config
from constrain.model.tensor_reader import PART_BYTES, THREADS

_SHARD_BYTES = 5 * 10**9
_REPEATS = 3


def measure_load(shape: Shape, folder: Path) -> dict[str, Any]:
    """Measure loading a bfloat16 checkpoint of a model shape, in bytes per second.

    Args:
        shape: of the model, whose weights are random.
        folder: an empty folder on the disk to measure, with space for the checkpoint.

    Returns:
        ``bytes``: size of the checkpoint. ``bus``: rate of a large host-to-device copy from pinned memory. ``cached``
        and ``cold``: with the files in the page cache, and after evicting them, the rates of ``read`` (only reading the
        files, with as many threads as the loader), ``constrain``, and ``safetensors``
        (``load_file(..., device="cuda")``). Cold rates are single runs, cached ones medians.
    """
    files = _write_checkpoint(shape, folder)
    size = sum(file.stat().st_size for file in files)
    ways: dict[str, Callable[[], Any]] = {
        "read": lambda: _read(files),
        "constrain": lambda: _load(folder),
        "safetensors": lambda: [load_file(file, device="cuda") for file in files],
    }
    cold = {}
    for name, way in ways.items():
        _forget(files)
        cold[name] = size / _seconds(way)
    cached = {name: size / _median_seconds(way) for name, way in ways.items()}
    return conditions() | {"bytes": size, "bus": _bus(), "cold": cold, "cached": cached}


def _write_checkpoint(shape: Shape, folder: Path) -> list[Path]:
    (folder / "config.json").write_text(json.dumps(shape.config()))
    config = ExLlamaV2Config()
    config.model_dir = str(folder)
    config.prepare(no_tensors=True)
    files = []
    for number, shard in enumerate(_shards(config)):
        tensors = {name: torch.randn(sizes, dtype=torch.bfloat16, device="cuda").cpu() for name, sizes in shard}
        files.append(folder / f"model-{number:05}.safetensors")
        save_file(tensors, files[-1])
    return files


def _shards(config: ExLlamaV2Config) -> Iterator[list[tuple[str, tuple[int, ...]]]]:
    shard: list[tuple[str, tuple[int, ...]]] = []
    size = 0
    for name, sizes in config.layout.tensors():
        shard.append((name, sizes))
        size += 2 * torch.Size(sizes).numel()
        if size > _SHARD_BYTES:
            yield shard
            shard, size = [], 0
    if shard:
        yield shard


def _load(folder: Path) -> ExLlamaV2:
    model = ExLlamaV2(ExLlamaV2Config(str(folder)))
    model.load()
    return model


def _read(files: Sequence[Path]) -> None:
    parts = [(file, start) for file in files for start in range(0, file.stat().st_size, PART_BYTES)]

    def read(thread: int) -> None:
        buffer = bytearray(PART_BYTES)
        for file, start in parts[thread::THREADS]:
            with file.open("rb", buffering=0) as opened:
                opened.seek(start)
                opened.readinto(buffer)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, range(THREADS)))


def _forget(files: Sequence[Path]) -> None:
    for file in files:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _bus(size: int = 2**30) -> float:
    source = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(source, device="cuda")
    return size / _median_seconds(lambda: target.copy_(source, non_blocking=True))


def _median_seconds(work: Callable[[], Any]) -> float:
    return statistics.median(_seconds(work) for _ in range(_REPEATS))


def _seconds(work: Callable[[], Any]) -> float:
    """Return the time of a run, including fresh GPU memory allocation."""
    torch.cuda.empty_cache()
    return run_seconds(work)
