"""Corrections of merged records that do not match their schema."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import Any

from constrain.extract.annotated import Node, Path, json_key
from constrain.extract.target import Target


def with_allowed_lists(record: Node, target: Target[Any]) -> Node:
    """Return a record whose lists have no more items than the schema allows, and no equal ones where it forbids them.

    Items at the end of a list that is too long become its ``conflicts``.
    """
    for path in dict.fromkeys(target.violations(record.json)):
        node = record.at(path)
        if node is not None and isinstance(node.value, list):
            record = record.with_node(path, _allowed_list(record, path, node, target))
    return record


def _allowed_list(record: Node, path: Path, node: Node, target: Target[Any]) -> Node:
    items = list({json_key(item.json): item for item in reversed(node.value)}.values())[::-1]

    def is_refused(length: int) -> bool:
        shorter = record.with_node(path, replace(node, value=items[:length]))
        return path in target.violations(shorter.json)

    length = bisect_right(range(1, len(items) + 1), False, key=is_refused)
    if not length:  # the list is refused for another reason
        return node
    return replace(node, value=items[:length], conflicts=tuple(item.json for item in items[length:]))


def with_allowed_values(record: Node, strict: Node, target: Target[Any]) -> Node:
    """Return a record that matches the schema, with values of another that does so where it does not.

    Args:
        record: the record.
        strict: a record that matches the schema.
        target: the schema.
    """
    for path in target.violations(record.json):
        while (node := strict.at(path)) is None or record.at(path) is None:
            path = path[:-1]
        record = record.with_node(path, node)
    return strict if target.violations(record.json) else record
