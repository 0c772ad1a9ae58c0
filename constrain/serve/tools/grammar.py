"""The grammar of an answer: text of any or a given form, and calls of functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrain.engine import Vocabulary
from constrain.serve.errors import APIError, pointer
from constrain.serve.formats import GrammarText, OutputFormat, alternatives, any_of, free_text_pattern
from constrain.serve.tools.choice import Function, ToolChoice
from constrain.serve.tools.forms import CONSTANTS, ID_AFTER, ID_BEFORE, NUMBER, CallForm

#: Keywords of a string schema that do not restrict it.
_NOTES = {"type", "title", "description", "default", "examples", "$comment", "deprecated"}


def answer_format(
    form: CallForm, choice: ToolChoice | None, content: OutputFormat | None, vocabulary: Vocabulary
) -> OutputFormat | None:
    """Return the format of a whole answer; ``None`` for any text.

    Without ``choice`` an answer has the format ``content``. With it, it is either that or calls; without ``content``,
    free text may come before calls.

    Args:
        form: how the model writes calls.
        choice: the functions that it may call.
        content: format of an answer that is no call; ``None``: any text.
        vocabulary: of the model.

    Raises:
        APIError: the arguments of a function cannot be enforced in this form.
    """
    if choice is None and not form.reasoning:
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
        answer = text.free_text() if choice is None else _free_text(form, text)
    return f"{text.literal(form.content_opening)} {answer}"


def _free_text(form: CallForm, text: GrammarText) -> str:
    return text.free_text([form.trigger])


def _calls(form: CallForm, choice: ToolChoice, text: GrammarText) -> str:
    call = any_of(_call(form, function, text) for function in choice.functions)
    more = f"({text.literal(form.separator)} {call})*" if form.parallel and choice.parallel else ""
    return f"{text.literal(form.opening)} {call} {more} {text.literal(form.closing)}"


def _call(form: CallForm, function: Function, text: GrammarText) -> str:
    if form.arguments == "json":
        arguments = text.refer(dict(function.schema), function.pointer)
    else:
        arguments = _tagged(form, function, text)
    around_number = map(text.literal, f"{form.before_name}{function.name}{form.after_name}".split(NUMBER))
    before = " /[0-9]{1,3}/ ".join(around_number)
    call_id = f"({text.literal(ID_BEFORE)} /[a-zA-Z0-9]{{9}}/ {text.literal(ID_AFTER)})?"
    call_id = call_id if form.id_after_arguments else ""
    return f"{before} {arguments} {call_id} {text.literal(form.after_arguments)}"


def _tagged(form: CallForm, function: Function, text: GrammarText) -> str:
    """Return the expression of arguments as pairs of tags, in the order of the schema."""
    properties, required = _properties(function)
    before_key, after_key, before_value, after_value = form.tags
    parts = []
    for name, schema in properties.items():
        at = function.pointer + pointer("properties", name)
        key = text.literal(before_key + name + after_key + before_value)
        value = any_of([_value(schema, at, function, after_value, text), *_constants(form, schema)])
        pair = f"{key} {value} {text.literal(after_value)}"
        parts.append(pair if name in required else f"({pair})?")
    return " ".join(parts)


def _properties(function: Function) -> tuple[Mapping[str, Any], list[str]]:
    schema = function.schema
    unknown = set(schema) - _NOTES - {"properties", "required", "additionalProperties", "$defs", "definitions"}
    if unknown:
        at = function.pointer + pointer(min(unknown))
        raise APIError(f"{at}: this model writes arguments between tags, for which the keyword cannot be enforced",
                       param=at, code="schema_not_enforceable")  # fmt: skip
    return schema.get("properties", {}), schema.get("required", [])


def _value(schema: Any, at: str, function: Function, end: str, text: GrammarText) -> str:
    """Return the expression of a value: texts stand as they are, all others as JSON."""
    if not is_text(schema):
        definitions = {name: function.schema[name] for name in ("$defs", "definitions") if name in function.schema}
        return text.refer({**schema, **definitions} if isinstance(schema, dict) else schema, at)
    if "enum" in schema:
        return text.refer(alternatives(schema["enum"]))
    unknown = set(schema) - _NOTES
    if unknown:
        at += pointer(min(unknown))
        raise APIError(f"{at}: this model writes texts between tags, for which the keyword cannot be enforced",
                       param=at, code="schema_not_enforceable")  # fmt: skip
    return f"/{free_text_pattern([end.strip()])}/?".replace("</", r"<\/")


def _constants(form: CallForm, schema: Any) -> list[str]:
    """Return the expressions of Python's constants that stand for values of a schema."""
    if not form.python_constants or not isinstance(schema, Mapping) or {"enum", "const"} & set(schema):
        return []
    kinds = schema.get("type", [])
    names = {"boolean": ("true", "false"), "null": ("null",)}
    listed = [kinds] if isinstance(kinds, str) else kinds
    return [f'"{CONSTANTS[name]}"' for kind in listed for name in names.get(kind, ())]


def is_text(schema: Any) -> bool:
    """Return whether all values of a schema are strings, which stand between tags as they are."""
    if not isinstance(schema, Mapping):
        return False
    options = schema.get("enum")
    return schema.get("type") == "string" or (
        "type" not in schema and isinstance(options, list) and all(isinstance(each, str) for each in options)
    )
