"""Completions and their finish reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar, Literal, TypeAlias

from constrain.runtime.confidence import TokenConfidence

FinishReason: TypeAlias = Literal["stop", "length", "repetition"]

#: One token repeated this many times in a row is a loop.
_LOOP = 16
#: Tokens that may follow a loop, to complete what a constraint requires.
_TAIL = 32


@dataclass(frozen=True)
class TokenLogprobs:
    """Log probabilities at one position, from the model's logits before constraints and sampling settings.

    Attributes:
        logprob: log probability of the sampled token.
        top: ids of the most likely tokens and their log probabilities, the most likely first.
    """

    logprob: float
    top: list[tuple[int, float]]


@dataclass(frozen=True)
class Completion:
    """The output of a model for a prompt.

    Attributes:
        text: the generated text, without special tokens.
        tokens: its token ids, without the end-of-sequence token.
        finish_reason: ``"stop"`` if the model, a constraint or a stop condition ended the output, ``"length"`` if the
            token limit was reached, and ``"repetition"`` if it was reached in a loop: the same token 16 times or more.
        complete: false if the output does not meet a constraint: a stop condition has cut it, or the token limit was
            reached under a constraint without budget support.
        prompt_tokens: number of prompt tokens.
        logprobs: log probabilities of each token, if requested.
        confidence: probability of each token under the constraint, if requested.
        index: position of the prompt among many, or of this output among several for one prompt.
        cached_tokens: number of prompt tokens that were in the prefix cache.
        thinking_tokens: number of tokens that the model wrote before, as its thoughts.
        log_weight: logarithm of the weight of a faithful output; ``None`` for others. The mean weight of all outputs of
            a prompt estimates the probability that the model alone writes something that the constraint allows.
        weight: its share of the weights of all faithful outputs of the prompt; 1 for others.
        context: with ``confidence``, the tokens before the first one: of the prompt, and of the thoughts.
        error: always ``None``; an input that failed has a :class:`Failure` instead, with its error.
    """

    text: str
    tokens: list[int]
    finish_reason: FinishReason
    complete: bool = True
    prompt_tokens: int = 0
    logprobs: list[TokenLogprobs] | None = None
    confidence: list[TokenConfidence] | None = None
    index: int = 0
    cached_tokens: int = field(default=0, compare=False)
    thinking_tokens: int = 0
    log_weight: float | None = None
    weight: float = 1.0
    context: list[int] = field(default_factory=list, repr=False, compare=False)
    error: ClassVar[None] = None


def finish_reason(reason: str, tokens: Sequence[int]) -> FinishReason:
    """Return the finish reason of a completion, given that of its sequence and its tokens."""
    if reason != "max_new_tokens":
        return "stop"
    end = 0
    for _, group in groupby(tokens):
        length = sum(1 for _ in group)
        end += length
        if length >= _LOOP and len(tokens) - end <= _TAIL:
            return "repetition"
    return "length"
