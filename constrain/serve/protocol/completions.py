"""``POST /v1/completions``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from constrain.serve.protocol.fields import AccountFields, ConstraintFields, SamplingFields, StreamFields


class CompletionRequest(ConstraintFields, SamplingFields, StreamFields, AccountFields):
    """The body of the request."""

    model: str
    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: Annotated[int, Field(ge=1)] | None = 16
    n: Annotated[int, Field(ge=1, le=128)] = 1
    echo: bool | None = False
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
