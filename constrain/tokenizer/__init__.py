"""Tokenizers: encoding of text to token ids and decoding, on top of the ``tokenizers`` library."""

from __future__ import annotations

from constrain.tokenizer.backend import ExLlamaV2TokenizerHF
from constrain.tokenizer.chat import ChatTemplate
from constrain.tokenizer.tokenizer import ExLlamaV2Tokenizer

__all__ = ["ChatTemplate", "ExLlamaV2Tokenizer", "ExLlamaV2TokenizerHF"]
