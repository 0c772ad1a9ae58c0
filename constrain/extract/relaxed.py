"""The schema for a part of a document, which may lack what the whole has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from constrain.extract.evidence import EVIDENCE
from constrain.extract.subschemas import resolved

#: Keywords that ask for items.
_MINIMUMS = frozenset({"minItems", "contains", "minContains", "maxContains"})
#: Keywords for alternatives.
_CHOICES = ("anyOf", "oneOf")
#: Keywords that stay where they are when the others become an alternative to null.
_OUTSIDE = frozenset({"title", "description", "$schema", "$id", "id", "$anchor", "$defs", "definitions"})


def relaxed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose values can be null and whose lists can be empty.

    That holds for the root, the required members of objects, their members, and so on; but not for what is inside of
    lists, since an item is there or not, and not for constants.
    """
    return _relaxed(schema, schema, frozenset())


def _relaxed(node: Mapping[str, Any], root: Mapping[str, Any], seen: frozenset[str]) -> dict[str, Any]:
    """Relax a schema; ``seen`` has the references on the way to it."""
    node, seen = _merged(node, root, seen)
    if EVIDENCE in node:
        return _nullable(node)
    if isinstance(node.get("properties"), Mapping):
        return {**node, "properties": _relaxed_members(node, root, seen)}
    if _is_list(node):
        return {key: value for key, value in node.items() if key not in _MINIMUMS}
    for keyword in _CHOICES:
        if isinstance(node.get(keyword), list):
            return _nullable({**node, keyword: _relaxed_choices(node[keyword], root, seen)})
    return _nullable(node)


def _relaxed_members(node: Mapping[str, Any], root: Mapping[str, Any], seen: frozenset[str]) -> dict[str, Any]:
    required = node.get("required", ())
    return {
        name: _relaxed(child, root, seen) if name in required and isinstance(child, Mapping) else child
        for name, child in node["properties"].items()
    }


def _relaxed_choices(choices: Sequence[Any], root: Mapping[str, Any], seen: frozenset[str]) -> list[Any]:
    """Relax the one alternative to null. Several would no longer be told apart by their members."""
    others = [choice for choice in choices if not _allows_null(choice)]
    if len(others) != 1 or not isinstance(others[0], Mapping):
        return list(choices)
    return [_relaxed(choice, root, seen) if choice is others[0] else choice for choice in choices]


def _merged(
    node: Mapping[str, Any], root: Mapping[str, Any], seen: frozenset[str]
) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return a schema together with the one that it refers to."""
    reference = node.get("$ref")
    if not isinstance(reference, str) or reference in seen:
        return node, seen
    target = resolved(reference, root)
    if not isinstance(target, Mapping):
        return node, seen
    rest = {key: value for key, value in node.items() if key != "$ref"}
    return _merged({**target, **rest}, root, seen | {reference})


def _is_list(node: Mapping[str, Any]) -> bool:
    """Whether a schema is that of a list, and not of a tuple, whose items are values of one thing."""
    is_fixed = "minItems" in node and node.get("minItems") == node.get("maxItems")
    return node.get("type") == "array" and "prefixItems" not in node and not is_fixed


def _nullable(node: Mapping[str, Any]) -> dict[str, Any]:
    if "const" in node or _allows_null(node):
        return dict(node)
    outer = {key: value for key, value in node.items() if key in _OUTSIDE}
    inner = {key: value for key, value in node.items() if key not in _OUTSIDE}
    return {**outer, "anyOf": [inner, {"type": "null"}]}


def _allows_null(node: Any) -> bool:
    """Whether null matches a schema, as far as that can be seen."""
    if not isinstance(node, Mapping):
        return node is True
    if "enum" in node:
        return None in node["enum"]
    for keyword in _CHOICES:
        if isinstance(node.get(keyword), list):
            return any(_allows_null(choice) for choice in node[keyword])
    kinds = node.get("type", [])
    return kinds == "null" or "null" in kinds or not node
