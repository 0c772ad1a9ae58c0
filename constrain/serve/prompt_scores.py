"""Log probabilities of the tokens of a prompt: a request of its own, which may write the prompt only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from typing_extensions import Self

from constrain.filters import ExLlamaV2Filter, combine
from constrain.filters.base import FilterResult
from constrain.runtime import Handle, Request, SamplingParams
from constrain.serve.models import ServedModel


def submit_scores(model: ServedModel, ids: torch.Tensor, most_likely: int, priority: int) -> Handle:
    """Submit a request whose output is the tokens of a prompt after the first, with their log probabilities.

    Args:
        model: the model.
        ids: the prompt, int64 of shape (1, n), of at least two tokens.
        most_likely: number of most likely tokens to report for each of them.
        priority: of the request.

    Raises:
        GenerationError: the prompt does not fit in the context.
    """
    llm, tokens = model.llm, ids[0].tolist()
    given = GivenTokens(llm.model, llm.tokenizer, tokens[1:])
    request = Request(
        prompt=[ids[:, :1]],
        sampling=SamplingParams(),
        constraint=combine([given], llm.tokenizer, llm.model.config.padded_vocab_size),
        max_new_tokens=len(tokens) - 1,
        return_logprobs=most_likely,
        decode_special_tokens=True,
        loras=tuple(model.loras),
        priority=priority,
    )
    return llm.runtime.submit(request)


class GivenTokens(ExLlamaV2Filter):
    """A filter that allows known tokens, one after the other."""

    def __init__(self, model: Any, tokenizer: Any, tokens: Sequence[int]) -> None:
        super().__init__(model, tokenizer)
        self._tokens, self._position = tokens, 0

    def clone(self, c: Self | None = None) -> Self:
        """Copy this filter with its state."""
        c = super().clone(c)
        c._tokens, c._position = self._tokens, self._position
        return c

    def begin(self, prefix_str: str | None = "") -> None:
        """Start with the first token."""
        self._position = 0

    def feed(self, token: torch.Tensor) -> None:
        """Go on to the next token."""
        self._position += 1

    def next(self) -> FilterResult:
        """Return the next token; the last one again after the end, where the request has ended."""
        at = min(self._position, len(self._tokens) - 1)
        return [self._tokens[at]], ()

    def forced_tokens(self, limit: int = 64) -> list[int]:
        """Return the next tokens, at most ``limit``: they go through the model in one pass."""
        return [*self._tokens[self._position : self._position + limit]]
