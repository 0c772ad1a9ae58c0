"""Trigger of a constraint: the string in the output after which the constraint applies."""

from __future__ import annotations

from constrain.runtime.detokenizer import Detokenizer
from constrain.tokenizer import ExLlamaV2Tokenizer


class Trigger:
    """Watches an output, special tokens included, for the first occurrence of a string.

    Attributes:
        string: the string.
        found: whether it has occurred.
    """

    def __init__(self, string: str, tokenizer: ExLlamaV2Tokenizer) -> None:
        """``string``: not empty."""
        self.string = string
        self._tokenizer = tokenizer
        self.reset()

    def reset(self) -> None:
        """Restart at the beginning of the output."""
        self.found = False
        self._detokenizer = Detokenizer(self._tokenizer, special=True)
        self._tail = ""

    def rest_after(self, token: int) -> str | None:
        """Return the text that a token would add after the string; ``None`` if it would not complete the string.

        A token that ends within a character adds U+FFFD, which no constraint accepts as that character.
        """
        return self._rest(*self._read(token))

    def accept(self, token: int) -> str | None:
        """Append a token to the output, and return :meth:`rest_after` of it."""
        text, self._detokenizer = self._read(token)
        kept = len(self.string) - 1
        self._tail = text[len(text) - kept :] if len(text) > kept else text
        rest = self._rest(text, self._detokenizer)
        self.found = self.found or rest is not None
        return rest

    def _read(self, token: int) -> tuple[str, Detokenizer]:
        """Return the last characters of the output with a token, and the detokenizer after it."""
        whole = self._detokenizer.whole(token)
        if whole is not None:
            return self._tail + whole, self._detokenizer
        detokenizer = self._detokenizer.copy()
        return self._tail + detokenizer.push(token), detokenizer

    def _rest(self, text: str, detokenizer: Detokenizer) -> str | None:
        place = text.find(self.string)
        return None if place < 0 else text[place + len(self.string) :] + detokenizer.flush()
