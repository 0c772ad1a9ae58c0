"""What was written after a prompt, and why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Literal, TypeAlias

FinishReason: TypeAlias = Literal["stop", "length", "repetition"]

#: This many times one token in a row is a loop.
_LOOP = 16
#: Tokens after a loop that may complete what a constraint asks for.
_TAIL = 32


@dataclass(frozen=True)
class TokenLogprobs:
    """Log probabilities at one place, by the model alone: before constraints and sampling settings.

    Attributes:
        logprob: of the token that was sampled.
        top: ids of the most likely tokens and their log probabilities, the most likely first.
    """

    logprob: float
    top: list[tuple[int, float]]


@dataclass(frozen=True)
class Completion:
    """What a model wrote after a prompt.

    Attributes:
        text: the new text, without special tokens.
        tokens: its token ids, without the end-of-sequence token.
        finish_reason: ``"stop"`` where the model, a constraint or a stop condition ended the text, ``"length"`` where
            the tokens ran out, and ``"repetition"`` where they ran out in a loop: 16 times or more the same token.
        complete: false where the tokens ran out before a constraint was met that cannot be kept within a budget.
        prompt_tokens: number of tokens of the prompt.
        logprobs: of each token, if they were asked for.
        index: place of the prompt among many, or of this text among several for one prompt.
        error: none; what failed among many is a :class:`Failure` instead, which has one.
    """

    text: str
    tokens: list[int]
    finish_reason: FinishReason
    complete: bool = True
    prompt_tokens: int = 0
    logprobs: list[TokenLogprobs] | None = None
    index: int = 0
    error: ClassVar[None] = None


def finish_reason(reason: str, tokens: Sequence[int]) -> FinishReason:
    """The finish reason of a completion, from that of its sequence and from its tokens."""
    if reason != "max_new_tokens":
        return "stop"
    end = 0
    for _, group in groupby(tokens):
        length = sum(1 for _ in group)
        end += length
        if length >= _LOOP and len(tokens) - end <= _TAIL:
            return "repetition"
    return "length"
