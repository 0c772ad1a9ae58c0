"""Log probabilities as completions report them: lists over the tokens of prompt and output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from constrain.runtime.outputs import SampledToken
from constrain.serve.endpoints.common import finite
from constrain.serve.models import ServedModel


class CompletionLogprobs:
    """Writes the log probabilities of outputs, whose tokens have their places in the text."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        #: Number of characters of each output so far, as far as its tokens with log probabilities go.
        self._ends: dict[int, int] = {}

    def of_prompt(self, number: int, tokens: Sequence[SampledToken], echo: str) -> dict[str, Any]:
        """Return those of the prompt of an output, which its text begins with.

        Args:
            number: the output.
            tokens: the prompt; the first token has no log probability if nothing is before it.
            echo: its text. The bytes of its tokens may have a space before it.
        """
        length = sum(_num_characters(self._content(token.id, special=True)) for token in tokens)
        self._ends[number] = len(echo) - length
        return self.of_output(number, tokens, special=True)

    def of_output(self, number: int, tokens: Sequence[SampledToken], special: bool) -> dict[str, Any]:
        """Return those of the next tokens of an output; ``special``: its text has the names of special tokens."""
        return {
            "tokens": [self._name(token.id) for token in tokens],
            "token_logprobs": [None if token.logprob is None else finite(token.logprob) for token in tokens],
            "top_logprobs": [self._most_likely(token) for token in tokens],
            "text_offset": [self._offset(number, self._content(token.id, special)) for token in tokens],
        }

    def _most_likely(self, token: SampledToken) -> dict[str, float] | None:
        if token.logprob is None:
            return None
        listed = (*token.top_logprobs, (token.id, token.logprob))
        return {self._name(idx): finite(logprob) for idx, logprob in listed}

    def _name(self, token: int) -> str:
        """Return what tells a token from the others: of parts of characters, of which a text is the same, the bytes."""
        content = self._model.vocabulary.token_bytes(token)
        try:
            content.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)
        return self._model.token_text(token)

    def _content(self, token: int, special: bool) -> bytes:
        """Return what a token adds to the text."""
        content = self._model.vocabulary.token_bytes(token)
        return content if content or not special else self._model.token_text(token).encode()

    def _offset(self, number: int, content: bytes) -> int:
        """Return where the next token of an output begins in its text, in characters."""
        start = self._ends.get(number, 0)
        # A token may begin within the character that the last one has begun.
        self._ends[number] = start + _num_characters(content)
        return max(0, start - 1 if content and _continues(content[0]) else start)


def _num_characters(content: bytes) -> int:
    """Return the number of characters that begin in a part of a text in UTF-8."""
    return sum(not _continues(byte) for byte in content)


def _continues(byte: int) -> bool:
    """Return whether a byte of UTF-8 is not the first one of its character."""
    return byte & 0xC0 == 0x80
