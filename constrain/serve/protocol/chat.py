"""``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from constrain.serve.protocol.fields import (
    AccountFields,
    ConstraintFields,
    Effort,
    Function,
    SamplingFields,
    StreamOptions,
    Strict,
)


class FunctionTool(Strict):
    """A tool."""

    type: Literal["function"]
    function: Function


class _FunctionName(Strict):
    name: str


class NamedTool(Strict):
    """A tool that has to be called."""

    type: Literal["function"]
    function: _FunctionName


class CalledFunction(Strict):
    """A call of a function, with its arguments as JSON."""

    name: str
    arguments: str


class ToolCall(Strict):
    """A call in an earlier message."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class TextPart(Strict):
    """A part of a message."""

    type: Literal["text", "refusal"]
    text: str = ""
    refusal: str = ""


class FileData(Strict):
    """A document in base64."""

    filename: str | None = None
    file_data: str | None = None


class FilePart(Strict):
    """A part of a message that is a document."""

    type: Literal["file"]
    file: FileData


class ImageURL(Strict):
    """Address of an image. ``detail`` is ignored: all images are read in the detail that the model can."""

    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(Strict):
    """A part of a message that is an image."""

    type: Literal["image_url"]
    image_url: ImageURL


class Picture(BaseModel):
    """An image in a conversation: the content of its file."""

    model_config = ConfigDict(ser_json_bytes="base64")

    content: bytes


class _MessageFields(Strict):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None
    parsed: Any = None


class Message(_MessageFields):
    """A message of a conversation; a list has its texts and images in order."""

    content: str | list[str | Picture] | None = None

    @property
    def text(self) -> str:
        """The texts of the content."""
        content = self.content or ""
        return content if isinstance(content, str) else "".join(each for each in content if isinstance(each, str))

    @property
    def pictures(self) -> list[Picture]:
        """The images of the content."""
        return [each for each in self.content or () if isinstance(each, Picture)]


class RequestMessage(_MessageFields):
    """A message of a conversation, whose content may have several parts."""

    content: str | list[TextPart | FilePart | ImagePart] | None = None


class ChatRequest(ConstraintFields, SamplingFields, AccountFields):
    """The body of the request."""

    model: str
    messages: Annotated[list[RequestMessage], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    modalities: list[Literal["text"]] | None = None
    verbosity: str | None = None
    prediction: dict[str, Any] | None = None


def joined(parts: Sequence[str | Picture]) -> str | list[str | Picture]:
    """Return the content of a message with these parts: a text if there are no images."""
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else list(parts)
