"""Numbers in schemas that no record can satisfy, told before anything is compiled or generated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from constrain.engine.pointers import pointer
from constrain.errors import SchemaError
from constrain.extract.subschemas import Path, Place, resolved, steps, with_subschemas

#: The largest minima that a record can have: a model that writes as much writes for hours.
_LARGEST = {"minItems": 100_000, "minContains": 100_000, "minProperties": 100_000, "minLength": 1_000_000}
#: Keywords whose subschemas a record need not satisfy.
_CONDITIONS = frozenset({"not", "if", "anyOf", "oneOf", "$defs", "definitions"})


def check_numbers(schema: Mapping[str, Any]) -> None:
    """Check the numbers of a schema.

    Raises:
        SchemaError: a number is infinite or NaN, or a record of the schema would be larger than any that can be
            written; reports where.
    """
    for path, value in _numbers(schema, ()):
        if not math.isfinite(value):
            reason = f"{value} is no number of JSON; leave a bound out that is not there"
            raise SchemaError(reason, pointer(path[:-1]), str(path[-1]) if path else None)
    _check_minima(schema, (), schema, set())


def _numbers(node: Any, path: Path) -> Iterator[tuple[Path, float]]:
    """Yield the floats of a schema with their paths."""
    if isinstance(node, float):
        yield path, node
    members = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    for step, member in members:
        yield from _numbers(member, (*path, step))


def _check_minima(schema: Mapping[str, Any], path: Path, root: Mapping[str, Any], seen: set[str]) -> None:
    """Check the minima of a schema, and of all that a record has to satisfy with it; ``seen`` has the references."""
    for keyword, largest in _LARGEST.items():
        minimum = schema.get(keyword)
        if isinstance(minimum, (int, float)) and minimum > largest:
            reason = f"{minimum:,} are more than a record can have: the largest that can be asked for is {largest:,}"
            raise SchemaError(reason, pointer(path), keyword)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        target = resolved(reference, root)
        if isinstance(target, Mapping):
            _check_minima(target, tuple(steps(reference)), root, seen)

    def check(place: Place, child: Mapping[str, Any]) -> Mapping[str, Any]:
        if place[0] not in _CONDITIONS:
            _check_minima(child, (*path, *place), root, seen)
        return child

    with_subschemas(schema, check)
