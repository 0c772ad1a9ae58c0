"""``POST /v1/completions``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from typing_extensions import Self

from constrain.serve.protocol.fields import AccountFields, ConstraintFields, SamplingFields, StreamFields, refuse


class CompletionRequest(ConstraintFields, SamplingFields, StreamFields, AccountFields):
    """The body of the request."""

    model: str
    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: Annotated[int, Field(ge=0)] | None = 16
    n: Annotated[int, Field(ge=1, le=128)] = 1
    echo: bool | None = False
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    best_of: Annotated[int, Field(ge=1, le=128)] | None = None
    suffix: str = ""

    @model_validator(mode="after")
    def _best_ones_are_of_so_many(self) -> Self:
        if self.best_of is not None and self.best_of < self.n:
            refuse("best_of", f"must be n, {self.n}, at the least")
        if self.best_of is not None and self.best_of > self.n and self.stream:
            refuse("best_of", "must be n in a stream, as the best outputs are known at the end only")
        return self

    @model_validator(mode="after")
    def _has_something_to_say(self) -> Self:
        if self.is_only_prompt and not self.echo:
            refuse("max_tokens", "must be 1 at the least, except with echo")
        return self

    @model_validator(mode="after")
    def _has_no_suffix(self) -> Self:
        if self.suffix:
            refuse("suffix", "models write no text before another here; write the marks that yours knows in the prompt")
        return self

    @property
    def is_only_prompt(self) -> bool:
        """Whether nothing but the prompt is asked for, with its log probabilities."""
        return self.max_tokens == 0

    @property
    def num_generated(self) -> int:
        """Number of outputs of each prompt, of which the ``n`` best are returned."""
        return self.best_of or self.n

    @property
    def count_field(self) -> str:
        """Name of the field that makes the outputs as many as they are: the one with the largest number."""
        is_list = isinstance(self.prompt, list) and not isinstance(next(iter(self.prompt), 0), int)
        if is_list and len(self.prompt) > self.num_generated:
            return "prompt"
        return "best_of" if self.best_of is not None and self.best_of > self.n else "n"
