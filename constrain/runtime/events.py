"""Sampled tokens, and their outcome for a sequence."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass
class SampledToken:
    """A token that was sampled.

    Attributes:
        id: the token.
        stops: whether it is a stop token.
        prob: its probability among the tokens that the sampler has left.
        top: the most likely ones and their probabilities, of shape (k,), if asked for.
        logits: float32 of shape (padded vocabulary,), if asked for.
        logprob: its log probability by the model alone, before constraint and sampling settings, if asked for.
        top_logprobs: tokens that the model finds most likely and their log probabilities, if asked for.
        final_logits: those that it was sampled from, for a hook.
    """

    id: int
    stops: bool
    prob: float
    top: tuple[torch.Tensor, torch.Tensor] | None = None
    logits: torch.Tensor | None = None
    logprob: float | None = None
    top_logprobs: list[tuple[int, float]] = field(default_factory=list)
    final_logits: torch.Tensor | None = None


@dataclass(frozen=True)
class Piece:
    """Some text and the tokens that carry it."""

    text: str = ""
    tokens: list[SampledToken] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


@dataclass(frozen=True)
class Finish:
    """Why a sequence ended.

    Attributes:
        reason: ``"stop_token"``, ``"stop_string"``, ``"max_new_tokens"``, ``"end_filter"``, ``"filter_error"``,
            ``"dead_end"`` or ``"error"``.
        trigger: the stop token or stop string.
        error: what went wrong.
        held: what was generated but not released.
    """

    reason: str
    trigger: int | str | None = None
    error: Exception | None = None
    held: Piece = field(default_factory=Piece)


@dataclass(frozen=True)
class Update:
    """The outcome of a sampled token.

    Attributes:
        released: text that is final.
        suppressed: text that was taken back, as it had a banned string in it.
        finish: why the sequence ends here, if it does.
    """

    released: Piece = field(default_factory=Piece)
    suppressed: Piece | None = None
    finish: Finish | None = None
