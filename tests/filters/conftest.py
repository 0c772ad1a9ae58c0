"""A tokenizer without a model, for tests of filters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from constrain import ExLlamaV2Tokenizer


@dataclass
class Config:
    model_dir: str
    vocab_size: int = 380
    bos_token_id: int = 0
    eos_token_id: int = 1
    pad_token_id: int = 2


@pytest.fixture(scope="session")
def tokenizer(tiny_dir: Path) -> ExLlamaV2Tokenizer:
    return ExLlamaV2Tokenizer(Config(str(tiny_dir)))
