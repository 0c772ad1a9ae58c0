"""Evidence: a value that the model writes after a quote from the document.

``"x-evidence": true`` in a schema asks for evidence of the value. With it, the model writes for a date
``{"quote": "March 3rd, 2026", "value": "2026-03-03"}``, and the record has ``"2026-03-03"``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from constrain.engine.pointers import pointer
from constrain.errors import SchemaError
from constrain.extract.subschemas import Place, with_subschemas

#: The name by which ``x-verbatim`` refers to the document.
SOURCE = "text"
EVIDENCE, VERBATIM = "x-evidence", "x-verbatim"
QUOTE, VALUE = "quote", "value"

#: Maximum number of characters of a quote that is evidence: a sentence.
MAX_EVIDENCE = 200

#: Keywords whose subschemas describe the same value as the schema that they stand in.
_SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
#: Keywords by which other schemas refer to a schema and its definitions.
_IDENTITY = frozenset({"$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$defs", "definitions"})

#: A step of a path into a record.
Path: TypeAlias = "tuple[str | int, ...]"


@dataclass(frozen=True)
class Quotation:
    """A quote in a record.

    Attributes:
        path: the path of the value that it is, or is evidence of.
        text: the quote.
        whole_words: whether it begins and ends at borders of words.
    """

    path: Path
    text: str
    whole_words: bool


def quote_schema(max_length: int, whole_words: bool) -> dict[str, Any]:
    """Return the schema of quotes from the document."""
    source = {"source": SOURCE, "whole_words": True} if whole_words else {"source": SOURCE}
    return {"type": "string", "minLength": 1, "maxLength": max_length, VERBATIM: source}


def with_quotes(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of what the model writes: each value with evidence is an object of quote and value.

    Raises:
        SchemaError: ``uniqueItems`` is asked of items with evidence, which cannot be enforced, or evidence by another
            value than true or false.
    """
    return _with_quotes(schema, frozenset(), ())


def without_verbatim(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema in which quotes may be any strings."""
    rest = {key: value for key, value in schema.items() if key != VERBATIM}
    return with_subschemas(rest, lambda place, child: without_verbatim(child))


def _with_quotes(schema: Mapping[str, Any], inherited: frozenset[str], path: Path) -> dict[str, Any]:
    """``inherited`` has the properties with evidence that an outer schema of the same object declares."""
    declared = frozenset(_declared(schema))
    evident = inherited | declared

    def change(place: Place, child: Mapping[str, Any]) -> dict[str, Any]:
        keyword, *name = place
        changed = _with_quotes(child, evident if keyword in _SAME_VALUE else frozenset(), (*path, *place))
        # A condition on a value that another schema declares with evidence is a condition on the value of the pair.
        is_condition = keyword == "properties" and name[0] in evident - declared
        return {"properties": {VALUE: changed}} if is_condition else changed

    if not isinstance(asked := schema.get(EVIDENCE, False), bool):
        raise SchemaError(f"must be true or false, not {asked!r}", pointer(path), EVIDENCE)
    items = schema.get("items")
    if schema.get("uniqueItems") is True and isinstance(items, Mapping) and items.get(EVIDENCE) is True:
        raise SchemaError("items with evidence cannot be kept unique", pointer(path), "uniqueItems")
    changed = with_subschemas(_with_exclusive_branches(schema), change)
    return _pair(changed) if schema.get(EVIDENCE) is True else changed


def _with_exclusive_branches(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema whose ``oneOf`` branches exclude each other's values, if one of them has evidence.

    A record that matches two branches matches no ``oneOf``, but a pair of quote and value differs from a value: without
    this, the model could write either. References keep their targets, and are not excluded.
    """
    branches = schema.get("oneOf")
    if not isinstance(branches, list) or not any(map(_has_evidence, branches)):
        return schema
    plain = [_without_evidence(branch) for branch in branches]

    def exclusive(index: int, branch: Any) -> Any:
        others = [each for other, each in enumerate(plain) if other != index and not _is_reference(each)]
        if not isinstance(branch, Mapping) or _is_reference(branch) or not others:
            return branch
        excluded = [branch["not"], *others] if "not" in branch else others
        return {**branch, "not": {"anyOf": excluded}}

    return {**schema, "oneOf": [exclusive(index, branch) for index, branch in enumerate(branches)]}


def _is_reference(schema: Any) -> bool:
    return isinstance(schema, Mapping) and not schema.keys().isdisjoint(("$ref", "$dynamicRef"))


def _has_evidence(schema: Any) -> bool:
    """Return whether a value or its properties, at any depth, have evidence."""
    return isinstance(schema, Mapping) and _without_evidence(schema) != schema


def _without_evidence(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    rest = {key: value for key, value in schema.items() if key != EVIDENCE}
    return with_subschemas(rest, lambda place, child: _without_evidence(child))


def _declared(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the properties that a schema declares with evidence."""
    properties = schema.get("properties")
    for name, child in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(child, Mapping) and child.get(EVIDENCE) is True:
            yield name


def _pair(value: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a quote and a value."""
    identity = {key: value[key] for key in value if key in _IDENTITY}
    rest = {key: value[key] for key in value if key not in _IDENTITY and key != EVIDENCE}
    return {
        **identity,
        "type": "object",
        "properties": {QUOTE: quote_schema(MAX_EVIDENCE, whole_words=True), VALUE: rest},
        "required": [QUOTE, VALUE],
        "additionalProperties": False,
        EVIDENCE: True,
    }


#: The annotations of the values of a record, by JSON pointer.
Notes: TypeAlias = Mapping[str, Mapping[str, Any]]


def without_quotes(written: Any, notes: Notes) -> tuple[Any, list[Quotation]]:
    """Return the record in what the model wrote, and its quotes, in the order of the record.

    Args:
        written: what the model wrote, as parsed JSON, or a part of it. A quote without its value is left out.
        notes: the annotations that :func:`with_quotes` of the schema gives to the values of what the model wrote.
    """
    unpacker = _Unpacker(notes)
    record = unpacker.unpacked(written, "", ())
    return (None if record is _UNKNOWN else record), unpacker.quotations


#: In place of a value of which so far only the quote is written.
_UNKNOWN: Any = object()


class _Unpacker:
    """Takes pairs of quote and value apart.

    ``source`` is the JSON pointer of a value in what the model wrote, and ``path`` leads to it in the record.
    """

    def __init__(self, notes: Notes) -> None:
        self.quotations: list[Quotation] = []
        self._notes = notes

    def unpacked(self, node: Any, source: str, path: Path) -> Any:
        if isinstance(node, dict):
            if EVIDENCE in self._notes.get(source, ()):
                return self._value(node, source, path)
            children = {
                name: self.unpacked(child, source + pointer([name]), (*path, name)) for name, child in node.items()
            }
            return {name: child for name, child in children.items() if child is not _UNKNOWN}
        if isinstance(node, list):
            items = (self.unpacked(item, f"{source}/{index}", (*path, index)) for index, item in enumerate(node))
            return [item for item in items if item is not _UNKNOWN]
        self._collect(node, source, path)
        return node

    def _value(self, pair: dict[str, Any], source: str, path: Path) -> Any:
        if VALUE not in pair:
            return _UNKNOWN
        self._collect(pair[QUOTE], f"{source}/{QUOTE}", path)
        return self.unpacked(pair[VALUE], f"{source}/{VALUE}", path)

    def _collect(self, text: Any, source: str, path: Path) -> None:
        verbatim = self._notes.get(source, {}).get(VERBATIM)
        if isinstance(text, str) and verbatim:
            self.quotations.append(Quotation(path, text, verbatim.get("whole_words", False)))
