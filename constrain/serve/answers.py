"""From conversations to work: prompt, format, thinking, and how the answer is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from constrain.filters.thinking import Thinking
from constrain.serve.conversation import encode_conversation
from constrain.serve.formats import OutputFormat
from constrain.serve.generation import Work
from constrain.serve.models import ServedModel
from constrain.serve.protocol.chat import Message
from constrain.serve.protocol.fields import Effort, SamplingFields
from constrain.serve.sampling import make_options
from constrain.serve.tools import CallForm, Function, ToolChoice, answer_format
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

#: Number of tokens at the end of a prompt that may be a mark of the answer.
_END_TOKENS = 8


@dataclass(frozen=True)
class Conversation:
    """A request for an answer, whichever API it comes by.

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
        # Variables by which templates of Qwen3, of Command and of GPT-OSS are told.
        thinks = asked.effort != "none"
        variables = {"enable_thinking": thinks, "reasoning": thinks, "reasoning_effort": asked.effort, **variables}
    written = asked.content or _only_call(asked.choice)
    ids, embeddings = encode_conversation(model, asked.messages, functions, variables, written)
    prompt = Prompt.of(model, ids[0].tolist())
    format = answer_format(prompt.form, asked.choice, asked.content, model.vocabulary)
    thinking = _thinking(model, prompt, asked) if format is not None else None
    shows_special = isinstance(format.grammar, str) if format else model.thinking_marks is not None
    options = make_options(
        request, model, asked.max_tokens, logprobs=asked.logprobs, special_tokens=shows_special or bool(thinking)
    )
    options = replace(options, embeddings=embeddings)
    reader = partial(AnswerReader, prompt.form, asked.choice, _mark_texts(model), prompt.is_thinking)
    return Work(model, ids, format, options, thinking, reader, asked.content, asked.max_tokens)


def _only_call(choice: ToolChoice | None) -> OutputFormat | None:
    """Return the format of the arguments, where there is one function, and it has to be called."""
    if choice is None or not choice.required or len(choice.functions) > 1:
        return None
    return OutputFormat(dict(choice.functions[0].schema))


@dataclass(frozen=True)
class Prompt:
    """The part of the answer that the prompt begins with.

    Attributes:
        form: of what is left of the answer.
        is_thinking: whether the prompt ends within thoughts.
        has_thought: whether it ends with closed thoughts.
    """

    form: CallForm
    is_thinking: bool = False
    has_thought: bool = False

    @classmethod
    def of(cls, model: ServedModel, ids: Sequence[int]) -> Prompt:
        """Return it for the ids of a prompt."""
        marks, pieces = model.thinking_marks, model.tokenizer.get_id_to_piece_list(True)
        is_thinking = marks is not None and marks.are_open(ids)
        has_thought = marks is not None and not is_thinking and marks.closing[0] in ids[-1 - len(marks.closing) :]
        end = "".join(pieces[idx] for idx in ids[-_END_TOKENS:] if idx < len(pieces))
        return cls(model.form.after(end, is_thinking or has_thought), is_thinking, has_thought)


def _thinking(model: ServedModel, prompt: Prompt, asked: Conversation) -> Thinking | None:
    """Return how the model may think before its answer; ``None`` if it begins with the answer, or as its form says."""
    marks = model.thinking_marks
    if marks is None or prompt.has_thought or (model.form.reasoning and not prompt.is_thinking):
        return None
    limit = _THOUGHTS[asked.effort or "medium"]
    if not limit and not prompt.is_thinking:
        return None
    opening = () if prompt.is_thinking else marks.opening
    return Thinking(opening, marks.closing, limit)


def _mark_texts(model: ServedModel) -> tuple[str, str] | None:
    """Return the texts around thoughts."""
    marks = model.thinking_marks
    if model.form.reasoning or marks is None:
        return model.form.reasoning
    opening, closing = (model.tokenizer.get_id_to_piece_list(True)[idx] for idx in (marks.opening[0], marks.closing[0]))
    return opening, closing
