"""Arguments that stand between tags: their grammar, and how they are read.

Texts stand there as they are, all other values as JSON. Where an argument may be either, a text that is the JSON of one
of the other values stands for that value, so that ``null`` is no text where an argument may be a text or ``null``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import jsonschema_rs

from constrain.engine.structural_tags.values import Document, FreeText, ListedTexts, ValueForm, members
from constrain.errors import StructuralTagError
from constrain.serve.errors import in_grammar
from constrain.serve.formats import GrammarText, alternatives, any_of
from constrain.serve.tools.choice import Function
from constrain.serve.tools.custom import INPUT, CustomText
from constrain.serve.tools.forms import CONSTANTS, CallForm


def tagged_arguments(form: CallForm, function: Function, text: GrammarText) -> str:
    """Return the expression of the arguments of a function, in the order of its schema.

    Raises:
        APIError: the schema cannot be enforced between tags.
    """
    before_key, after_key, before_value, after_value = form.tags
    if function.custom and function.custom.format:
        key = text.literal(before_key + INPUT + after_key + before_value)
        return f"{key} {text.insert(function.custom.format)} {text.literal(after_value)}"
    try:
        found = members(function.schema, "")
    except StructuralTagError as error:
        raise in_grammar(error, function.pointer) from error
    parts = []
    for name, ways in found.items():
        key = text.literal(before_key + name + after_key + before_value)
        value = any_of(each for way in ways for each in _written(way, form, function, text))
        pair = f"{key} {value} {text.literal(after_value)}"
        parts.append(pair if name in function.schema.get("required", []) else f"({pair})?")
    return " ".join(parts)


def _written(way: ValueForm, form: CallForm, function: Function, text: GrammarText) -> list[str]:
    if isinstance(way, ListedTexts):
        return [text.refer(alternatives(way.texts))]
    if isinstance(way, FreeText):
        end = form.tags[3].strip()
        return [text.free_text([end], way.counts)]
    document = text.refer(way.schema, function.pointer + way.at)
    return [document, *(f'"{name}"' for name in _constants(form, way.schema))]


def _constants(form: CallForm, schema: Any) -> list[str]:
    """Return the constants of Python that stand for values of a schema, which has one type or a list of values."""
    if not form.python_constants or not isinstance(schema, Mapping):
        return []
    values = schema.get("enum")
    if not isinstance(values, list):
        kind = schema.get("type")
        values = [True, False] if kind == "boolean" else [None] if kind == "null" else []
    return [name for name, constant in CONSTANTS.items() if any(constant is value for value in values)]


def read_arguments(form: CallForm, function: Function, text: str) -> tuple[str, int] | None:
    """Read the arguments of a call.

    Args:
        form: how the model writes calls.
        function: what is called.
        text: all that comes after its name so far.

    Returns:
        The arguments as JSON, and where in the text they end; ``None`` as long as they do not.
    """
    before_key, after_key, before_value, after_value = form.tags
    found = members(function.schema, "")
    openings = {before_key + name + after_key + before_value: name for name in found}
    place, pairs = 0, list[str]()
    while not text.startswith(form.after_arguments, place):
        opening = max((each for each in openings if text.startswith(each, place)), key=len, default=None)
        if opening is None:
            return None
        name, start = openings[opening], place + len(opening)
        if function.custom and function.custom.format:
            read = _custom_text(form, function.custom, text, start)
        else:
            read = _value(form, found[name], text, start)
        if read is None:
            return None
        value, end = read
        pairs.append(f"{json.dumps(name, ensure_ascii=False)}: {value}")
        place = end + len(after_value)
    return "{" + ", ".join(pairs) + "}", place


def _custom_text(form: CallForm, custom: CustomText, text: str, start: int) -> tuple[str, int] | None:
    """Return the text of a custom tool as JSON, and where it ends: it may contain what follows it, too."""
    after = re.escape(form.tags[3] + form.after_arguments)
    ends = (match.start() for match in re.finditer(after, text[start:]))
    end = next((start + each for each in ends if custom.accepts(text[start : start + each])), None)
    return None if end is None else (json.dumps(text[start:end], ensure_ascii=False), end)


def _value(form: CallForm, ways: Sequence[ValueForm], text: str, start: int) -> tuple[str, int] | None:
    """Return a value as JSON, and where it ends; ``None`` if it does not, as far as is known.

    What could be a document is one, so that its texts may contain the tag that ends values.
    """
    after = form.tags[3]
    for listed in (each for way in ways if isinstance(way, ListedTexts) for each in way.texts):
        if text.startswith(listed + after, start):
            return json.dumps(listed, ensure_ascii=False), start + len(listed)
    documents = [way.schema for way in ways if isinstance(way, Document)]
    document = _document(documents, text, start)
    if document and text.startswith(after, document[1]):
        return document
    end = text.find(after, start)
    if end < 0:
        return None
    written = text[start:end]
    if form.python_constants and written in CONSTANTS and _is_any(documents, CONSTANTS[written]):
        return json.dumps(CONSTANTS[written]), end
    is_text = any(isinstance(way, FreeText) for way in ways)
    return (json.dumps(written, ensure_ascii=False), end) if is_text else None


def _document(schemas: Sequence[Any], text: str, start: int) -> tuple[str, int] | None:
    """Return the JSON of a value that is valid under one of some schemas, and where it ends."""
    if not schemas:
        return None
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return (text[start:end], end) if _is_any(schemas, value) else None


def _is_any(schemas: Sequence[Any], value: Any) -> bool:
    return any(jsonschema_rs.is_valid(schema, value) for schema in schemas)


def _refuse(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=Decimal)
