"""Vocabularies that are there at once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from constrain.demo import model_dir
from constrain.engine import Vocabulary

if TYPE_CHECKING:
    from constrain.tokenizer import ExLlamaV2Tokenizer


@cache
def byte_vocabulary() -> Vocabulary:
    """One token for each byte, and token 256 for the end."""
    return Vocabulary.from_tokens([bytes([byte]) for byte in range(256)] + [b""], [256])


@cache
def small_vocabulary() -> Vocabulary:
    """A byte-level BPE vocabulary of 6,144 tokens, as models have them: that of the built-in model."""
    return Vocabulary.from_pretrained(model_dir())


@cache
def small_tokenizer() -> ExLlamaV2Tokenizer:
    """The tokenizer of that vocabulary, for filters."""
    from constrain.model import ExLlamaV2Config
    from constrain.tokenizer import ExLlamaV2Tokenizer

    return ExLlamaV2Tokenizer(ExLlamaV2Config(str(model_dir())))
