"""From conversations to work: prompt, format, thinking, and how the answer is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from constrain.filters.thinking import Thinking
from constrain.serve.conversation import encode_conversation
from constrain.serve.formats import OutputFormat
from constrain.serve.generation import Work, within
from constrain.serve.models import ServedModel
from constrain.serve.protocol.chat import Message
from constrain.serve.protocol.fields import Effort, SamplingFields
from constrain.serve.sampling import make_options
from constrain.serve.tools import Function, ToolChoice, answer_format
from constrain.serve.tools.reader import AnswerReader

#: Most tokens of thoughts before an answer with a constraint, by effort.
_THOUGHTS: dict[Effort, int] = {
    "none": 0,
    "minimal": 256,
    "low": 1024,
    "medium": 4096,
    "high": 16384,
    "xhigh": 32768,
}


@dataclass(frozen=True)
class Conversation:
    """What is asked, whichever API it comes by.

    Attributes:
        messages: the conversation.
        functions: what the model is told that it may call.
        choice: what it may call.
        content: form of an answer that is no call; ``None``: any text.
        max_tokens: most tokens of thoughts and answer; ``None``: what fits in the context.
        effort: how much the model thinks.
        variables: further variables of the chat template.
        logprobs: see :class:`~constrain.completion.Options`.
    """

    messages: Sequence[Message]
    functions: tuple[Function, ...] = ()
    choice: ToolChoice | None = None
    content: OutputFormat | None = None
    max_tokens: int | None = None
    effort: Effort | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    logprobs: int | None = None


def make_work(model: ServedModel, request: SamplingFields, asked: Conversation) -> Work:
    """Return the work of answering a conversation.

    Raises:
        APIError: something cannot be enforced, or refers to what the model does not have.
        TokenizerError: the chat template refuses the messages.
    """
    functions = asked.functions if asked.choice else ()
    variables = dict(asked.variables)
    if asked.effort is not None:
        # Variables by which templates of Qwen3 and of GPT-OSS are told.
        variables = {"enable_thinking": asked.effort != "none", "reasoning_effort": asked.effort, **variables}
    ids = encode_conversation(model, asked.messages, functions, variables, asked.content or _only_call(asked.choice))
    format = answer_format(model.form, asked.choice, asked.content, model.vocabulary)
    thinking = _thinking(model, ids, asked) if format is not None else None
    shows_special = isinstance(format.grammar, str) if format else model.thinking_marks is not None
    options = make_options(
        request, model, asked.max_tokens, logprobs=asked.logprobs, special_tokens=shows_special or bool(thinking)
    )
    reader = partial(AnswerReader, model.form, asked.choice, _mark_texts(model), _is_thinking(model, ids))
    return Work(model, ids, format, within(options, thinking, asked.max_tokens), thinking, reader, asked.content)


def _only_call(choice: ToolChoice | None) -> OutputFormat | None:
    """Return the format of the arguments, where there is one function, and it has to be called."""
    if choice is None or not choice.required or len(choice.functions) > 1:
        return None
    return OutputFormat(dict(choice.functions[0].schema))


def _thinking(model: ServedModel, ids: torch.Tensor, asked: Conversation) -> Thinking | None:
    """Return how the model may think before its answer; ``None`` if it begins with the answer."""
    marks = model.thinking_marks
    if marks is None:
        return None
    prompt = ids[0].tolist()
    is_open = marks.are_open(prompt)
    limit = _THOUGHTS[asked.effort or "medium"]
    has_thought = not is_open and marks.closing[0] in prompt[-1 - len(marks.closing) :]
    if has_thought or (not limit and not is_open):
        return None
    opening = () if is_open else marks.opening
    if asked.max_tokens is not None:
        limit = min(limit, max(0, asked.max_tokens - len(opening) - len(marks.closing)) // 2)
    return Thinking(opening, marks.closing, limit)


def _is_thinking(model: ServedModel, ids: torch.Tensor) -> bool:
    return model.thinking_marks is not None and model.thinking_marks.are_open(ids[0].tolist())


def _mark_texts(model: ServedModel) -> tuple[str, str] | None:
    """Return the texts around thoughts."""
    marks = model.thinking_marks
    if marks is None:
        return model.form.reasoning
    opening, closing = (model.tokenizer.get_id_to_piece_list(True)[idx] for idx in (marks.opening[0], marks.closing[0]))
    return opening, closing
