"""Tensors that threads read are those of the files, whatever is cut where, and however reading goes wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from constrain.errors import WeightsError
from constrain.model import ExLlamaV2, ExLlamaV2Config, tensor_reader
from constrain.model.tensor_files import TensorFiles
from constrain.model.tensor_reader import LoadOrder

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_reader, "PART_BYTES", 64)
    monkeypatch.setattr(tensor_reader, "BUFFERS", 3)


@pytest.fixture
def written(tmp_path: Path) -> dict[str, torch.Tensor]:
    """Tensors of every dtype and of sizes around that of a part, in two files."""
    tensors = {
        f"{str(dtype)[6:]}.{size}": torch.randn(size).to(dtype)
        for dtype in DTYPES
        for size in (1, 15, 16, 17, 32, 33, 64, 1000)
    }
    names = list(tensors)
    save_file({name: tensors[name] for name in names[::2]}, tmp_path / "a.safetensors", {"format": "pt"})
    save_file({name: tensors[name] for name in names[1::2]}, tmp_path / "b.safetensors")
    return tensors


def read(files: TensorFiles, targets: dict[str, torch.Tensor]) -> None:
    with files.reader([(key, tuple(target.shape)) for key, target in targets.items()]) as reader:
        for key, target in targets.items():
            reader.copy(key, target)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [None, *DTYPES])
def test_bytes_and_conversions(written: dict[str, torch.Tensor], tmp_path: Path, dtype: Any, device: str) -> None:
    order = sorted(written, key=lambda key: key[::-1])
    expected = {key: written[key].to(dtype or written[key].dtype) for key in order}
    targets = {key: torch.zeros_like(tensor, device=device) for key, tensor in expected.items()}
    read(TensorFiles.of_folder(tmp_path), targets)
    for key, target in targets.items():
        assert torch.equal(target.cpu(), expected[key]), key


@pytest.mark.gpu
def test_a_model_is_the_same_whatever_it_is_cut_into(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = llama.load()
    monkeypatch.setattr(tensor_reader, "PART_BYTES", 1 << 20)
    whole = llama.load()
    for mine, other in zip(cut.modules, whole.modules, strict=True):
        for (name, linear), (_, expected) in zip(mine.submodules(), other.submodules(), strict=True):
            assert torch.equal(linear.weight, expected.weight), name


def test_reading_ahead_is_bounded(
    written: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: sizes.append(len(views[0])) or preadv(fd, views, at))
    order = [(key, tuple(tensor.shape)) for key, tensor in written.items()]
    TensorFiles.of_folder(tmp_path).reader(order).close()
    assert len(sizes) <= 3 and max(sizes, default=0) <= 64


def test_a_part_may_come_in_pieces(
    written: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:10]], at))
    targets = {key: torch.zeros_like(tensor) for key, tensor in written.items()}
    read(TensorFiles.of_folder(tmp_path), targets)
    assert all(torch.equal(target, written[key]) for key, target in targets.items())


def _cut_off(*args: Any) -> int:
    return 0


def _broken_disk(*args: Any) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize(
    ("disk", "message"),
    [
        (_cut_off, r"a\.safetensors: tensor float32\.1 is cut off"),
        (_broken_disk, r"a\.safetensors: tensor float32\.1 cannot be read \(Input/output error\)"),
    ],
)
def test_errors_name_file_and_tensor_and_close_the_files(
    written: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Any, message: str
) -> None:
    opened = open_files()
    monkeypatch.setattr(os, "preadv", disk)
    with pytest.raises(WeightsError, match=message):
        read(TensorFiles.of_folder(tmp_path), {key: torch.zeros_like(tensor) for key, tensor in written.items()})
    assert open_files() == opened


def test_a_tensor_that_changed_since_the_config_was_prepared(llama_copy: Any) -> None:
    files = TensorFiles.of_folder(llama_copy.write())
    name = "model.layers.1.mlp.up_proj.weight"
    shape = tuple(llama_copy.tensors[name].shape)
    llama_copy.tensors[name] = llama_copy.tensors[name].half()
    llama_copy.write()
    with pytest.raises(WeightsError, match=rf"model\.safetensors: tensor {name} has changed"):
        files.reader([(name, shape)])


def ordered(model: ExLlamaV2) -> list[tuple[str, tuple[int, ...]]]:
    order = LoadOrder()
    for module in model.modules:
        module.load(order, torch.device("meta"), model.compute_dtype)
    return order.tensors


def test_a_model_in_the_order_in_which_it_asks_for_its_tensors(family: Any, ids: torch.Tensor) -> None:
    expected = family.load().forward(ids)
    model = family.load()
    tensors = ordered(model)
    assert sorted(tensors) == sorted(model.config.layout.tensors())
    with model.config.files.reader(tensors) as reader:
        for module in model.modules:
            module.load(reader, torch.device("cpu"), model.compute_dtype)
    assert torch.equal(model.forward(ids), expected)


@pytest.mark.gpu
def test_a_load_that_is_given_up_reads_no_more(llama: Any) -> None:
    opened = open_files()
    model = ExLlamaV2(ExLlamaV2Config(llama.folder))
    loading = model.load_gen(callback_gen=lambda index, total: [index])
    assert [next(loading) for _ in range(3)] == [0, 1, 2]
    assert open_files() == opened + 1
    loading.close()
    assert open_files() == opened
    assert not model.loaded
