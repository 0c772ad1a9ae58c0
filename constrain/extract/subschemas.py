"""The subschemas of a JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

#: Keywords whose value is a schema.
_SCHEMA = frozenset(
    """
    items additionalItems unevaluatedItems contains additionalProperties unevaluatedProperties propertyNames
    if then else not
    """.split()
)
#: Keywords whose value is a list of schemas.
_LIST = frozenset("allOf anyOf oneOf prefixItems items".split())
#: Keywords whose value has schemas by name.
_BY_NAME = frozenset("properties patternProperties dependentSchemas dependencies $defs definitions".split())

_REFERENCES = frozenset("$schema $ref $dynamicRef $recursiveRef".split())

#: Keys and indices that lead to a node.
Path: TypeAlias = "tuple[str | int, ...]"
#: The keyword of a subschema, and its name or index if the keyword has several.
Place: TypeAlias = "tuple[str] | tuple[str, str | int]"


def with_subschemas(schema: Mapping[str, Any], change: Callable[[Place, Mapping[str, Any]], Any]) -> dict[str, Any]:
    """Return a copy of a schema in which ``change(place, subschema)`` replaces each direct subschema.

    Subschemas that are ``true`` or ``false`` are left unchanged.
    """

    def changed(place: Place, child: Any) -> Any:
        return change(place, child) if isinstance(child, Mapping) else child

    result = dict(schema)
    for keyword, value in schema.items():
        if keyword in _LIST and isinstance(value, list):
            result[keyword] = [changed((keyword, index), child) for index, child in enumerate(value)]
        elif keyword in _BY_NAME and isinstance(value, Mapping):
            result[keyword] = {name: changed((keyword, name), child) for name, child in value.items()}
        elif keyword in _SCHEMA:
            result[keyword] = changed((keyword,), value)
    return result


def references(node: Any, path: Path = ()) -> Iterator[tuple[Path, str, str]]:
    """Yield the references of a schema, to its dialect too: path of the node, keyword, URI."""
    children = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    for step, child in children:
        if step in _REFERENCES and isinstance(child, str):
            yield path, str(step), child
        yield from references(child, (*path, step))


def foreign_values(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the values in a schema that are no JSON, with their paths."""
    if isinstance(node, Mapping):
        for name, child in node.items():
            yield from foreign_values(child, (*path, name)) if isinstance(name, str) else [(path, name)]
    elif isinstance(node, (list, tuple)):
        for index, child in enumerate(node):
            yield from foreign_values(child, (*path, index))
    elif node is not None and not isinstance(node, (str, int, float)):
        yield path, node


def steps(reference: str) -> list[str]:
    """Return the steps of a reference within a schema, which is a JSON pointer after ``#``."""
    return [step.replace("~1", "/").replace("~0", "~") for step in unquote(reference[1:]).split("/")[1:]]


def resolved(reference: str, root: Any) -> Any:
    """Return the node that a reference within a schema points to, or ``None`` if there is none."""
    if not reference.startswith("#"):
        return None
    node = root
    for key in steps(reference):
        if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        elif isinstance(node, Mapping) and key in node:
            node = node[key]
        else:
            return None
    return node
