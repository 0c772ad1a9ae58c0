"""JSON Schemas of objects whose members are written as parameters between tags.

A member is ``<parameter=key>value</parameter>`` or alike. A value that is a string stands there as it is, any other as
JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from constrain.engine.json_schema import JsonLayout, LaidOutSchema
from constrain.engine.structural_tags.expressions import SPACE, Barriers, Expressions, any_of
from constrain.engine.structural_tags.values import NOTES, Document, FreeText, ListedTexts, ValueForm, members
from constrain.errors import StructuralTagError

#: Types of values other than texts.
_SCALAR = ("number", "integer", "boolean", "null")
_OTHER_TYPES = (*_SCALAR, "object", "array")


@dataclass(frozen=True)
class ParameterStyle:
    """How parameters are written; names of special tokens stand for these tokens.

    Attributes:
        before_key, after_key, before_value, after_value: around the name and the value. Between ``after_key`` and
            ``before_value`` there may be white space if both are given.
        of_texts, of_others: attribute of texts and of other values, between name and value; ``{type}`` is the type.
        nests: whether arrays and objects are written by further tags, which cannot be enforced here.
    """

    before_key: str
    after_key: str
    before_value: str
    after_value: str
    of_texts: str = ""
    of_others: str = ""
    nests: bool = False


def _dsml(space: str) -> ParameterStyle:
    mark = f"｜DSML｜{space}parameter"
    return ParameterStyle(f'<{mark} name="', '"', ">", f"</{mark}>", ' string="true"', ' string="false"')


STYLES: Mapping[str, ParameterStyle] = {
    "qwen_xml": ParameterStyle("<parameter=", ">", "", "</parameter>"),
    "minimax_xml": ParameterStyle('<parameter name="', '">', "", "</parameter>"),
    "deepseek_xml": _dsml(""),
    "deepseek_v4_1_xml": _dsml(" "),
    "glm_xml": ParameterStyle("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    "cohere_xml": ParameterStyle(
        '<cofl:value name="', '"', ">", "</cofl:value>", ' type="raw"', ' type="json"', nests=True
    ),
    "kimi_k3_xml": ParameterStyle(
        '<|open|>argument key="', '"', "<|sep|>", "<|close|>argument<|sep|>", ' type="string"', ' type="{type}"'
    ),
}


def parameters(schema: Any, style: ParameterStyle, expressions: Expressions, at: str, layout: JsonLayout) -> str:
    """Return the expression of the parameters of an object, in the order of the schema.

    Only members that the schema declares can be written; any, if it is ``True`` or empty.

    Args:
        schema: JSON Schema of the object.
        style: how parameters are written.
        expressions: writes expressions.
        at: JSON pointer to the schema.
        layout: how values are written that are JSON.

    Raises:
        StructuralTagError: the schema is not that of an object, or has a keyword that cannot be enforced here.
    """
    writer, parts = _Writer(style, expressions, layout), []
    if schema is True or (isinstance(schema, Mapping) and not set(schema) - NOTES):
        return f"({SPACE} {writer.any_parameter(at)})* {SPACE}"
    for name, forms in members(schema, at).items():
        part = f"{SPACE} {writer.parameter(expressions.literal(name), forms)}"
        parts.append(part if name in (schema.get("required") or []) else f"({part})?")
    return " ".join([*parts, SPACE])


class _Writer:
    def __init__(self, style: ParameterStyle, expressions: Expressions, layout: JsonLayout) -> None:
        self._style = style
        self._expressions = expressions
        self._layout = layout

    def any_parameter(self, at: str) -> str:
        """Return the expression of a parameter with any name, and any value that the style has."""
        end = frozenset({self._style.after_key})
        name = self._expressions.free_text(Barriers(end, end, frozenset('\n"<>')), at, "+")
        others = [kind for kind in _OTHER_TYPES if self._style.of_others and (not self._style.nests or kind in _SCALAR)]
        return self.parameter(name, [FreeText(at), *(Document({"type": kind}, at) for kind in others)])

    def parameter(self, name: str, forms: list[ValueForm]) -> str:
        """Return the expression of a parameter whose name is an expression."""
        style, literal = self._style, self._expressions.literal
        options = ((self._attribute(form), self._value(form)) for form in forms)
        if style.of_texts or not style.before_value:
            values = (f"{attribute} {literal(style.before_value)} {value}" for attribute, value in options)
        else:
            values = (f"{SPACE} {literal(style.before_value)} {value}" for _, value in options)
        key = f"{literal(style.before_key)} {name} {literal(style.after_key)}"
        return f"{key} {any_of(values)} {literal(style.after_value)}"

    def _value(self, form: ValueForm) -> str:
        if isinstance(form, ListedTexts):
            return any_of(map(self._expressions.literal, form.texts))
        if isinstance(form, Document):
            if self._style.nests and not _is_scalar(form.schema):
                raise StructuralTagError("only values without parts can be enforced in this style", form.at)
            document = LaidOutSchema(form.schema, self._layout)
            return f"{SPACE} {self._expressions.refer(document, form.at)} {SPACE}"
        end = frozenset({self._style.after_value})
        return self._expressions.free_text(Barriers(end, end), form.at, form.counts)

    def _attribute(self, form: ValueForm) -> str:
        if not isinstance(form, Document):
            return self._expressions.literal(self._style.of_texts)
        if not self._style.of_others:
            return self._expressions.literal("")
        known = form.schema.get("type") if isinstance(form.schema, Mapping) else None
        names = {"integer": ["number", "integer"]}.get(known, [known]) if isinstance(known, str) else _OTHER_TYPES
        return any_of(self._expressions.literal(self._style.of_others.format(type=name)) for name in names)


def _is_scalar(schema: Any) -> bool:
    """Whether a schema of other values than texts is known to have neither arrays nor objects."""
    values = schema.get("enum") if isinstance(schema, Mapping) else None
    if isinstance(values, list):
        return not any(isinstance(value, (list, dict)) for value in values)
    return isinstance(schema, Mapping) and schema.get("type") in _SCALAR
