"""Vocabularies for tests."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from constrain.demo import model_dir
from constrain.engine import Vocabulary

if TYPE_CHECKING:
    from constrain.tokenizer import ExLlamaV2Tokenizer


@cache
def byte_vocabulary() -> Vocabulary:
    """Return a vocabulary of one token for each byte, and the end-of-sequence token 256."""
    return Vocabulary.from_tokens([bytes([byte]) for byte in range(256)] + [b""], [256])


@cache
def small_vocabulary() -> Vocabulary:
    """Return the vocabulary of the built-in model: byte-level BPE of 6,144 tokens."""
    return Vocabulary.from_pretrained(model_dir())


@cache
def small_tokenizer() -> ExLlamaV2Tokenizer:
    """Return the tokenizer of :func:`small_vocabulary`, for filters."""
    from constrain.model import ExLlamaV2Config
    from constrain.tokenizer import ExLlamaV2Tokenizer

    return ExLlamaV2Tokenizer(ExLlamaV2Config(str(model_dir())))
