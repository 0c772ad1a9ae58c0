"""``POST /v1/responses``: the request as a conversation."""

from __future__ import annotations

from collections.abc import Sequence

from constrain.engine import Vocabulary
from constrain.serve.answers import Conversation, make_work
from constrain.serve.constraints import read_format, text_format
from constrain.serve.errors import APIError, pointer
from constrain.serve.files import file_text
from constrain.serve.formats import OutputFormat
from constrain.serve.generation import Work
from constrain.serve.history import check_answer, check_arguments
from constrain.serve.images import ImageReader
from constrain.serve.models import ServedModel
from constrain.serve.protocol.chat import CalledFunction, Message, Picture, ToolCall, joined
from constrain.serve.protocol.custom import FlatCustomTool, FlatGrammarFormat, FlatNamedCustomTool
from constrain.serve.protocol.responses import (
    ITEMS,
    AllowedResponseTools,
    CallItem,
    CallOutputItem,
    CustomCallItem,
    InputItem,
    Item,
    ItemFile,
    ItemImage,
    ItemPart,
    ItemReference,
    ItemText,
    MessageItem,
    NamedResponseTool,
    ReasoningItem,
    ResponsesRequest,
    ResponseTool,
)
from constrain.serve.stored import StoredResponses
from constrain.serve.tools import Function, ToolChoice
from constrain.serve.tools.custom import json_of


def responses_work(request: ResponsesRequest, model: ServedModel, conversation: Sequence[Message]) -> Work:
    """Return the work of a request; errors as for :func:`make_work`.

    Args:
        request: the request.
        model: the model.
        conversation: the messages that it answers, without its instructions.
    """
    functions = tuple(
        _function(tool, pointer("tools", number), model.vocabulary) for number, tool in enumerate(request.tools or ())
    )
    asked = Conversation(
        [Message(role="system", content=request.instructions), *conversation] if request.instructions else conversation,
        functions,
        _tool_choice(request, functions),
        _format(request, model),
        request.max_output_tokens,
        request.reasoning.effort if request.reasoning else None,
        request.chat_template_kwargs or {},
        (request.top_logprobs or 0) if request.has_logprobs else None,
    )
    return make_work(model, request, asked)


def _function(tool: ResponseTool | FlatCustomTool, at: str, vocabulary: Vocabulary) -> Function:
    if isinstance(tool, ResponseTool):
        return Function.of(tool, f"{at}/parameters")
    definition = tool.format if isinstance(tool.format, FlatGrammarFormat) else None
    place = f"{at}/format/definition" if definition else at
    return Function.of_custom(tool.name, tool.description, definition, place, vocabulary)


def _tool_choice(request: ResponsesRequest, functions: tuple[Function, ...]) -> ToolChoice | None:
    choice, parallel = request.tool_choice, request.parallel_tool_calls
    if isinstance(choice, (NamedResponseTool, FlatNamedCustomTool)):
        return ToolChoice.of(functions, "required", [_named(choice)], parallel=False)
    if isinstance(choice, AllowedResponseTools):
        return ToolChoice.of(functions, choice.mode, [_named(each) for each in choice.tools], parallel)
    return ToolChoice.of(functions, choice, None, parallel)


def _named(choice: NamedResponseTool | FlatNamedCustomTool) -> tuple[str, bool]:
    """Return the name of a tool, and whether it is a custom one."""
    return choice.name, isinstance(choice, FlatNamedCustomTool)


def _format(request: ResponsesRequest, model: ServedModel) -> OutputFormat | None:
    given = read_format(request, model.vocabulary)
    text = request.text.format if request.text else None
    format = text_format(text, "/text/format", model.vocabulary) if text is not None else None
    if format is not None and given is not None:
        message = f"{given.pointer}: /text/format is a constraint already; give one"
        raise APIError(message, param=given.pointer, code="several_constraints")
    return format or given


def items_of(request: ResponsesRequest, stored: StoredResponses) -> list[Item]:
    """Return the items of a request, those that are referred to in place of the references.

    Raises:
        APIError: an item is not stored.
    """
    if isinstance(request.input, str):
        return [MessageItem(role="user", content=request.input)]
    return [_referred(item, pointer("input", number, "id"), stored) for number, item in enumerate(request.input)]


def conversation_of(items: Sequence[Item], earlier: Sequence[Message], images: ImageReader) -> list[Message]:
    """Return the messages that a request answers, without its instructions.

    Args:
        items: of the request.
        earlier: messages of the response that it continues.
        images: reads images.

    Raises:
        APIError: a part of a message cannot be read, or a call or its output is malformed.
    """
    if any(message.pictures for message in earlier):
        images.check("/previous_response_id")
    calls = {call.id for message in earlier for call in message.tool_calls or ()}
    for number, item in enumerate(items):
        if isinstance(item, CallItem):
            check_arguments(item.arguments, pointer("input", number, "arguments"))
            calls.add(item.call_id)
        elif isinstance(item, CustomCallItem):
            calls.add(item.call_id)
        elif isinstance(item, CallOutputItem):
            check_answer(item.call_id, calls, pointer("input", number, "call_id"))
    return [*earlier, *messages_of(items, "/input", images)]


def _referred(item: InputItem, at: str, stored: StoredResponses) -> Item:
    """Return the item that a reference stands for; any other as it is."""
    if not isinstance(item, ItemReference):
        return item
    return ITEMS.validate_python([stored.find_item(item.id, at)])[0]


def messages_of(items: Sequence[Item], at: str, images: ImageReader) -> list[Message]:
    """Return the messages of some items; ``at`` is the JSON pointer to them.

    Raises:
        APIError: a part of a message cannot be read.
    """
    messages: list[Message] = []
    for number, item in enumerate(items):
        _add(messages, item, f"{at}/{number}", images)
    return messages


def _add(messages: list[Message], item: Item, at: str, images: ImageReader) -> None:
    """Add an item to the conversation; calls and thoughts belong to the message of the assistant that they stand at."""
    if isinstance(item, CallOutputItem):
        output = _content(item.output, f"{at}/output", images)
        messages.append(Message(role="tool", content=output, tool_call_id=item.call_id))
    elif isinstance(item, (CallItem, CustomCallItem)):
        arguments = item.arguments if isinstance(item, CallItem) else json_of(item.input)
        call = ToolCall(id=item.call_id, function=CalledFunction(name=item.name, arguments=arguments))
        message = _assistant(messages)
        message.tool_calls = [*(message.tool_calls or ()), call]
    elif isinstance(item, ReasoningItem):
        thoughts = Message(role="assistant", content=_content(item.content or item.summary, f"{at}/content", images))
        messages.append(Message(role="assistant", reasoning_content=thoughts.text))
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


def _content(content: str | Sequence[ItemPart], at: str, images: ImageReader) -> str | list[str | Picture]:
    if isinstance(content, str):
        return content
    return joined([_part(part, f"{at}/{number}", images) for number, part in enumerate(content)])


def _part(part: ItemPart, at: str, images: ImageReader) -> str | Picture:
    if isinstance(part, ItemFile):
        return file_text(part.filename, part.file_data, at)
    if isinstance(part, ItemImage):
        return images.read(part.image_url, at, f"{at}/image_url")
    return part.text if isinstance(part, ItemText) else part.refusal
