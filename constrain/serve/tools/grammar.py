"""The grammar of an answer: text of any or a given form, and calls of functions."""

from __future__ import annotations

from constrain.engine import Vocabulary
from constrain.serve.formats import GrammarText, OutputFormat, any_of
from constrain.serve.tools.choice import Function, ToolChoice
from constrain.serve.tools.custom import json_expression
from constrain.serve.tools.forms import ID_AFTER, ID_BEFORE, NUMBER, CallForm
from constrain.serve.tools.tagged import tagged_arguments


def answer_format(
    form: CallForm, choice: ToolChoice | None, content: OutputFormat | None, vocabulary: Vocabulary
) -> OutputFormat | None:
    """Return the format of a whole answer; ``None`` for any text.

    Without ``choice`` an answer has the format ``content``. With it, it is either that or calls; without ``content``,
    unconstrained text may come before calls.

    Args:
        form: how the model writes calls.
        choice: the functions that it may call.
        content: format of an answer that is no call; ``None``: any text.
        vocabulary: of the model.

    Raises:
        APIError: the arguments of a function cannot be enforced in this form.
    """
    if choice is None and not form.reasoning and not form.content_opening:
        return content
    text = GrammarText(vocabulary)
    options = [] if choice is not None and choice.required else [_content(form, choice, content, text)]
    if choice is not None:
        before = "" if choice.required or content or form.content_opening else _free_text(form, text)
        options.append(f"{before} {_calls(form, choice, text)}")
    answer = any_of(options)
    if form.reasoning:
        opening, closing = form.reasoning
        answer = f"({text.literal(opening)} {text.free_text([closing, opening])} {text.literal(closing)})? {answer}"
    return text.format(answer, "/tools" if choice else content.pointer if content else "")


def _content(form: CallForm, choice: ToolChoice | None, content: OutputFormat | None, text: GrammarText) -> str:
    if content is not None:
        answer = text.insert(content)
    else:
        answer = text.free_text([form.content_closing]) if choice is None else _free_text(form, text)
    closing = f"({text.literal(form.content_closing)})?" if form.content_closing else ""
    return f"{text.literal(form.content_opening)} {answer} {closing}"


def _free_text(form: CallForm, text: GrammarText) -> str:
    return text.free_text([form.trigger, form.content_closing])


def _calls(form: CallForm, choice: ToolChoice, text: GrammarText) -> str:
    call = any_of(_call(form, function, text) for function in choice.functions)
    more = f"({text.literal(form.separator)} {call})*" if form.parallel and choice.parallel else ""
    return f"{text.literal(form.opening)} {call} {more} {text.literal(form.closing)}"


def _call(form: CallForm, function: Function, text: GrammarText) -> str:
    if form.arguments == "tags":
        arguments = tagged_arguments(form, function, text)
    elif function.custom and function.custom.format:
        arguments = json_expression(function.custom.format, text)
    else:
        arguments = text.refer(dict(function.schema), function.pointer)
    around_number = map(text.literal, f"{form.before_name}{function.name}{form.after_name}".split(NUMBER))
    before = " /[0-9]{1,3}/ ".join(around_number)
    call_id = f"({text.literal(ID_BEFORE)} /[a-zA-Z0-9]{{9}}/ {text.literal(ID_AFTER)})?"
    call_id = call_id if form.id_after_arguments else ""
    return f"{before} {arguments} {call_id} {text.literal(form.after_arguments)}"
