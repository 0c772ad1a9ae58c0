"""``POST /v1/responses``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Tag, TypeAdapter, model_validator
from typing_extensions import Self

from constrain.serve.protocol.custom import FlatCustomTool, FlatNamedCustomTool
from constrain.serve.protocol.fields import (
    AccountFields,
    ConstraintFields,
    Effort,
    Function,
    JSONObject,
    SamplingFields,
    Strict,
    Verbosity,
    by,
    refuse,
    tag,
)


class ResponseTool(Function):
    """A tool, whose function is not in a field of its own here."""

    type: Literal["function"]


class NamedResponseTool(Strict):
    """A tool that has to be called."""

    type: Literal["function"]
    name: str


_AllowedTool = Annotated[
    Annotated[NamedResponseTool, Tag(tag("function"))] | Annotated[FlatNamedCustomTool, Tag(tag("custom"))],
    by("type", "function", "custom"),
]


class AllowedResponseTools(Strict):
    """Limits calls to some of the tools; the prompt still lists all of them."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[_AllowedTool], Field(min_length=1)]


ResponseToolObject = Annotated[
    Annotated[NamedResponseTool, Tag(tag("function"))]
    | Annotated[FlatNamedCustomTool, Tag(tag("custom"))]
    | Annotated[AllowedResponseTools, Tag(tag("allowed_tools"))],
    by("type", "function", "custom", "allowed_tools"),
]

FlatTool = Annotated[
    Annotated[ResponseTool, Tag(tag("function"))] | Annotated[FlatCustomTool, Tag(tag("custom"))],
    by("type", "function", "custom"),
]


class Reasoning(Strict):
    """How much the model thinks. There are no summaries of its thoughts."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class TextOptions(Strict):
    """The form of the answer."""

    format: JSONObject | None = None
    verbosity: Verbosity | None = None


class ItemText(Strict):
    """A part of an item that is text, with what an earlier response has said about it."""

    type: Literal["input_text", "output_text", "text", "reasoning_text", "summary_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class ItemRefusal(Strict):
    """A part of an item that is a refusal."""

    type: Literal["refusal"]
    refusal: str


class ItemFile(Strict):
    """A part of an item that is a document, in base64. ``detail`` is ignored: the model reads its text."""

    type: Literal["input_file"]
    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    detail: Literal["auto", "low", "high"] | None = None


class ItemImage(Strict):
    """A part of an item that is an image. ``detail`` is ignored: the model reads all images alike."""

    type: Literal["input_image"]
    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None


ItemPart = Annotated[
    Annotated[ItemText, Tag(tag("input_text"))]
    | Annotated[ItemText, Tag(tag("output_text"))]
    | Annotated[ItemText, Tag(tag("text"))]
    | Annotated[ItemText, Tag(tag("reasoning_text"))]
    | Annotated[ItemText, Tag(tag("summary_text"))]
    | Annotated[ItemRefusal, Tag(tag("refusal"))]
    | Annotated[ItemFile, Tag(tag("input_file"))]
    | Annotated[ItemImage, Tag(tag("input_image"))],
    by("type", "input_text", "input_file", "input_image", "output_text", "refusal"),
]


class _Item(Strict):
    """An item, with the fields that a response gives it, and that have no meaning here."""

    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class MessageItem(_Item):
    """A message."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ItemPart]
    phase: Literal["commentary", "final_answer"] | None = None


class CallItem(_Item):
    """A call of a function, with its arguments as JSON."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    caller: Any = None


class CustomCallItem(_Item):
    """A call of a custom tool."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str
    namespace: str | None = None
    caller: Any = None


class CallOutputItem(_Item):
    """What a function or a custom tool has returned."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: str | list[ItemPart]
    name: str | None = None
    namespace: str | None = None
    caller: Any = None


class ReasoningItem(_Item):
    """Earlier thoughts."""

    type: Literal["reasoning"]
    summary: list[ItemPart] = Field([])
    content: list[ItemPart] | None = None
    encrypted_content: str | None = None


class ItemReference(Strict):
    """An item of the output of an earlier response."""

    type: Literal["item_reference"]
    id: str


Item = (
    Annotated[MessageItem, Tag(tag("message"))]
    | Annotated[CallItem, Tag(tag("function_call"))]
    | Annotated[CallOutputItem, Tag(tag("function_call_output"))]
    | Annotated[CustomCallItem, Tag(tag("custom_tool_call"))]
    | Annotated[CallOutputItem, Tag(tag("custom_tool_call_output"))]
    | Annotated[ReasoningItem, Tag(tag("reasoning"))]
)

_CALLS = "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"
_KINDS = "message", *_CALLS, "reasoning"

InputItem = Annotated[
    Item | Annotated[ItemReference, Tag(tag("item_reference"))],
    by("type", *_KINDS, "item_reference", default="message"),
]

#: Reads the items of a response as those of a request.
ITEMS: TypeAdapter[list[Item]] = TypeAdapter(list[Annotated[Item, by("type", *_KINDS, default="message")]])


#: What clients ask to be included. All but the first is of what responses here always, or never, have.
Includable = Literal[
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
]


class ResponsesRequest(ConstraintFields, SamplingFields, AccountFields):
    """The body of the request."""

    model: str
    input: str | Annotated[list[InputItem], Field(min_length=1)]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    text: TextOptions | None = None
    tools: list[FlatTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ResponseToolObject | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    stream: bool | None = False
    stream_options: dict[Literal["include_obfuscation"], bool] | None = None
    include: list[Includable] | None = None
    truncation: Literal["disabled"] | None = None
    background: Literal[False] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    chat_template_kwargs: JSONObject | None = None

    @model_validator(mode="after")
    def _options_are_of_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            refuse("stream_options", "needs stream")
        return self

    @model_validator(mode="after")
    def _most_likely_tokens_are_of_reported_ones(self) -> Self:
        if self.top_logprobs and not self.has_logprobs:
            refuse("top_logprobs", 'needs "message.output_text.logprobs" in include')
        return self

    @property
    def has_logprobs(self) -> bool:
        """Whether the log probabilities of tokens are reported."""
        return "message.output_text.logprobs" in (self.include or ())
