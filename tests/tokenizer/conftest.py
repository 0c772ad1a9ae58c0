"""Two small tokenizers, one of each kind: byte-level BPE, and SentencePiece-like BPE with byte fallback."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from constrain.tokenizer import ExLlamaV2Tokenizer

CORPUS = ["the theme of the thesis is there, then: the theory of these things. Hello world, hello there!"] * 4


@dataclass
class Config:
    model_dir: str | None
    vocab_size: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None


def byte_level_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=280,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentencepiece_bpe() -> Tokenizer:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁theworld,"]
    merges = [
        ("t", "h"),
        ("th", "e"),
        ("▁", "the"),
        ("▁", "t"),
        ("▁", "w"),
        ("▁w", "o"),
        ("l", "d"),
        ("r", "ld"),
        ("▁wo", "rld"),
    ]
    pieces = list(dict.fromkeys([*pieces, *(left + right for left, right in merges)]))
    model = models.BPE(
        {piece: idx for idx, piece in enumerate(pieces)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def save(folder: Path, tokenizer: Tokenizer, settings: dict[str, object] | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


class SaveTokenizer(Protocol):
    """Writes a small tokenizer, after ``edit``, and its ``tokenizer_config.json``; returns the folder."""

    def __call__(
        self, settings: dict[str, object] | None = None, edit: Callable[[Tokenizer], object] = ...
    ) -> Path: ...


def saver(folder: Path, make: Callable[[], Tokenizer]) -> SaveTokenizer:
    def save_edited(
        settings: dict[str, object] | None = None, edit: Callable[[Tokenizer], object] = lambda tokenizer: None
    ) -> Path:
        tokenizer = make()
        edit(tokenizer)
        return save(folder, tokenizer, settings)

    return save_edited


@pytest.fixture
def save_byte_level(tmp_path: Path) -> SaveTokenizer:
    return saver(tmp_path / "byte_level", byte_level_bpe)


@pytest.fixture
def save_sentencepiece(tmp_path: Path) -> SaveTokenizer:
    return saver(tmp_path / "sentencepiece", sentencepiece_bpe)


@pytest.fixture
def load() -> Callable[..., ExLlamaV2Tokenizer]:
    """Loads the tokenizer of a folder; keywords are the ids of the model's config."""

    def load_folder(folder: Path | None, **ids: int) -> ExLlamaV2Tokenizer:
        return ExLlamaV2Tokenizer(Config(None if folder is None else str(folder), **ids))

    return load_folder


@pytest.fixture
def byte_level(save_byte_level: SaveTokenizer, load: Callable[..., ExLlamaV2Tokenizer]) -> ExLlamaV2Tokenizer:
    return load(save_byte_level({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": "<pad>"}))


@pytest.fixture
def sentencepiece(save_sentencepiece: SaveTokenizer, load: Callable[..., ExLlamaV2Tokenizer]) -> ExLlamaV2Tokenizer:
    return load(save_sentencepiece({"bos_token": "<s>", "eos_token": "</s>"}))


@pytest.fixture(params=["byte_level", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest) -> ExLlamaV2Tokenizer:
    made: ExLlamaV2Tokenizer = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def with_tool_token(save_byte_level: SaveTokenizer, load: Callable[..., ExLlamaV2Tokenizer]) -> ExLlamaV2Tokenizer:
    """Byte-level, with an added token that is not special, one that only a side file knows, and a hole in the ids."""
    folder = save_byte_level(
        {"bos_token": None, "eos_token": "</s>"},
        lambda tokenizer: tokenizer.add_tokens([AddedToken("<tool>", special=False)]),
    )
    (folder / "added_tokens.json").write_text(json.dumps({"<side>": 282}))
    return load(folder)
