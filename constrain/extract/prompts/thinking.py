"""Marks around the thoughts that a reasoning model writes before its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from constrain.tokenizer import ExLlamaV2Tokenizer

#: Marks of published models: Qwen3, QwQ and DeepSeek-R1; Magistral; Seed-OSS.
_MARKS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<seed:think>", "</seed:think>"))


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
    for opening, closing in _MARKS:
        if {opening, closing} <= added | set(tokenizer.extended_piece_to_id):
            texts = (f"{opening}\n", f"{closing}\n\n")
            return ThinkingMarks(*(tuple(tokenizer.encode_prompt(text)[0].tolist()) for text in texts))
    return None
