"""Checkpoints of all families, and copies that a test may damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import FAMILIES, Checkpoint, checkpoints
from safetensors.torch import load_file, save_file

from constrain.model import ExLlamaV2


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _on_the_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the mark, a test runs on the CPU wherever it runs."""
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checkpoint]:
    """The checkpoint of a family by its name in ``FAMILIES``."""
    return checkpoints(tmp_path_factory)


@pytest.fixture(scope="session")
def llama(checkpoint: Callable[[str], Checkpoint]) -> Checkpoint:
    return checkpoint("llama")


@pytest.fixture
def llama_model(llama: Checkpoint) -> ExLlamaV2:
    return llama.load()


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest, checkpoint: Callable[[str], Checkpoint]) -> Checkpoint:
    return checkpoint(request.param)


@pytest.fixture
def ids() -> torch.Tensor:
    """Two rows of tokens, longer than every sliding window here."""
    return torch.randint(3, 99, (2, 21), generator=torch.Generator().manual_seed(2))


class FolderCopy:
    """A checkpoint that a test may damage."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.config: dict[str, Any] = json.loads((source / "config.json").read_text())
        self.tensors = load_file(source / "model.safetensors")

    def write(self) -> Path:
        (self.folder / "config.json").write_text(json.dumps(self.config))
        save_file(self.tensors, self.folder / "model.safetensors")
        return self.folder

    def write_shards(self, names: list[str], index: bool) -> Path:
        """Tensors dealt out to files in turn."""
        (self.folder / "config.json").write_text(json.dumps(self.config))
        keys = sorted(self.tensors)
        place = {key: names[number % len(names)] for number, key in enumerate(keys)}
        for name in names:
            save_file({key: self.tensors[key] for key in keys if place[key] == name}, self.folder / name)
        if index:
            self.write_index(place)
        return self.folder

    def write_index(self, weight_map: Any) -> None:
        (self.folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.fixture
def copy_of(checkpoint: Callable[[str], Checkpoint], tmp_path: Path) -> Callable[[str], FolderCopy]:
    """A copy of the checkpoint of a family; one in a test."""
    return lambda name: FolderCopy(checkpoint(name).folder, tmp_path / "model")


@pytest.fixture
def llama_copy(copy_of: Callable[[str], FolderCopy]) -> FolderCopy:
    return copy_of("llama")


@pytest.fixture
def mixtral_copy(copy_of: Callable[[str], FolderCopy]) -> FolderCopy:
    return copy_of("mixtral")


@pytest.fixture
def llama_wide(copy_of: Callable[[str], FolderCopy]) -> FolderCopy:
    """A model whose sizes are multiples of the groups of quantised weights."""
    return copy_of("llama_wide")


@pytest.fixture
def mixtral_wide(copy_of: Callable[[str], FolderCopy]) -> FolderCopy:
    return copy_of("mixtral_wide")


@pytest.fixture
def gpt_oss_wide(copy_of: Callable[[str], FolderCopy]) -> FolderCopy:
    return copy_of("gpt_oss_wide")


@pytest.fixture
def qwen2_wide(copy_of: Callable[[str], FolderCopy]) -> FolderCopy:
    """Another one, with biases."""
    return copy_of("qwen2_wide")
