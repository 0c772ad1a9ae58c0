"""Conversations as prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from constrain.errors import ArgumentError
from constrain.extract.prompts.builtin_form import BuiltinForm
from constrain.extract.prompts.form import Task
from constrain.model import ExLlamaV2MMEmbedding
from constrain.serve.formats import OutputFormat
from constrain.serve.images import image_of
from constrain.serve.models import ServedModel
from constrain.serve.protocol.chat import Message, Picture
from constrain.serve.tools import CallForm, Function


def encode_conversation(
    model: ServedModel,
    messages: Sequence[Message],
    functions: Sequence[Function] = (),
    variables: Mapping[str, Any] | None = None,
    format: OutputFormat | None = None,
) -> tuple[torch.Tensor, Sequence[ExLlamaV2MMEmbedding]]:
    """Encode a conversation whose next message the model writes.

    The chat template of the model renders it. Where that does not show functions, a system message describes them;
    without a chat template, the prompt is a transcript. The built-in model, which only knows documents and their
    records, is given the messages of the user as the document, and those of the system as its instructions, if the
    answer is JSON, or the arguments of the only function.

    Args:
        model: the model.
        messages: the conversation.
        functions: what the model may call.
        variables: further variables of the template.
        format: form of the answer.

    Returns:
        int64 ids of shape (1, n), and the embeddings of images that they refer to.

    Raises:
        ArgumentError: the template shows no images.
        GenerationError: the conversation does not fit in the context.
        TokenizerError: the template refuses the messages.
    """
    tokenizer, form = model.tokenizer, model.llm.extractor.form
    if isinstance(form, BuiltinForm) and format is not None and isinstance(format.grammar, dict):
        task, document = _task(messages, format.grammar)
        model.check_length(len((task.instructions + document).encode()))
        return form.encode(task, document), ()
    templates = tokenizer.chat_templates
    source = (templates.get("tool_use") or templates["default"]).source if "default" in templates else ""
    pictures = [picture for message in messages for picture in message.pictures]
    if "tools" in source:
        rendered = for_template(messages, model.form)
        tools = [function.for_template() for function in functions]
        return _encode(model, rendered, pictures, tools or None, variables)
    texts = [_as_text(message, model.form) for message in messages]
    if functions:
        texts = _with_system(texts, _description(functions, model.form))
    if source:
        return _encode(model, texts, pictures, None, variables)
    if pictures:
        raise ArgumentError("the model has no chat template, in which images would have a place")
    model.check_length(sum(len(each["content"].encode()) for each in texts))
    transcript = "".join(f"{each['role']}: {tokenizer.plain(each['content'])}\n\n" for each in texts)
    return tokenizer.encode_prompt(f"{transcript}assistant:", add_bos=True), ()


def _task(messages: Sequence[Message], schema: dict[str, Any]) -> tuple[Task, str]:
    """Return what the messages of the system ask for, and those of the user as the document."""
    instructions = "\n\n".join(message.text for message in messages if _role(message) == "system")
    given = [message.text for message in messages if message.role == "user"] or [messages[-1].text]
    return Task(schema, instructions), "\n\n".join(given)


def _encode(
    model: ServedModel,
    messages: Sequence[Mapping[str, Any]],
    pictures: Sequence[Picture],
    tools: Sequence[Mapping[str, Any]] | None,
    variables: Mapping[str, Any] | None,
) -> tuple[torch.Tensor, Sequence[ExLlamaV2MMEmbedding]]:
    images, tokenizer = model.llm.images, model.tokenizer
    if images is None or not pictures:
        rendered = tokenizer.render_chat(messages, tools=tools, **(variables or {}))
        # What hides the names of special tokens in the messages doubles the text at the most.
        model.check_length(len(rendered) // 2)
        return tokenizer.encode_prompt(rendered), ()
    # One after the other: decoded, all of them together may be large.
    return images.encode(messages, map(image_of, pictures), tools=tools, **(variables or {}))


def _content(message: Message) -> str | list[dict[str, str]]:
    """Return the content as chat templates take it."""
    if not isinstance(message.content, list):
        return message.content or ""
    return [
        {"type": "text", "text": each} if isinstance(each, str) else {"type": "image"}
        for each in message.content
        if each
    ]


def _role(message: Message) -> str:
    return "system" if message.role == "developer" else message.role


def for_template(messages: Sequence[Message], form: CallForm) -> list[dict[str, Any]]:
    """Return messages as chat templates take them: arguments of calls as objects, and ids as the model knows them."""
    calls = [call for message in messages for call in message.tool_calls or ()] if form.call_id else []
    ids = {call.id: form.call_id.format(name=call.function.name, number=number) for number, call in enumerate(calls)}
    return [_rendered(message, ids) for message in messages]


def _rendered(message: Message, ids: Mapping[str, str]) -> dict[str, Any]:
    rendered: dict[str, Any] = {"role": _role(message), "content": _content(message)}
    thoughts = message.reasoning_content or message.reasoning
    answered = ids.get(message.tool_call_id or "", message.tool_call_id)
    # Templates of Command have a name of their own for thoughts.
    named = {"reasoning_content": thoughts, "tool_plan": thoughts}
    optional = {"name": message.name, "tool_call_id": answered, **named}
    rendered |= {name: value for name, value in optional.items() if value is not None}
    if message.tool_calls:
        rendered["tool_calls"] = [
            {
                "id": ids.get(call.id, call.id),
                "type": "function",
                "function": {"name": call.function.name, "arguments": _parsed(call.function.arguments)},
            }
            for call in message.tool_calls
        ]
    return rendered


def _as_text(message: Message, form: CallForm) -> dict[str, Any]:
    """Return a message of a template that knows no calls: they are written as text."""
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    if message.pictures:
        return {"role": "user" if message.role == "tool" else _role(message), "content": _content(message)}
    text = message.text + (form.written(calls) if calls else "")
    if message.role == "tool":
        return {"role": "user", "content": f"<tool_response>\n{text}\n</tool_response>"}
    return {"role": _role(message), "content": text}


def _with_system(messages: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    if messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _description(functions: Sequence[Function], form: CallForm) -> str:
    listed = "\n".join(json.dumps(function.for_template(), ensure_ascii=False) for function in functions)
    call = form.written([("NAME", "ARGUMENTS")])
    return (
        f"You may call these functions:\n{listed}\n\nA call is written like this, with the arguments as JSON:\n{call}"
    )


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
