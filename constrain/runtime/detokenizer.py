"""Incremental detokenizer: the text of tokens, of which one may hold a part of a character."""

from __future__ import annotations

import copy

import torch

from constrain.tokenizer import ExLlamaV2Tokenizer

_REPLACEMENT = "\ufffd"
#: A character has at most four bytes, each of which may be a token.
_MAX_PARTS = 4


class Detokenizer:
    """Incremental detokenizer, which holds a character back until its last token arrives."""

    def __init__(self, tokenizer: ExLlamaV2Tokenizer, special: bool) -> None:
        """Start a new output; ``special``: show special tokens."""
        self._tokenizer = tokenizer
        self._special = special
        self._pieces = tokenizer.get_id_to_piece_list(special)
        self._parts: list[int] = []

    @property
    def complete(self) -> bool:
        """Whether no text is held back."""
        return not self._parts

    def is_part(self, token: int) -> bool:
        """Return whether a token holds part of a character."""
        return _REPLACEMENT in self._piece(token)

    def whole(self, token: int) -> str | None:
        """Return the text of a token, or ``None`` if it completes or begins a character of several tokens."""
        text = self._piece(token)
        return None if self._parts or _REPLACEMENT in text else text

    def push(self, token: int) -> str:
        """Append a token; return the text that this completes."""
        if not self.is_part(token):
            return self.flush() + self._piece(token)
        self._parts.append(token)
        text = self._decode()
        incomplete = len(text) - len(text.rstrip(_REPLACEMENT))
        return "" if 1 <= incomplete <= _MAX_PARTS else self.flush()

    def flush(self) -> str:
        """Return the text that is held back, with U+FFFD for incomplete characters."""
        if not self._parts:
            return ""
        text = self._decode()
        self._parts.clear()
        return text

    def copy(self) -> Detokenizer:
        """Return an independent copy."""
        made = copy.copy(self)
        made._parts = list(self._parts)
        return made

    def _piece(self, token: int) -> str:
        return self._pieces[token] if token < len(self._pieces) else ""

    def _decode(self) -> str:
        return str(self._tokenizer.decode(torch.tensor(self._parts, dtype=torch.long), self._special))
