"""Comparison of a record with gold, value by value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from constrain.engine.pointers import pointer
from constrain.evaluation.assignment import Matrix, best_assignment
from constrain.evaluation.values import normal

#: The names and indices that lead to a value.
Path: TypeAlias = "tuple[str | int, ...]"


class Outcome(Enum):
    """Outcome of the comparison of a value with gold.

    Attributes:
        RIGHT: the same value was found.
        WRONG: another value was found.
        INVENTED: a value was found where gold has none.
        MISSED: no value was found where gold has one.
        ABSENT: there is none in both.
    """

    RIGHT = "right"
    WRONG = "wrong"
    INVENTED = "invented"
    MISSED = "missed"
    ABSENT = "absent"


@dataclass(frozen=True)
class Pair:
    """A value of a record, and the value of gold that it is compared with. No value, and an empty list, are null.

    Attributes:
        found: the value found.
        gold: the value of gold.
        found_path: its path in the record; ``None`` if it belongs to a list item or an object that was not found.
        gold_path: its path in gold; ``None`` if it belongs to a list item or an object that gold does not have.
        outcome: of the comparison.
    """

    found: Any
    gold: Any
    found_path: Path | None
    gold_path: Path | None
    outcome: Outcome

    @property
    def path(self) -> Path:
        """The path of the value in gold; in the record if gold has no such place."""
        return (self.found_path or ()) if self.gold_path is None else self.gold_path

    @property
    def field(self) -> str:
        """The JSON pointer of the value, with a star for each index."""
        return pointer("*" if isinstance(step, int) else step for step in self.path)

    @property
    def is_right(self) -> bool:
        """Whether the record agrees with gold. A null that is in only one of them, in an item, is not right."""
        is_in_both = self.found_path is not None and self.gold_path is not None
        return self.outcome in (Outcome.RIGHT, Outcome.ABSENT) and is_in_both


def compare(found: Any, gold: Any, *, ignore_case: bool = False) -> list[Pair]:
    """Compare a record with gold.

    Items of lists are compared with those with which they have most values in common, whatever their order, and items
    that are left over in order. Values of an item without a counterpart, and of an object where the other record has
    none, are compared with nothing. A member that one of two objects lacks counts as null, as does an empty list. For
    what values are the same, see :func:`~constrain.evaluation.same`.
    """
    return list(_pairs(_node(found, ignore_case), _node(gold, ignore_case), (), ()))


def correctness(found: Any, gold: Any, *, ignore_case: bool = False) -> dict[str, bool]:
    """Return whether each leaf of a record is right, by its JSON pointer; arguments as for :func:`compare`."""
    pairs = compare(found, gold, ignore_case=ignore_case)
    return {pointer(pair.found_path): pair.is_right for pair in pairs if pair.found_path is not None}


@dataclass(frozen=True)
class _Leaf:
    """A scalar with its normal form, which is computed once and compared often."""

    value: Any
    normal: Any


_NULL = _Leaf(None, normal(None))


def _node(value: Any, ignore_case: bool) -> Any:
    """Return a record with leaves in place of scalars and empty lists."""
    if isinstance(value, dict):
        return {name: _node(member, ignore_case) for name, member in value.items()}
    if isinstance(value, list) and value:
        return [_node(item, ignore_case) for item in value]
    return _NULL if value in (None, []) else _Leaf(value, normal(value, ignore_case))


def _pairs(found: Any, gold: Any, found_path: Path, gold_path: Path) -> Iterator[Pair]:
    if isinstance(found, _Leaf) and isinstance(gold, _Leaf):
        yield Pair(found.value, gold.value, found_path, gold_path, _outcome(found, gold))
    elif isinstance(found, dict) and isinstance(gold, dict):
        for name in found | gold:
            yield from _pairs(found.get(name, _NULL), gold.get(name, _NULL), (*found_path, name), (*gold_path, name))
    elif isinstance(found, list) and isinstance(gold, list):
        yield from _pairs_of_items(found, gold, found_path, gold_path)
    else:
        yield from _found_only(found, found_path)
        yield from _gold_only(gold, gold_path)


def _pairs_of_items(found: list[Any], gold: list[Any], found_path: Path, gold_path: Path) -> Iterator[Pair]:
    counterparts = _counterparts(found, gold)
    for one, item in enumerate(found):
        if one in counterparts:
            other = counterparts[one]
            yield from _pairs(item, gold[other], (*found_path, one), (*gold_path, other))
        else:
            yield from _found_only(item, (*found_path, one))
    for other in sorted(set(range(len(gold))) - set(counterparts.values())):
        yield from _gold_only(gold[other], (*gold_path, other))


def _counterparts(found: list[Any], gold: list[Any]) -> dict[int, int]:
    """Return which items belong together: those with most values in common, and of those with none in order."""
    assigned = dict(best_assignment(_agreements(found, gold)))
    free = sorted(set(range(len(gold))) - set(assigned.values()))
    return assigned | dict(zip(sorted(set(range(len(found))) - set(assigned)), free, strict=False))


def _agreements(found: list[Any], gold: list[Any]) -> Matrix:
    return np.array([[_agreement(one, other) for other in gold] for one in found], dtype=np.float64)


def _agreement(one: Any, other: Any) -> float:
    """Count the values that two nodes have in common, other than null: the right ones among their pairs."""
    if isinstance(one, _Leaf) and isinstance(other, _Leaf):
        return float(one.value is not None and one.normal == other.normal)
    if isinstance(one, dict) and isinstance(other, dict):
        return sum(_agreement(member, other[name]) for name, member in one.items() if name in other)
    if isinstance(one, list) and isinstance(other, list):
        weights = _agreements(one, other)
        return float(sum(weights[pair] for pair in best_assignment(weights)))
    return 0.0


def _outcome(found: _Leaf, gold: _Leaf) -> Outcome:
    if gold.value is None:
        return Outcome.ABSENT if found.value is None else Outcome.INVENTED
    if found.value is None:
        return Outcome.MISSED
    return Outcome.RIGHT if found.normal == gold.normal else Outcome.WRONG


def _found_only(found: Any, path: Path) -> Iterator[Pair]:
    for rest, leaf in _leaves(found):
        yield Pair(leaf.value, None, (*path, *rest), None, _outcome(leaf, _NULL))


def _gold_only(gold: Any, path: Path) -> Iterator[Pair]:
    for rest, leaf in _leaves(gold):
        yield Pair(None, leaf.value, None, (*path, *rest), _outcome(_NULL, leaf))


def _leaves(node: Any, path: Path = ()) -> Iterator[tuple[Path, _Leaf]]:
    if isinstance(node, _Leaf):
        yield path, node
        return
    for step, child in node.items() if isinstance(node, dict) else enumerate(node):
        yield from _leaves(child, (*path, step))
