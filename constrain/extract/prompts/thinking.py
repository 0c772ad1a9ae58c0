"""Marks around the thoughts that a reasoning model writes before its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from constrain.tokenizer import ExLlamaV2Tokenizer

#: Marks of published models, with the line breaks that belong to them.
_MARKS = (
    ("<think>\n", "</think>\n\n"),  # Qwen3, QwQ and DeepSeek-R1
    ("[THINK]\n", "[/THINK]\n\n"),  # Magistral
    ("<seed:think>\n", "</seed:think>\n\n"),  # Seed-OSS
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
)


@dataclass(frozen=True)
class ThinkingMarks:
    """The tokens that open and close the thoughts of a model.

    Attributes:
        opening, closing: the tokens, with the line breaks that belong to them; the first of each is the mark itself.
    """

    opening: tuple[int, ...]
    closing: tuple[int, ...]

    def are_open(self, ids: Sequence[int]) -> bool:
        """Return whether a prompt ends within thoughts."""
        marks = [idx for idx in ids if idx in (self.opening[0], self.closing[0])]
        return bool(marks) and marks[-1] == self.opening[0]


def thinking_marks(tokenizer: ExLlamaV2Tokenizer) -> ThinkingMarks | None:
    """Return the marks of a model that has a token for each, else ``None``."""
    added = {token.content for token in tokenizer.tokenizer_model.added_tokens().values()}
    for texts in _MARKS:
        if {text.strip() for text in texts} <= added | set(tokenizer.extended_piece_to_id):
            return ThinkingMarks(*(tuple(tokenizer.prompt_ids(text)) for text in texts))
    return None
