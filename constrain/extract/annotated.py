"""Records as trees whose values carry what is known about them, so that values can be moved together with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
        children: Any = ()
        if isinstance(self.value, dict):
            children = self.value.items()
        elif isinstance(self.value, list):
            children = enumerate(self.value)
        for step, child in children:
            yield from child.walk((*path, step))


def annotated(extraction: Extraction[Any], chunk: int) -> Node:
    """Return the record of a chunk as a tree."""

    def build(value: Any, path: Path) -> Node:
        if isinstance(value, dict):
            value = {name: build(child, (*path, name)) for name, child in value.items()}
        elif isinstance(value, list):
            value = [build(child, (*path, index)) for index, child in enumerate(value)]
        where = pointer(path)
        occurrences = tuple(extraction.occurrences.get(where, ()))
        return Node(value, chunk, extraction.spans.get(where), occurrences, extraction.confidence.get(where))

    return build(extraction.json, ())
