"""Fields: values with the same path in each record, up to indices, such as ``/lines/*/price`` of every line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from constrain.engine.pointers import pointer
from constrain.runs import Line

#: The names and indices that lead to a value.
Path: TypeAlias = tuple[str | int, ...]


@dataclass
class Field:
    """A field of the records.

    Attributes:
        name: JSON pointer with a star for each index.
        kind: type of its values, ``"text"``, ``"number"``, ``"true"`` or ``"JSON"``: that of the first that is not
            null.
        has_spans: whether its values have spans in texts.
    """

    name: str
    kind: str | None = None
    has_spans: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the field as the page has it."""
        return {"field": self.name, "kind": self.kind, "hasSpans": self.has_spans}


class Fields:
    """The fields of all records, numbered as they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.all: list[Field] = []

    def summary(self, line: Line) -> dict[int, list[Any]]:
        """Return for each field of a record, by its number, how many values are not null, and the least probability.

        The probability is ``None`` if it is not known.
        """
        found: dict[int, list[Any]] = {}
        confidence = line.get("confidence", {})
        for path, value in leaves(line.get("record")):
            number = self._number(path, value, line)
            filled, least = found.get(number, [0, None])
            probabilities = [least, probability_of(confidence.get(pointer(path)))]
            found[number] = [filled + (value is not None), min_known(probabilities)]
        return found

    def _number(self, path: Path, value: Any, line: Line) -> int:
        name = pointer("*" if isinstance(step, int) else step for step in path)
        if name not in self._numbers:
            self._numbers[name] = len(self.all)
            self.all.append(Field(name))
        field = self.all[self._numbers[name]]
        field.kind = field.kind or kind_of(value)
        field.has_spans = field.has_spans or pointer(path) in line.get("spans", {})
        return self._numbers[name]


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the values that have no members, with their paths."""
    members: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    is_leaf = True
    for step, member in members:
        is_leaf = False
        yield from leaves(member, (*path, step))
    if is_leaf:
        yield path, value


def kind_of(value: Any) -> str | None:
    """Return the kind of a value as the page names it; ``None`` for null."""
    kinds = {str: "text", bool: "true", int: "number", float: "number", type(None): None}
    return kinds.get(type(value), "JSON")


def probability_of(confidence: Mapping[str, Any] | None) -> float | None:
    """Return the probability of a value, or ``None`` if that is not known."""
    return None if confidence is None else confidence["probability"]


def min_known(probabilities: Iterable[float | None]) -> float | None:
    """Return the least of the probabilities that are known, or ``None``."""
    return min((each for each in probabilities if each is not None), default=None)
