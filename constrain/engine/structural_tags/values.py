"""Values that stand between tags: texts as they are, all others as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from constrain.engine.structural_tags import fields
from constrain.errors import StructuralTagError

#: Keywords that do not restrict a value.
NOTES = {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
#: Keywords of the schemas that others refer to.
DEFINITIONS = ("$defs", "definitions")

_OF_OBJECTS = {*NOTES, *DEFINITIONS, "$schema", "type", "properties", "required", "additionalProperties"}
_OF_TEXTS = {*NOTES, "type", "minLength", "maxLength"}
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


@dataclass(frozen=True)
class ListedTexts:
    """One of a few texts, as it is."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class FreeText:
    """Any text, as it is.

    Attributes:
        at: JSON pointer to its schema.
        counts: bounds on its characters, as a regular expression writes them; empty for none.
    """

    at: str
    counts: str = ""


@dataclass(frozen=True)
class Document:
    """A value that is written as JSON.

    Attributes:
        schema: what it is valid under, with the definitions that it refers to.
        at: JSON pointer to the schema.
    """

    schema: Any
    at: str


ValueForm = ListedTexts | FreeText | Document


def members(schema: Any, at: str) -> Mapping[str, list[ValueForm]]:
    """Return how each member of an object may be written, in the order of the schema.

    Args:
        schema: JSON Schema of the object.
        at: JSON pointer to it.

    Raises:
        StructuralTagError: the schema is not that of an object, or has a keyword that cannot be enforced here.
    """
    checked = _checked(schema, at)
    forms = _Forms({name: checked[name] for name in DEFINITIONS if name in checked})
    found = {}
    for name, member in checked.get("properties", {}).items():
        place = f"{at}/properties/{name.replace('~', '~0').replace('/', '~1')}"
        found[name] = list(forms.of(member, place))
        if not found[name]:
            raise StructuralTagError("no value is valid", place)
    return found


class _Forms:
    """Divides schemas into texts and other values."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def of(self, schema: Any, at: str) -> Iterator[ValueForm]:
        for option, place in self._alternatives(schema, at, frozenset()):
            if isinstance(option, tuple):
                yield ListedTexts(option)
            elif isinstance(option, Mapping) and option.get("type") == "string":
                yield FreeText(place, _counts(option, place))
            else:
                yield Document({**option, **self._definitions} if isinstance(option, Mapping) else option, place)

    def _alternatives(self, schema: Any, at: str, within: frozenset[str]) -> Iterator[tuple[Any, str]]:
        """Yield schemas, with their pointers, of which a value is valid under at least one; tuples are listed texts.

        ``within`` are the references that have been followed.
        """
        target = self._target(schema)
        if target and target not in within:
            yield from self._alternatives(self._definition(target), at, within | {target})
        elif schema is True or (isinstance(schema, Mapping) and not set(schema) - NOTES):
            yield {"type": "string"}, at
        elif not isinstance(schema, Mapping):
            yield schema, at
        elif set(schema) - NOTES == {"anyOf"} and isinstance(schema["anyOf"], list):
            for number, option in enumerate(schema["anyOf"]):
                yield from self._alternatives(option, f"{at}/anyOf/{number}", within)
        elif isinstance(values := schema.get("enum", [schema["const"]] if "const" in schema else None), list):
            yield from _of_values(schema, values, at)
        elif isinstance(schema.get("type"), list):
            for kind in schema["type"]:
                yield {**_without_lengths(schema, kind), "type": kind}, at
        else:
            yield schema, at

    def _target(self, schema: Any) -> str | None:
        """Return the reference that a schema is, if it is one to a definition of the object."""
        if not isinstance(schema, Mapping) or set(schema) - NOTES != {"$ref"}:
            return None
        found = re.fullmatch(r"#/(\$defs|definitions)/([^/~%]+)", str(schema["$ref"]))
        return found[0] if found and found[2] in self._definitions.get(found[1], {}) else None

    def _definition(self, target: str) -> Any:
        _, keyword, name = target.split("/")
        return self._definitions[keyword][name]


def _checked(schema: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise StructuralTagError("parameters between tags need the schema of an object", at)
    if unknown := sorted(set(schema) - _OF_OBJECTS):
        raise StructuralTagError("cannot be enforced for parameters between tags", f"{at}/{unknown[0]}")
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping) and others:  # an empty schema is true
        raise StructuralTagError("only declared parameters can be written between tags", f"{at}/additionalProperties")
    for name in ("properties", *DEFINITIONS):
        if not isinstance(schema.get(name, {}), Mapping):
            raise StructuralTagError("must be an object", f"{at}/{name}")
    required = fields.items(schema, "required", at)
    if not all(isinstance(name, str) for name in required):
        raise StructuralTagError("must be a list of names", f"{at}/required")
    if missing := [name for name in required if name not in schema.get("properties", {})]:
        raise StructuralTagError(f"{missing[0]!r} is required, but not one of the properties", f"{at}/required")
    return schema


def _of_values(schema: Mapping[str, Any], values: list[Any], at: str) -> Iterator[tuple[Any, str]]:
    allowed = schema.get("type", list(_TYPES))
    texts = tuple(value for value in values if isinstance(value, str))
    if texts and "string" in ([allowed] if isinstance(allowed, str) else allowed):
        yield texts, at
    if others := [value for value in values if not isinstance(value, str)]:
        kept = {name: schema[name] for name in ("type",) if name in schema}
        yield {**kept, "enum": others}, at


def _without_lengths(schema: Mapping[str, Any], kind: Any) -> Mapping[str, Any]:
    lengths = set() if kind == "string" else {"minLength", "maxLength"}
    return {name: value for name, value in schema.items() if name not in lengths}


def _counts(schema: Mapping[str, Any], at: str) -> str:
    """Return the bounds on the characters of a text."""
    if unknown := sorted(set(schema) - _OF_TEXTS):
        reason = "texts stand between tags as they are, where this keyword cannot be enforced"
        raise StructuralTagError(reason, f"{at}/{unknown[0]}")
    low = fields.count(schema, "minLength", at) if "minLength" in schema else 0
    high = fields.count(schema, "maxLength", at, low) if "maxLength" in schema else ""
    return f"{{{low},{high}}}" if low or high != "" else ""
