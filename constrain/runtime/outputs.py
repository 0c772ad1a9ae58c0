"""Outputs: sampled tokens, and the updates of a sequence that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from constrain.runtime.confidence import TokenConfidence


@dataclass(slots=True)
class SampledToken:
    """A sampled token.

    Attributes:
        id: the token.
        prob: its probability among the tokens that the sampler keeps.
        top: the most likely tokens and their probabilities, of shape (1, 1, k), if requested.
        logits: float32 of shape (1, 1, padded vocabulary), if requested.
        logprob: its log probability by the model alone, before constraint and sampling settings, if requested.
        top_logprobs: the most likely tokens by the model alone and their log probabilities, if requested.
        confidence: its probability under the constraint, if requested.
        final_logits: the logits that it was sampled from, of the same shape, for a hook.
    """

    id: int
    prob: float
    top: tuple[torch.Tensor, torch.Tensor] | None = None
    logits: torch.Tensor | None = None
    logprob: float | None = None
    top_logprobs: Sequence[tuple[int, float]] = ()
    confidence: TokenConfidence | None = None
    final_logits: torch.Tensor | None = None


class Piece(NamedTuple):
    """A piece of text, and its tokens."""

    text: str = ""
    tokens: Sequence[SampledToken] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


class Finish(NamedTuple):
    """Why a sequence ended.

    Attributes:
        reason: ``"stop_token"``, ``"stop_string"``, ``"max_new_tokens"``, ``"end_filter"``, ``"filter_error"``,
            ``"dead_end"`` or ``"error"``; ``"particles"`` for a faithful request.
        trigger: the stop token or stop string.
        error: the error that ended it, if any.
        held: text and tokens that were generated but not released.
    """

    reason: str
    trigger: int | str | None = None
    error: Exception | None = None
    held: Piece = Piece()


class Update(NamedTuple):
    """The outcome of a sampled token.

    Attributes:
        released: text that is final.
        suppressed: text that was removed, as it contained a banned string.
        finish: why the sequence ends here, if it does.
        particles: with the last update of a faithful request, its outputs.
    """

    released: Piece = Piece()
    suppressed: Piece | None = None
    finish: Finish | None = None
    particles: Sequence[Output] = ()


@dataclass
class Output:
    """The output of a request.

    Attributes:
        text: the new text.
        tokens: the new tokens, without a stop token, with the details that were requested.
        finish: why the request ended.
        particles: the outputs of a faithful request, in place of text and tokens.
        log_weight: logarithm of the weight of an output of a faithful request; -inf if it is not complete. The mean
            weight of the particles of a request estimates, without bias, the probability that the model alone writes
            something that the constraint allows.
    """

    text: str = ""
    tokens: list[SampledToken] = field(default_factory=list)
    finish: Finish | None = None
    particles: Sequence[Output] = ()
    log_weight: float = 0.0

    def add(self, update: Update) -> None:
        """Append the text and tokens that an update releases."""
        self.text += update.released.text
        self.tokens += update.released.tokens
        if update.finish is not None:
            self.finish, self.particles = update.finish, update.particles
