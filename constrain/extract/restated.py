"""Extractions after validation: the record as its type dumps it, with spans and confidence moved to the new places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from constrain.engine.pointers import pointer
from constrain.extract.evidence import Path
from constrain.extract.extraction import Extraction
from constrain.extract.target import Target
from constrain.extract.type_serializer import set_items, with_sorted_sets

T = TypeVar("T")
K = TypeVar("K")


def restated(extraction: Extraction[T], target: Target[T]) -> Extraction[T]:
    """Return an extraction whose ``json`` is its value as the target dumps it, with the changes of validators.

    JSON pointers lead to the same values as before, wherever these are now. Those to values that have no place in the
    dumped record, such as items that a validator has removed, are left out. Sets have the order that the model wrote.

    Raises:
        ExtractionError: the value has no JSON form.
    """
    if target.adapter is None:
        return extraction
    record, places = _aligned(extraction.json, target.dump_unordered(extraction.value))
    moved = {pointer(before): pointer(after) for before, after in places.items()}
    return replace(
        extraction,
        json=record,
        spans=_moved(extraction.spans, moved),
        occurrences=_moved(extraction.occurrences, moved),
        confidence=_moved(extraction.confidence, moved),
        conflicts=_moved(extraction.conflicts, moved),
    )


def _moved(facts: Mapping[str, K], moved: Mapping[str, str]) -> dict[str, K]:
    return {moved[where]: fact for where, fact in facts.items() if where in moved}


def _aligned(written: Any, dumped: Any) -> tuple[Any, dict[Path, Path]]:
    """Return the record in what was dumped, and the new path of each value that was written, by its old one."""
    places: dict[Path, Path] = {}

    def visit(written: Any, dumped: Any, before: Path, after: Path) -> Any:
        places[before] = after
        items = set_items(dumped)
        is_set, dumped = items is not None, dumped if items is None else items
        if isinstance(written, list) and isinstance(dumped, list):
            return [*visit_items(written, dumped, before, after, is_set)]
        if isinstance(written, dict) and isinstance(dumped, dict):
            return {
                name: visit(written[name], member, (*before, name), (*after, name))
                if name in written
                else with_sorted_sets(member)
                for name, member in dumped.items()
            }
        return with_sorted_sets(dumped)

    def visit_items(
        written: Sequence[Any], dumped: Sequence[Any], before: Path, after: Path, is_set: bool
    ) -> Iterator[Any]:
        pairs = list(zip(_origins(written, dumped, is_set), dumped, strict=True))
        if is_set:  # what the model wrote comes first, in its order
            pairs.sort(key=lambda pair: (pair[0] is None, pair[0] or 0))
        for place, (origin, item) in enumerate(pairs):
            if origin is None:
                yield with_sorted_sets(item)
            else:
                yield visit(written[origin], item, (*before, origin), (*after, place))

    return visit(written, dumped, (), ()), places


def _origins(written: Sequence[Any], dumped: Sequence[Any], is_set: bool) -> list[int | None]:
    """Return for each item of a list that was dumped which item that was written it is, or ``None``.

    Validators may have changed the order or removed items. If they have changed items of a list, and it is as long as
    before, they are taken to have left each in its place.
    """
    is_as_long = not is_set and len(written) == len(dumped)
    free, found = dict.fromkeys(range(len(written))), list[int | None]()
    for index, item in enumerate(dumped):
        candidates = chain([index] if index in free else [], free)
        origin = next((each for each in candidates if _is_kept(written[each], item)), None)
        if origin is None and is_as_long:
            return list(range(len(dumped)))
        found.append(origin)
        if origin is not None:
            del free[origin]
    return found


def _is_kept(written: Any, dumped: Any) -> bool:
    """Whether a value was dumped as it was written, except for members that the model left out."""
    items = set_items(dumped)
    dumped = dumped if items is None else items
    if isinstance(written, dict) and isinstance(dumped, dict):
        return all(name in dumped and _is_kept(member, dumped[name]) for name, member in written.items())
    if isinstance(written, list) and isinstance(dumped, list):
        return len(written) == len(dumped) and None not in _origins(written, dumped, is_set=True)
    kinds = {type(written), type(dumped)}
    return (len(kinds) == 1 or kinds == {int, float}) and bool(written == dumped)  # 20.0 is the decimal 20
