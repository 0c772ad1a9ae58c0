"""A tokenizer of 60 one-letter tokens for the sampler, which needs no more."""

from __future__ import annotations

import string
from types import SimpleNamespace
from typing import Any

import pytest
import torch

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
