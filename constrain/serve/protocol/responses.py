"""``POST /v1/responses``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from constrain.serve.protocol.fields import AccountFields, ConstraintFields, Effort, Function, SamplingFields, Strict


class ResponseTool(Function):
    """A tool, whose function is not in a field of its own here."""

    type: Literal["function"]


class NamedResponseTool(Strict):
    """A tool that has to be called."""

    type: Literal["function"]
    name: str


class Reasoning(Strict):
    """How much the model thinks."""

    effort: Effort | None = None
    summary: str | None = None
    generate_summary: str | None = None


class TextOptions(Strict):
    """The form of the answer."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class InputItem(BaseModel):
    """An item of the conversation: a message, a call of a function, its output, or earlier thoughts.

    Items that a server has sent come back with fields that have no meaning here, so that others are accepted.
    """

    model_config = ConfigDict(extra="ignore")

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[dict[str, Any]] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[dict[str, Any]] | None = None
    summary: list[dict[str, Any]] | None = None


class ResponsesRequest(ConstraintFields, SamplingFields, AccountFields):
    """The body of the request."""

    model: str
    input: str | Annotated[list[InputItem], Field(min_length=1)]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    text: TextOptions | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedResponseTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    stream: bool | None = False
    stream_options: dict[Literal["include_obfuscation"], bool] | None = None
    include: list[Literal["reasoning.encrypted_content"]] | None = None
    truncation: Literal["disabled"] | None = None
    background: Literal[False] | None = None
    top_logprobs: Literal[0] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
