"""A string from which on a text is constrained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrain.errors import GenerationError
from constrain.generator.text import Detokenizer

if TYPE_CHECKING:
    from constrain.tokenizer import ExLlamaV2Tokenizer


class Trigger:
    """Watches a text, special tokens included, for the first occurrence of a string.

    Attributes:
        string: the string.
        found: whether it has occurred.
    """

    def __init__(self, string: str, tokenizer: ExLlamaV2Tokenizer) -> None:
        """Watch from the beginning of a text.

        Raises:
            GenerationError: the string is empty.
        """
        if not string:
            raise GenerationError(
                "the trigger must not be empty; leave it out to constrain the text from its beginning"
            )
        self.string = string
        self._tokenizer = tokenizer
        self.reset()

    def reset(self) -> None:
        """Watch anew."""
        self.found = False
        self._detokenizer = Detokenizer(self._tokenizer, special=True)
        self._tail = ""

    def rest_after(self, token: int) -> str | None:
        """What a token would leave after the string, were it next; ``None`` where the string would not be complete.

        A token that ends within a character leaves U+FFFD, which no constraint takes for that character.
        """
        detokenizer = self._detokenizer.copy()
        text = self._tail + detokenizer.push(token)
        place = text.find(self.string)
        return None if place < 0 else text[place + len(self.string) :] + detokenizer.flush()

    def feed(self, token: int) -> None:
        """Go on by a token."""
        text = self._tail + self._detokenizer.push(token)
        self.found = self.found or self.string in text
        kept = len(self.string) - 1
        self._tail = text[len(text) - kept :] if len(text) > kept else text
