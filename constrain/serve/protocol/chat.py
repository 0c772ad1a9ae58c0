"""``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Tag, model_validator
from typing_extensions import Self

from constrain.serve.protocol.custom import CustomCall, CustomTool, NamedCustomTool
from constrain.serve.protocol.fields import (
    AccountFields,
    ConstraintFields,
    Effort,
    Function,
    JSONObject,
    SamplingFields,
    StreamFields,
    Strict,
    Verbosity,
    by,
    refuse,
    tag,
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


_AllowedTool = Annotated[
    Annotated[NamedTool, Tag(tag("function"))] | Annotated[NamedCustomTool, Tag(tag("custom"))],
    by("type", "function", "custom"),
]


class AllowedTools(Strict):
    """The tools that may be called, or of which one has to be."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[_AllowedTool], Field(min_length=1)]


class AllowedToolsChoice(Strict):
    """Limits calls to some of the tools; the prompt still lists all of them."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolObject = Annotated[
    Annotated[NamedTool, Tag(tag("function"))]
    | Annotated[NamedCustomTool, Tag(tag("custom"))]
    | Annotated[AllowedToolsChoice, Tag(tag("allowed_tools"))],
    by("type", "function", "custom", "allowed_tools"),
]

Tool = Annotated[
    Annotated[FunctionTool, Tag(tag("function"))] | Annotated[CustomTool, Tag(tag("custom"))],
    by("type", "function", "custom"),
]


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


EarlierCall = Annotated[
    Annotated[ToolCall, Tag(tag("function"))] | Annotated[CustomCall, Tag(tag("custom"))],
    by("type", "function", "custom", default="function"),
]


class TextPart(Strict):
    """A part of a message that is text."""

    type: Literal["text"]
    text: str


class RefusalPart(Strict):
    """A part of a message of the assistant that is a refusal."""

    type: Literal["refusal"]
    refusal: str


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


Part = Annotated[
    Annotated[TextPart, Tag(tag("text"))]
    | Annotated[RefusalPart, Tag(tag("refusal"))]
    | Annotated[FilePart, Tag(tag("file"))]
    | Annotated[ImagePart, Tag(tag("image_url"))],
    by("type", "text", "file", "image_url", "refusal"),
]


class Message(Strict):
    """A message of a conversation; a list has its texts and images in order."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    content: str | list[str | Picture] | None = None

    @property
    def text(self) -> str:
        """The texts of the content."""
        content = self.content or ""
        return content if isinstance(content, str) else "".join(each for each in content if isinstance(each, str))

    @property
    def pictures(self) -> list[Picture]:
        """The images of the content."""
        content = self.content if isinstance(self.content, list) else []
        return [each for each in content if isinstance(each, Picture)]


class AskingMessage(Strict):
    """A message of the user or the system of a request."""

    role: Literal["system", "developer", "user"]
    content: str | list[Part]
    name: str | None = None


class ToolMessage(Strict):
    """What a call has returned."""

    role: Literal["tool"]
    content: str | list[Part]
    tool_call_id: str
    name: str | None = None


class AssistantMessage(Strict):
    """An earlier answer, with all that clients send back of it."""

    role: Literal["assistant"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[EarlierCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None
    parsed: Any = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        said = (self.content, self.refusal, self.reasoning_content, self.reasoning)
        if not self.tool_calls and all(each is None for each in said):
            refuse("content", "Field required, unless there are tool_calls")
        return self


RequestMessage = Annotated[
    Annotated[AskingMessage, Tag(tag("system"))]
    | Annotated[AskingMessage, Tag(tag("developer"))]
    | Annotated[AskingMessage, Tag(tag("user"))]
    | Annotated[AssistantMessage, Tag(tag("assistant"))]
    | Annotated[ToolMessage, Tag(tag("tool"))],
    by("role", "system", "developer", "user", "assistant", "tool"),
]


class Prediction(Strict):
    """A text that the answer may have much of: a hint, which has no effect."""

    type: Literal["content"]
    content: str | list[TextPart]


class ChatRequest(ConstraintFields, SamplingFields, StreamFields, AccountFields):
    """The body of the request."""

    model: str
    messages: Annotated[list[RequestMessage], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] = 1
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Field(min_length=1)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolObject | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: JSONObject | None = None
    modalities: list[Literal["text"]] | None = None
    verbosity: Verbosity | None = None
    prediction: Prediction | None = None

    @model_validator(mode="after")
    def _choices_are_of_tools(self) -> Self:
        for field in ("tool_choice", "parallel_tool_calls"):
            if getattr(self, field) is not None and self.tools is None:
                refuse(field, "needs tools")
        return self


def joined(parts: Sequence[str | Picture]) -> str | list[str | Picture]:
    """Return the content of a message with these parts: a text if there are no images."""
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else list(parts)
