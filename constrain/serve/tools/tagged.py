"""Arguments that stand between tags: their grammar, and how they are read.

Texts stand there as they are, all other values as JSON. Where an argument may be either, a text that is the JSON of one
of the other values stands for that value, so that ``null`` is no text where an argument may be a text or ``null``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema_rs

from constrain.engine.structural_tags.values import Document, FreeText, ListedTexts, ValueForm, members
from constrain.errors import StructuralTagError
from constrain.serve.errors import in_grammar
from constrain.serve.formats import GrammarText, alternatives, any_of
from constrain.serve.tools.choice import Function
from constrain.serve.tools.forms import CONSTANTS, CallForm


def tagged_arguments(form: CallForm, function: Function, text: GrammarText) -> str:
    """Return the expression of the arguments of a function, in the order of its schema.

    Raises:
        APIError: the schema cannot be enforced between tags.
    """
    try:
        found = members(function.schema, "")
    except StructuralTagError as error:
        raise in_grammar(error, function.pointer) from error
    before_key, after_key, before_value, after_value = form.tags
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


def read_arguments(form: CallForm, function: Function, text: str) -> dict[str, Any]:
    """Return the arguments that stand in the text of a call."""
    before_key, after_key, before_value, after_value = map(re.escape, form.tags)
    pair = re.compile(f"{before_key}(.*?){after_key}{before_value}(.*?){after_value}", re.DOTALL)
    found = members(function.schema, "")
    return {key: _read(value, found[key]) for key, value in pair.findall(text)}


def _read(text: str, ways: Sequence[ValueForm]) -> Any:
    if any(isinstance(way, ListedTexts) and text in way.texts for way in ways):
        return text
    value = _of_json(text)
    if any(isinstance(way, Document) and jsonschema_rs.is_valid(way.schema, value) for way in ways):
        return value
    return text


def _of_json(text: str) -> Any:
    """Return the value of JSON or of a constant of Python; if it is neither, the text."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    try:
        return json.loads(text)
    except ValueError:
        return text
