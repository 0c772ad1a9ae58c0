"""Tiny random checkpoints made with transformers, which is what the model is measured against."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from constrain.model import ExLlamaV2, ExLlamaV2Config

SIZES = {
    "vocab_size": 99,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Family:
    """A kind of checkpoint: the name of the classes in transformers, and what differs from ``SIZES``."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict)

    def config(self) -> Any:
        if self.name == "Gemma3":
            return transformers.Gemma3TextConfig(**{**SIZES, **self.changes})
        return getattr(transformers, f"{self.name}Config")(**{**SIZES, **self.changes})


def _rope(**values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10_000.0, **values}}


_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
_SU = {"short_factor": [1.0 + i / 10 for i in range(6)], "long_factor": [2.0 + i for i in range(6)]}

FAMILIES = {
    "llama": Family("Llama"),
    "llama_wide_heads": Family("Llama", {"head_dim": 20, "num_key_value_heads": 1}),
    "llama_tied": Family("Llama", {"tie_word_embeddings": True}),
    "llama_biases": Family("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama_llama3": Family("Llama", _rope(rope_type="llama3", **_LLAMA3)),
    "llama_linear": Family("Llama", _rope(rope_type="linear", factor=4.0)),
    "llama_yarn": Family("Llama", _rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
    "llama_yarn_mscale": Family(
        "Llama",
        _rope(
            rope_type="yarn",
            factor=4.0,
            original_max_position_embeddings=16,
            mscale=0.7,
            mscale_all_dim=1.1,
            beta_fast=8.0,
            truncate=False,
        ),
    ),
    "mistral": Family("Mistral", {"sliding_window": None, "head_dim": 16}),
    "mistral_window": Family("Mistral", {"sliding_window": 5}),
    "qwen2": Family("Qwen2", {"num_key_value_heads": 4}),
    "qwen2_window": Family("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": Family("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "gemma2": Family("Gemma2", {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 24}),
    "gemma3": Family("Gemma3", {"head_dim": 16, "sliding_window": 5, "sliding_window_pattern": 2}),
    "phi3": Family("Phi3"),
    "phi3_window": Family("Phi3", {"sliding_window": 5, **_rope(rope_type="default", partial_rotary_factor=0.5)}),
    "phi3_longrope": Family("Phi3", {"original_max_position_embeddings": 64, **_rope(rope_type="longrope", **_SU)}),
}


def randomise(model: torch.nn.Module) -> None:
    """Every parameter random, norms and biases too, so that none can be left out unnoticed."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if "norm" in name or name.endswith("bias") else 0.15
            parameter.add_(torch.randn(parameter.shape, generator=generator) * spread)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk and the model in transformers that wrote it."""

    folder: Path
    reference: Any

    def logits(self, ids: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        """What transformers says: float32 ``[batch, width, vocabulary]``. ``padding``: tokens to ignore in each row."""
        columns = torch.arange(ids.shape[1]).expand_as(ids)
        first = torch.zeros(ids.shape[0], dtype=torch.long) if padding is None else padding
        seen = columns >= first[:, None]
        positions = (columns - first[:, None]).clamp(min=0)
        with torch.no_grad():
            output = self.reference(ids, attention_mask=seen.long(), position_ids=positions)
        result: torch.Tensor = output.logits
        return result

    def load(self, **settings: Any) -> ExLlamaV2:
        config = ExLlamaV2Config(self.folder)
        for name, value in settings.items():
            assert hasattr(config, name)
            setattr(config, name, value)
        model = ExLlamaV2(config)
        model.load()
        return model


def make_checkpoint(folder: Path, config: Any, **save: Any) -> Checkpoint:
    torch.manual_seed(0)
    reference = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    randomise(reference)
    reference.save_pretrained(folder, **save)
    return Checkpoint(folder, reference)


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
    """The checkpoint of a family by its name in ``FAMILIES``; made once."""
    made: dict[str, Checkpoint] = {}

    def get(name: str) -> Checkpoint:
        if name not in made:
            made[name] = make_checkpoint(tmp_path_factory.mktemp(name), FAMILIES[name].config())
        return made[name]

    return get


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
def llama_copy(llama: Checkpoint, tmp_path: Path) -> FolderCopy:
    return FolderCopy(llama.folder, tmp_path / "model")
