"""``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from time import time
from typing import Any
from uuid import uuid4

from constrain.engine import Vocabulary
from constrain.serve.answers import Conversation, make_work
from constrain.serve.constraints import read_format
from constrain.serve.endpoints.common import DONE, chat_logprobs, usage
from constrain.serve.errors import APIError, pointer
from constrain.serve.files import file_text
from constrain.serve.generation import Batch, Output, Work
from constrain.serve.history import check_answer, check_arguments
from constrain.serve.http import event
from constrain.serve.images import ImageReader
from constrain.serve.jobs import Job
from constrain.serve.json_values import JSONReader
from constrain.serve.models import ServedModel
from constrain.serve.protocol.chat import (
    AllowedToolsChoice,
    AssistantMessage,
    CalledFunction,
    ChatRequest,
    FilePart,
    FunctionTool,
    ImagePart,
    Message,
    NamedTool,
    Picture,
    RefusalPart,
    RequestMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    joined,
)
from constrain.serve.protocol.custom import CustomCall, CustomTool, GrammarFormat, NamedCustomTool
from constrain.serve.protocol.fields import StreamOptions
from constrain.serve.settings import ServerSettings
from constrain.serve.tools import Function, ToolChoice
from constrain.serve.tools.custom import json_of
from constrain.serve.tools.reader import CallArguments, CallStarted, Part, Text


def limit_field(request: ChatRequest) -> str:
    """Return the pointer to the field with the maximum number of tokens."""
    return "/max_completion_tokens" if request.max_completion_tokens is not None else "/max_tokens"


def chat_work(request: ChatRequest, model: ServedModel, settings: ServerSettings) -> Work:
    """Return the work of a request; errors as for :func:`make_work`, and for images that cannot be read."""
    if request.top_logprobs is not None and not request.logprobs:
        raise APIError("/top_logprobs: needs logprobs", param="/top_logprobs", code="invalid_value")
    functions = tuple(
        _function(tool, pointer("tools", number), model.vocabulary) for number, tool in enumerate(request.tools or ())
    )
    images = ImageReader(model, settings)
    asked = Conversation(
        _messages(request.messages, images),
        functions,
        _tool_choice(request, functions),
        read_format(request, model.vocabulary),
        request.max_completion_tokens or request.max_tokens,
        request.reasoning_effort,
        request.chat_template_kwargs or {},
        (request.top_logprobs or 0) if request.logprobs else None,
    )
    return make_work(model, request, asked)


def _function(tool: FunctionTool | CustomTool, at: str, vocabulary: Vocabulary) -> Function:
    if isinstance(tool, FunctionTool):
        return Function.of(tool.function, f"{at}/function/parameters")
    format = tool.custom.format
    definition = format.grammar if isinstance(format, GrammarFormat) else None
    place = f"{at}/custom/format/grammar/definition" if definition else f"{at}/custom"
    return Function.of_custom(tool.custom.name, tool.custom.description, definition, place, vocabulary)


def _tool_choice(request: ChatRequest, functions: tuple[Function, ...]) -> ToolChoice | None:
    choice, parallel = request.tool_choice, request.parallel_tool_calls
    if isinstance(choice, (NamedTool, NamedCustomTool)):
        return ToolChoice.of(functions, "required", [_named(choice)], parallel=False)
    if isinstance(choice, AllowedToolsChoice):
        allowed = choice.allowed_tools
        return ToolChoice.of(functions, allowed.mode, [_named(each) for each in allowed.tools], parallel)
    return ToolChoice.of(functions, choice, None, parallel)


def _named(choice: NamedTool | NamedCustomTool) -> tuple[str, bool]:
    """Return the name of a tool, and whether it is a custom one."""
    if isinstance(choice, NamedCustomTool):
        return choice.custom.name, True
    return choice.function.name, False


def _messages(given: Sequence[RequestMessage], images: ImageReader) -> list[Message]:
    calls = set[str]()
    for number, message in enumerate(given):
        at = pointer("messages", number)
        if isinstance(message, ToolMessage):
            check_answer(message.tool_call_id, calls, f"{at}/tool_call_id")
        for place, call in enumerate((message.tool_calls if isinstance(message, AssistantMessage) else None) or ()):
            if isinstance(call, ToolCall):
                check_arguments(call.function.arguments, f"{at}/tool_calls/{place}/function/arguments")
            calls.add(call.id)
    return [_message(message, pointer("messages", number), images) for number, message in enumerate(given)]


def _message(given: RequestMessage, at: str, images: ImageReader) -> Message:
    """Return a message with the texts and images of its parts; ``at`` is the JSON pointer to it."""
    fields = dict(given)
    content: Any = given.content if given.content is not None else fields.get("refusal")
    if isinstance(content, list):
        content = joined([_part(part, f"{at}/content/{number}", images) for number, part in enumerate(content)])
    fields["tool_calls"] = [_function_call(call) for call in fields.get("tool_calls") or ()] or None
    return Message(**{name: fields[name] for name in Message.model_fields if name in fields} | {"content": content})


def _function_call(call: ToolCall | CustomCall) -> ToolCall:
    """Return a call as one of a function, as the model sees it."""
    if isinstance(call, ToolCall):
        return call
    return ToolCall(id=call.id, function=CalledFunction(name=call.custom.name, arguments=json_of(call.custom.input)))


def _part(part: TextPart | RefusalPart | FilePart | ImagePart, at: str, images: ImageReader) -> str | Picture:
    if isinstance(part, ImagePart):
        return images.read(part.image_url.url, at, f"{at}/image_url/url")
    if isinstance(part, FilePart):
        return file_text(part.file.filename, part.file.file_data, f"{at}/file")
    return part.text if isinstance(part, TextPart) else part.refusal


class ChatAnswer:
    """Writes the response to a request: all at once, or as a stream of chunks."""

    def __init__(self, request: ChatRequest, model: ServedModel, job: Job) -> None:
        self._request, self._model, self._job = request, model, job
        self._head = {"id": f"chatcmpl-{uuid4().hex}", "created": int(time()), "model": request.model}

    async def whole(self) -> dict[str, Any]:
        """Return the response, when all outputs have ended."""
        found = await self._job.collect()
        choices = [
            self._choice(number, output, batches)
            for number, (output, batches) in enumerate(zip(self._job.outputs, found, strict=True))
        ]
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": usage(self._job.outputs)}

    def _choice(self, number: int, output: Output, batches: Sequence[Batch]) -> dict[str, Any]:
        tokens = [token for batch in batches for token in batch.tokens]
        return {
            "index": number,
            "message": message([part for batch in batches for part in batch.parts]),
            "logprobs": chat_logprobs(self._model, tokens) if self._request.logprobs else None,
            "finish_reason": output.finish_reason,
        }

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the response as events."""
        options = self._request.stream_options or StreamOptions()
        outputs = self._job.outputs
        values = [self._values_reader(options) for _ in outputs]
        for number in range(len(outputs)):
            yield self._chunk(number, {"role": "assistant", "content": ""})
        async for number, batch in self._job.stream():
            if batch is None:
                found = values[number].finish() if values[number] else []
                yield self._chunk(number, {}, values=found, finish_reason=outputs[number].finish_reason)
            elif (delta := _delta(batch.parts)) or self._request.logprobs:
                found = values[number].feed(delta.get("content", "")) if values[number] else []
                logprobs = chat_logprobs(self._model, batch.tokens) if self._request.logprobs else None
                yield self._chunk(number, delta, values=found, logprobs=logprobs)
        if self._shows_usage:
            yield event({**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage(outputs)})
        yield DONE

    @property
    def _shows_usage(self) -> bool:
        options = self._request.stream_options
        return options is not None and options.include_usage

    def _values_reader(self, options: StreamOptions) -> Any:
        content = self._job.works[0].content
        return JSONReader() if options.include_values and content is not None and content.is_json else None

    def _chunk(
        self,
        number: int,
        delta: dict[str, Any],
        *,
        values: Sequence[tuple[str, Any]] = (),
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> bytes:
        choice = {"index": number, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        if values:
            choice["values"] = [{"pointer": at, "value": value} for at, value in values]
        usage_yet = {"usage": None} if self._shows_usage else {}
        return event({**self._head, "object": "chat.completion.chunk", "choices": [choice], **usage_yet})


def message(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the message of an answer."""
    content = "".join(part.text for part in parts if isinstance(part, Text) and part.kind == "content")
    thoughts = "".join(part.text for part in parts if isinstance(part, Text) and part.kind == "reasoning")
    calls = [_call(part, _arguments(parts, part.index)) for part in parts if isinstance(part, CallStarted)]
    made: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if thoughts:
        made["reasoning_content"] = thoughts.strip()
    if calls:
        made["tool_calls"] = calls
    return made


def _call(call: CallStarted, arguments: str) -> dict[str, Any]:
    if call.is_custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": arguments}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _arguments(parts: Sequence[Part], index: int) -> str:
    return "".join(part.text for part in parts if isinstance(part, CallArguments) and part.index == index)


def _delta(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the difference that parts make to a message."""
    delta: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, Text):
            name = "content" if part.kind == "content" else "reasoning_content"
            delta[name] = delta.get(name, "") + part.text
        elif isinstance(part, CallStarted):
            delta.setdefault("tool_calls", []).append({"index": part.index, **_call(part, "")})
        else:
            _add_arguments(delta.setdefault("tool_calls", []), part)
    return delta


def _add_arguments(calls: list[dict[str, Any]], part: CallArguments) -> None:
    kind, field = ("custom", "input") if part.is_custom else ("function", "arguments")
    if calls and calls[-1]["index"] == part.index:
        calls[-1][kind][field] += part.text
    else:
        calls.append({"index": part.index, kind: {field: part.text}})
