"""Placing modules on several GPUs, none of which is needed to decide."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from constrain.errors import ModelError
from constrain.model import devices

GB = 1024**3


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: ((index + 1) * GB, 8 * GB))


def indices(placed: list[torch.device]) -> list[int | None]:
    return [device.index for device in placed]


def test_everything_goes_on_the_cpu_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.split_by_size([GB] * 3, [0.5]) == [torch.device("cpu")] * 3
    assert devices.split_by_free_memory([GB] * 3, None) == [torch.device("cpu")] * 3


def test_free_memory_without_a_gpu_is_what_others_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(devices, "_CONTROL_GROUP", Path("none"))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < devices.free_memory(0)[0] <= total
    monkeypatch.setattr(Path, "read_text", lambda _: "MemTotal:       9 kB\nMemAvailable:   3 kB\n")
    assert devices.free_memory(0) == [3 * 1024]
    monkeypatch.setattr(Path, "read_text", lambda _: "")
    assert devices.free_memory(0) == [total]


def test_the_memory_limit_of_a_container_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(devices, "_CONTROL_GROUP", tmp_path)
    without = devices.free_memory(0)[0]
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 4000\ninactive_file 700\n")
    (tmp_path / "memory.max").write_text("9000\n")
    assert devices.free_memory(0) == [4700]
    (tmp_path / "memory.max").write_text("4000\n")
    assert devices.free_memory(0) == [0]
    (tmp_path / "memory.max").write_text("max\n")
    assert devices.free_memory(0)[0] > without // 2


@pytest.mark.usefixtures("two_gpus")
def test_a_split_fills_devices_in_order() -> None:
    assert indices(devices.split_by_size([GB] * 3, None)) == [0, 0, 0]
    assert indices(devices.split_by_size([GB] * 4, [2, 2])) == [0, 0, 1, 1]
    assert indices(devices.split_by_size([GB, 2 * GB, GB], [2.5, 3.5])) == [0, 1, 1]
    with pytest.raises(ModelError, match=r"Insufficient VRAM for model and cache: 2\.00 GiB"):
        devices.split_by_size([GB] * 4, [1, 1])


@pytest.mark.usefixtures("two_gpus")
def test_free_memory_less_a_reserve() -> None:
    half = GB // 2
    assert indices(devices.split_by_free_memory([half] * 3, None)) == [0, 1, 1]
    assert indices(devices.split_by_free_memory([half] * 3, 0)) == [0, 0, 1]
    assert indices(devices.split_by_free_memory([half] * 3, [GB])) == [1, 1, 1]
    with pytest.raises(ModelError, match="Insufficient VRAM"):
        devices.split_by_free_memory([half] * 3, 2 * GB)


def test_dtypes() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert devices.default_dtype(cpu, torch.bfloat16) == torch.float32
    assert devices.default_dtype(gpu, torch.bfloat16) == torch.bfloat16
    assert devices.default_dtype(gpu, torch.float32) == torch.float16
