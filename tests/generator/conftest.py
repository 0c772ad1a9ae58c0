"""A tokenizer of 60 one-letter tokens for the sampler, which needs no more, and a dynamic generator."""

from __future__ import annotations

import string
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dynamic_jobs import Make

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Tokenizer
from constrain.generator import ExLlamaV2DynamicGenerator

SIZE, WIDTH = 60, 64
PIECES = [*string.ascii_letters, "ab", "abc", ".", "\n", " x", "\u00e9"]


class LetterTokenizer:
    """Ids 0 to 57 have a text, 58 is the beginning and 59 the end of a sequence."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(vocab_size=SIZE + 2)
        self.eos_token_id, self.pad_token_id = 59, 58
        self.extended_id_to_piece = {58: "<s>", 59: "</s>"}

    def get_vocab_size(self) -> int:
        return SIZE

    def get_id_to_piece_list(self, include_special_tokens: bool = False) -> list[str]:
        return PIECES + (["<s>", "</s>"] if include_special_tokens else ["", ""])

    def get_prefix_id_to_ids_dict(self) -> dict[int, list[int]]:
        return {i: [j for j, other in enumerate(PIECES) if other.startswith(p)] for i, p in enumerate(PIECES)}

    def single_id(self, text: str) -> int | None:
        return PIECES.index(text) if text in PIECES else None

    def decode(self, ids: torch.Tensor) -> str:
        return "".join(PIECES[i] for i in ids.tolist() if i < len(PIECES))


@pytest.fixture
def letters() -> Any:
    return LetterTokenizer()


@pytest.fixture
def make(long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> Make:
    def make(size: int = 4096, **options: Any) -> ExLlamaV2DynamicGenerator:
        return ExLlamaV2DynamicGenerator(
            long_model, ExLlamaV2Cache(long_model, max_seq_len=size), tiny_tokenizer, **options
        )

    return make


@pytest.fixture
def generator(make: Make) -> ExLlamaV2DynamicGenerator:
    return make()
