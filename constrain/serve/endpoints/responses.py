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
from constrain.serve.models import ServedModel
from constrain.serve.protocol.chat import CalledFunction, Message, ToolCall
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


def conversation_of(request: ResponsesRequest, earlier: Sequence[Message]) -> list[Message]:
    """Return the messages that a request answers, without its instructions.

    Args:
        request: the request.
        earlier: messages of the response that it continues.

    Raises:
        APIError: a part of a message cannot be read.
    """
    if isinstance(request.input, str):
        return [*earlier, Message(role="user", content=request.input)]
    return [*earlier, *messages_of(request.input, "/input")]


def messages_of(items: Sequence[InputItem], at: str) -> list[Message]:
    """Return the messages of some items; ``at`` is the JSON pointer to them.

    Raises:
        APIError: a part of a message cannot be read.
    """
    messages: list[Message] = []
    for number, item in enumerate(items):
        _add(messages, item, f"{at}/{number}")
    return messages


def _add(messages: list[Message], item: InputItem, at: str) -> None:
    """Add an item to the conversation; calls and thoughts belong to the message of the assistant that they stand at."""
    if item.type == "function_call_output":
        messages.append(Message(role="tool", content=_text(item.output, f"{at}/output"), tool_call_id=item.call_id))
    elif item.type == "function_call":
        function = CalledFunction(name=item.name or "", arguments=item.arguments or "{}")
        call = ToolCall(id=item.call_id or "", function=function)
        message = _assistant(messages)
        message.tool_calls = [*(message.tool_calls or ()), call]
    elif item.type == "reasoning":
        text = _text(item.content or item.summary, f"{at}/content")
        messages.append(Message(role="assistant", reasoning_content=text))
    elif item.role is None:
        raise APIError(f"{at}/role: a message has a role", param=f"{at}/role", code="invalid_value")
    else:
        content = _text(item.content, f"{at}/content")
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


def _text(content: str | Sequence[Mapping[str, Any]] | None, at: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for number, part in enumerate(content):
        kind, where = part.get("type"), f"{at}/{number}"
        if kind == "input_file":
            texts.append(file_text(part.get("filename"), part.get("file_data"), where))
        elif kind in _TEXT_PARTS:
            texts.append(str(part.get("text", part.get("refusal", ""))))
        else:
            message = f"{where}/type: the model reads texts and documents only, not {kind!r}"
            raise APIError(message, param=f"{where}/type", code="unsupported_content")
    return "".join(texts)
