"""``POST /v1/responses``: the request as a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from constrain.serve.answers import Conversation, make_work
from constrain.serve.constraints import read_format, response_format
from constrain.serve.errors import APIError, pointer
from constrain.serve.files import file_text
from constrain.serve.formats import OutputFormat
from constrain.serve.generation import Work
from constrain.serve.images import ImageReader
from constrain.serve.models import ServedModel
from constrain.serve.protocol.chat import CalledFunction, Message, Picture, ToolCall, joined
from constrain.serve.protocol.responses import InputItem, NamedResponseTool, ResponsesRequest
from constrain.serve.tools import Function, ToolChoice

_TEXT_PARTS = ("input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text")


def responses_work(request: ResponsesRequest, model: ServedModel, conversation: Sequence[Message]) -> Work:
    """Return the work of a request; errors as for :func:`make_work`.

    Args:
        request: the request.
        model: the model.
        conversation: the messages that it answers, without its instructions.
    """
    functions = tuple(
        Function(
            tool.name,
            tool.parameters or {"type": "object", "properties": {}, "additionalProperties": False},
            pointer("tools", number, "parameters"),
            tool.description or "",
        )
        for number, tool in enumerate(request.tools or ())
    )
    named = request.tool_choice.name if isinstance(request.tool_choice, NamedResponseTool) else None
    word = None if isinstance(request.tool_choice, NamedResponseTool) else request.tool_choice
    asked = Conversation(
        [Message(role="system", content=request.instructions), *conversation] if request.instructions else conversation,
        functions,
        ToolChoice.of(functions, word, named, request.parallel_tool_calls),
        _format(request, model),
        request.max_output_tokens,
        request.reasoning.effort if request.reasoning else None,
        request.chat_template_kwargs or {},
    )
    return make_work(model, request, asked)


def _format(request: ResponsesRequest, model: ServedModel) -> OutputFormat | None:
    given = read_format(request, model.vocabulary)
    text = request.text.format if request.text else None
    format = response_format(text, "/text/format", model.vocabulary) if text is not None else None
    if format is not None and given is not None:
        message = f"{given.pointer}: /text/format is a constraint already; give one"
        raise APIError(message, param=given.pointer, code="several_constraints")
    return format or given


def conversation_of(request: ResponsesRequest, earlier: Sequence[Message], images: ImageReader) -> list[Message]:
    """Return the messages that a request answers, without its instructions.

    Args:
        request: the request.
        earlier: messages of the response that it continues.
        images: reads images.

    Raises:
        APIError: a part of a message cannot be read.
    """
    if any(message.pictures for message in earlier):
        images.check("/previous_response_id")
    if isinstance(request.input, str):
        return [*earlier, Message(role="user", content=request.input)]
    return [*earlier, *messages_of(request.input, "/input", images)]


def messages_of(items: Sequence[InputItem], at: str, images: ImageReader) -> list[Message]:
    """Return the messages of some items; ``at`` is the JSON pointer to them.

    Raises:
        APIError: a part of a message cannot be read.
    """
    messages: list[Message] = []
    for number, item in enumerate(items):
        _add(messages, item, f"{at}/{number}", images)
    return messages


def _add(messages: list[Message], item: InputItem, at: str, images: ImageReader) -> None:
    """Add an item to the conversation; calls and thoughts belong to the message of the assistant that they stand at."""
    if item.type == "function_call_output":
        output = _content(item.output, f"{at}/output", images)
        messages.append(Message(role="tool", content=output, tool_call_id=item.call_id))
    elif item.type == "function_call":
        function = CalledFunction(name=item.name or "", arguments=item.arguments or "{}")
        call = ToolCall(id=item.call_id or "", function=function)
        message = _assistant(messages)
        message.tool_calls = [*(message.tool_calls or ()), call]
    elif item.type == "reasoning":
        thoughts = Message(role="assistant", content=_content(item.content or item.summary, f"{at}/content", images))
        messages.append(Message(role="assistant", reasoning_content=thoughts.text))
    elif item.role is None:
        raise APIError(f"{at}/role: a message has a role", param=f"{at}/role", code="invalid_value")
    else:
        content = _content(item.content, f"{at}/content", images)
        if item.role == "assistant" and messages and _is_open(messages[-1]):
            messages[-1].content = content
        else:
            messages.append(Message(role=item.role, content=content))


def _is_open(message: Message) -> bool:
    """Return whether a message has only thoughts so far."""
    return message.role == "assistant" and message.content is None and not message.tool_calls


def _assistant(messages: list[Message]) -> Message:
    if not messages or messages[-1].role != "assistant":
        messages.append(Message(role="assistant"))
    return messages[-1]


def _content(
    content: str | Sequence[Mapping[str, Any]] | None, at: str, images: ImageReader
) -> str | list[str | Picture]:
    if content is None or isinstance(content, str):
        return content or ""
    return joined([_part(part, f"{at}/{number}", images) for number, part in enumerate(content)])


def _part(part: Mapping[str, Any], at: str, images: ImageReader) -> str | Picture:
    kind = part.get("type")
    if kind == "input_file":
        return file_text(part.get("filename"), part.get("file_data"), at)
    if kind == "input_image":
        url = part.get("image_url")
        return images.read(url if isinstance(url, str) else None, at, f"{at}/image_url")
    if kind in _TEXT_PARTS:
        return str(part.get("text", part.get("refusal", "")))
    message = f"{at}/type: the model reads texts, documents and images only, not {kind!r}"
    raise APIError(message, param=f"{at}/type", code="unsupported_content")
