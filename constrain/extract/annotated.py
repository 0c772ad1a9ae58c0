"""Records as trees whose values carry what is known about them, so that values can be moved together with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from constrain.engine.pointers import pointer
from constrain.extract.extraction import Confidence, Extraction, Span

Path: TypeAlias = "tuple[str | int, ...]"


@dataclass(frozen=True)
class Node:
    """A value of a record.

    Attributes:
        value: a scalar, or nodes by name or in a list.
        chunk: number of the last chunk in which it was found, from 0.
        span, occurrences, confidence: as those of an :class:`~constrain.extract.Extraction`.
        conflicts: other values that it has in other chunks, as JSON.
    """

    value: Any
    chunk: int = 0
    span: Span | None = None
    occurrences: tuple[Span, ...] = ()
    confidence: Confidence | None = None
    conflicts: tuple[Any, ...] = ()

    @property
    def json(self) -> Any:
        """The value as parsed JSON."""
        if isinstance(self.value, dict):
            return {name: child.json for name, child in self.value.items()}
        return [child.json for child in self.value] if isinstance(self.value, list) else self.value

    @cached_property
    def completeness(self) -> tuple[int, int]:
        """The number of its values that are not null, and of the characters of its texts."""
        values = [node.value for _, node in self.walk() if isinstance(node.value, (str, int, float))]
        return len(values), sum(len(value) for value in values if isinstance(value, str))

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, Node]]:
        """Yield this node and those below it, with their paths."""
        yield path, self
        for step, child in _children(self).items():
            yield from child.walk((*path, step))

    def at(self, path: Path) -> Node | None:
        """Return the node at a path, or ``None`` if there is none."""
        node: Node | None = self
        for step in path:
            node = _children(node).get(step) if node is not None else None
        return node

    def with_node(self, path: Path, node: Node) -> Node:
        """Return a copy with another node at a path."""
        if not path:
            return node
        step, rest = path[0], path[1:]
        children = self.value.copy()
        children[step] = children[step].with_node(rest, node)
        return replace(self, value=children)


def _children(node: Node) -> dict[Any, Node]:
    """Return the nodes below a node, by name or index."""
    if isinstance(node.value, list):
        return dict(enumerate(node.value))
    return node.value if isinstance(node.value, dict) else {}


def json_key(value: Any) -> str:
    """Return a text that is equal for equal JSON values."""
    return json.dumps(value, sort_keys=True)


def annotated(extraction: Extraction[Any], chunk: int, offset: int = 0) -> Node:
    """Return the record of a chunk as a tree.

    Args:
        extraction: the extraction from the chunk.
        chunk: its number.
        offset: where it starts in the document; is added to all spans.
    """

    def build(value: Any, path: Path) -> Node:
        if isinstance(value, dict):
            value = {name: build(child, (*path, name)) for name, child in value.items()}
        elif isinstance(value, list):
            value = [build(child, (*path, index)) for index, child in enumerate(value)]
        where = pointer(path)
        span = extraction.spans.get(where)
        occurrences = tuple(_moved(each, offset) for each in extraction.occurrences.get(where, ()))
        return Node(value, chunk, span and _moved(span, offset), occurrences, extraction.confidence.get(where))

    return build(extraction.json, ())


def notes(record: Node, offset: int) -> dict[str, dict[str, Any]]:
    """Return facts about the values of a record, named like the members of an extraction.

    Args:
        record: the record.
        offset: is subtracted from all spans.
    """
    found: dict[str, dict[str, Any]] = {"spans": {}, "occurrences": {}, "confidence": {}, "conflicts": {}}
    for path, node in record.walk():
        known = {
            "spans": node.span and _moved(node.span, -offset),
            "occurrences": [_moved(each, -offset) for each in node.occurrences],
            "confidence": node.confidence,
            "conflicts": list(node.conflicts),
        }
        for name, value in known.items():
            if value:
                found[name][pointer(path)] = value
    return found


def _moved(span: Span, offset: int) -> Span:
    return Span(span.start + offset, span.end + offset)
