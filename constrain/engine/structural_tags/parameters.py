"""JSON Schemas of objects whose members are written as parameters between tags.

A member is ``<parameter=key>value</parameter>`` or alike. A value that is a string stands there as it is, any other as
JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from constrain.engine.structural_tags import fields
from constrain.engine.structural_tags.expressions import SPACE, Barriers, Expressions, any_of
from constrain.errors import StructuralTagError

#: Keywords that do not restrict a value.
_NOTES = {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
_DEFINITIONS = ("$defs", "definitions")
_OF_OBJECTS = {*_NOTES, *_DEFINITIONS, "$schema", "type", "properties", "required", "additionalProperties"}
_OF_TEXTS = {*_NOTES, "type", "minLength", "maxLength"}
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


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


def parameters(schema: Any, style: ParameterStyle, expressions: Expressions, at: str) -> str:
    """Return the expression of the parameters of an object, in the order of the schema.

    Only members that the schema declares can be written.

    Args:
        schema: JSON Schema of the object.
        style: how parameters are written.
        expressions: writes expressions.
        at: JSON pointer to the schema.

    Raises:
        StructuralTagError: the schema is not that of an object, or has a keyword that cannot be enforced here.
    """
    return _Parameters(_checked(schema, at), style, expressions, at).written()


class _Parameters:
    def __init__(self, schema: Mapping[str, Any], style: ParameterStyle, expressions: Expressions, at: str) -> None:
        self._schema = schema
        self._style = style
        self._expressions = expressions
        self._at = at
        self._definitions = {name: schema[name] for name in _DEFINITIONS if name in schema}

    def written(self) -> str:
        required = self._schema.get("required", [])
        parts = []
        for name, schema in self._schema.get("properties", {}).items():
            part = f"{SPACE} {self._parameter(name, schema)}"
            parts.append(part if name in required else f"({part})?")
        return " ".join([*parts, SPACE])

    def _parameter(self, name: str, schema: Any) -> str:
        style, literal = self._style, self._expressions.literal
        at = f"{self._at}/properties/{name.replace('~', '~0').replace('/', '~1')}"
        options = list(self._options(schema, at))
        if not options:
            raise StructuralTagError("no value is valid", at)
        if style.of_texts or not style.before_value:
            values = (f"{attribute} {literal(style.before_value)} {value}" for attribute, value in options)
        else:
            values = (f"{SPACE} {literal(style.before_value)} {value}" for _, value in options)
        return f"{literal(style.before_key + name + style.after_key)} {any_of(values)} {literal(style.after_value)}"

    def _options(self, schema: Any, at: str) -> Iterator[tuple[str, str]]:
        """Yield the ways to write a value: the expressions of its attribute and of the value."""
        for option, place in _alternatives(self._resolved(schema), at):
            option = self._resolved(option)
            if (texts := _texts(option)) is not None:
                if texts:
                    yield self._attribute("string"), any_of(map(self._expressions.literal, texts))
            elif isinstance(option, Mapping) and option.get("type") == "string":
                yield self._attribute("string"), self._text(option, place)
            elif self._style.nests and not _is_scalar(option):
                raise StructuralTagError("only values without parts can be enforced in this style", place)
            else:
                schema = {**option, **self._definitions} if isinstance(option, Mapping) else option
                yield self._attribute(option), f"{SPACE} {self._expressions.refer(schema, place)} {SPACE}"

    def _text(self, schema: Mapping[str, Any], at: str) -> str:
        if unknown := sorted(set(schema) - _OF_TEXTS):
            reason = "texts stand between tags as they are, where this keyword cannot be enforced"
            raise StructuralTagError(reason, f"{at}/{unknown[0]}")
        end = self._style.after_value
        low = fields.count(schema, "minLength", at) if "minLength" in schema else 0
        high = fields.count(schema, "maxLength", at, low) if "maxLength" in schema else ""
        counts = f"{{{low},{high}}}" if low or high != "" else ""
        return self._expressions.free_text(Barriers(frozenset({end}), frozenset({end})), at, counts)

    def _attribute(self, kind: Any) -> str:
        if kind == "string" or not self._style.of_others:
            return self._expressions.literal(self._style.of_texts if kind == "string" else "")
        known = kind.get("type") if isinstance(kind, Mapping) else None
        names = {"integer": ["number", "integer"]}.get(known, [known]) if isinstance(known, str) else _TYPES[1:]
        return any_of(self._expressions.literal(self._style.of_others.format(type=name)) for name in names)

    def _resolved(self, schema: Any) -> Any:
        """Return the definition that a schema refers to, if it is one of the object's, else the schema."""
        for _ in range(len(self._definitions) + sum(map(len, self._definitions.values()))):
            if not isinstance(schema, Mapping) or set(schema) - _NOTES != {"$ref"}:
                break
            found = re.fullmatch(r"#/(\$defs|definitions)/([^/~%]+)", str(schema["$ref"]))
            if not found or found[2] not in self._definitions.get(found[1], {}):
                break
            schema = self._definitions[found[1]][found[2]]
        return schema


def _checked(schema: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise StructuralTagError("parameters between tags need the schema of an object", at)
    if unknown := sorted(set(schema) - _OF_OBJECTS):
        raise StructuralTagError("cannot be enforced for parameters between tags", f"{at}/{unknown[0]}")
    if isinstance(schema.get("additionalProperties"), Mapping):
        raise StructuralTagError("only declared parameters can be written between tags", f"{at}/additionalProperties")
    for name in ("properties", *_DEFINITIONS):
        if not isinstance(schema.get(name, {}), Mapping):
            raise StructuralTagError("must be an object", f"{at}/{name}")
    if not all(isinstance(name, str) for name in fields.items(schema, "required", at)):
        raise StructuralTagError("must be a list of names", f"{at}/required")
    if missing := [name for name in schema.get("required", []) if name not in schema.get("properties", {})]:
        raise StructuralTagError(f"{missing[0]!r} is required, but not one of the properties", f"{at}/required")
    return schema


def _alternatives(schema: Any, at: str) -> Iterator[tuple[Any, str]]:
    """Yield schemas, with their pointers, of which a value is valid under at least one, with texts apart."""
    if schema is True or schema == {}:
        yield {"type": "string"}, at
    elif not isinstance(schema, Mapping):
        yield schema, at
    elif not (rest := set(schema) - _NOTES) - {"anyOf"} and rest and isinstance(schema["anyOf"], list):
        for number, option in enumerate(schema["anyOf"]):
            yield from _alternatives(option, f"{at}/anyOf/{number}")
    elif isinstance(values := schema.get("enum", [schema["const"]] if "const" in schema else None), list):
        yield from _of_values(schema, values, at)
    elif isinstance(schema.get("type"), list):
        for kind in schema["type"]:
            yield {**_without_lengths(schema, kind), "type": kind}, at
    else:
        yield schema, at


def _of_values(schema: Mapping[str, Any], values: list[Any], at: str) -> Iterator[tuple[Any, str]]:
    allowed = schema.get("type", list(_TYPES))
    if "string" in ([allowed] if isinstance(allowed, str) else allowed):
        yield {"enum": [value for value in values if isinstance(value, str)]}, at
    if others := [value for value in values if not isinstance(value, str)]:
        kept = {name: schema[name] for name in ("type",) if name in schema}
        yield {**kept, "enum": others}, at


def _is_scalar(schema: Any) -> bool:
    """Whether a schema of other values than texts is known to have neither arrays nor objects."""
    values = schema.get("enum") if isinstance(schema, Mapping) else None
    if isinstance(values, list):
        return not any(isinstance(value, (list, dict)) for value in values)
    return isinstance(schema, Mapping) and schema.get("type") in ("number", "integer", "boolean", "null")


def _without_lengths(schema: Mapping[str, Any], kind: Any) -> Mapping[str, Any]:
    lengths = set() if kind == "string" else {"minLength", "maxLength"}
    return {name: value for name, value in schema.items() if name not in lengths}


def _texts(schema: Any) -> list[str] | None:
    """Return the texts of an enumeration of texts; ``None`` for any other schema."""
    values = schema.get("enum") if isinstance(schema, Mapping) and set(schema) == {"enum"} else None
    return values if isinstance(values, list) and all(isinstance(each, str) for each in values) else None
