"""The constraint of one request, as vLLM's scheduler drives it."""

from __future__ import annotations

from typing import Any, Protocol

from constrain.integrations.serving import BitmaskArray, OutputState


class Request(Protocol):
    """The part of vLLM's ``Request`` that is read."""

    max_tokens: int
    num_prompt_tokens: int

    @property
    def num_output_tokens(self) -> int: ...


class ConstrainGrammar:
    """vLLM's ``StructuredOutputGrammar``.

    Tokens that vLLM does not feed to the grammar, such as the thoughts of a reasoning model, count against the budget,
    too: they are the output tokens of the request that the grammar has not accepted.

    Attributes:
        num_drafted_thoughts: number of tokens of the current draft that come before the constraint applies, while they
            are no output of the request yet.
    """

    def __init__(self, state: OutputState, array: BitmaskArray | None = None) -> None:
        self.state = state
        self.num_drafted_thoughts = 0
        self._array = array or BitmaskArray()
        self._request: Request | None = None
        self._max_tokens = 0
        self._num_unconstrained = 0

    def begin(self, request: Request, max_model_len: int) -> None:
        """Complete the output within the ``max_tokens`` of a request and the length of the model.

        To be called in the thread that compiles: it computes the first masks.
        """
        self._request = request
        self._max_tokens = min(request.max_tokens, max_model_len - request.num_prompt_tokens)
        self.state.prepare(self._budget())

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Append tokens; false as soon as one is not allowed. Tokens after the end are ignored."""
        accepted = all(self.state.accept(token) for token in tokens)
        self._count_unconstrained()
        return accepted

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Return the beginning of a draft that may follow."""
        return self.state.valid_prefix(tokens)

    def rollback(self, num_tokens: int) -> None:
        """Remove the last tokens."""
        self.state.rollback(num_tokens)

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        """Write the allowed tokens into a row of an int32 CPU tensor ``[rows, words]``."""
        self.state.fill_bitmask(self._array.of(bitmask), batch_index, self._budget())

    def is_terminated(self) -> bool:
        """Whether the output has ended."""
        return self.state.is_terminated

    def reset(self) -> None:
        """Go back to the start of the output."""
        self.state.reset()
        self._num_unconstrained = self.num_drafted_thoughts = 0

    def _budget(self) -> int | None:
        if self._request is None:
            return None
        self._count_unconstrained()
        left = self._max_tokens - self._num_unconstrained - self.num_drafted_thoughts - self.state.num_tokens
        return left if left > 0 else 0

    def _count_unconstrained(self) -> None:
        # While drafts are tried out, the grammar is ahead of the request, and the difference is too small.
        if self._request is not None:
            difference = self._request.num_output_tokens - self.state.num_tokens
            if difference > self._num_unconstrained:
                self._num_unconstrained = difference
