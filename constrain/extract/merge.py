"""Merging of the records of a document's chunks into one record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from heapq import merge as merge_sorted
from typing import Any, Literal, TypeAlias

from constrain.documents import Part
from constrain.extract.annotated import Node, json_key
from constrain.extract.same_items import same_items

#: Which of two values is taken; ``None``: the one that is surer, or else the first.
_Choice: TypeAlias = Literal["before", "after"] | None


def merge(records: Sequence[Node], chunks: Sequence[Part]) -> Node:
    """Merge the records of chunks.

    - Lists are joined. What stands in an overlap is one item: the one that no chunk cuts, with what the other has more.
    - Objects are merged member by member.
    - Of other values, the one with the highest probability is taken, or the first if that is not known. Values that
      differ from it are its ``conflicts``. A value is null or missing only if it is so in all chunks.

    Args:
        records: the record of each chunk, numbered as the chunks are.
        chunks: the chunks in order; each may overlap with those after it.
    """
    return reduce(partial(_Merger(chunks).merged, choice=None), records)


class _Merger:
    """Merges records of the given chunks."""

    def __init__(self, chunks: Sequence[Part]) -> None:
        self._chunks = chunks

    def merged(self, before: Node, after: Node, choice: _Choice) -> Node:
        """Merge a value of earlier chunks with that of a later one."""
        if before.value is None or after.value is None:
            return _present(before, after)
        if isinstance(before.value, dict) and isinstance(after.value, dict):
            members = {
                name: self.merged(before.value[name], child, choice) if name in before.value else child
                for name, child in after.value.items()
            }
            return _joined(before, after, {**before.value, **members})
        if isinstance(before.value, list) and isinstance(after.value, list):
            return _joined(before, after, list(self._items(before.value, after.value)))
        return _chosen(before, after, choice)

    def _items(self, before: list[Node], after: list[Node]) -> Iterator[Node]:
        """Yield the items of two lists in the order of the document."""
        i = j = 0
        for same, other in same_items(before, after, self._chunks):
            yield from _in_order(before[i:same], after[j:other])
            choice = _whole(before[same], after[other], same == len(before) - 1, other == 0)
            yield replace(self.merged(before[same], after[other], choice), chunk=after[other].chunk)
            i, j = same + 1, other + 1
        yield from _in_order(before[i:], after[j:])


def _present(before: Node, after: Node) -> Node:
    """Return the one of two values that is not null, or of two nulls the less sure one."""
    if before.value is None and after.value is None:
        return min(before, after, key=lambda node: _probability(node, 1.0))
    return after if before.value is None else before


def _joined(before: Node, after: Node, value: Any) -> Node:
    """Return a node for an object or a list, with what is known about the first or else the second."""
    noted = before if before.span or before.confidence else after
    return replace(noted, value=value, chunk=after.chunk)


def _chosen(before: Node, after: Node, choice: _Choice) -> Node:
    """Choose one of two values, neither of which is null."""
    if choice is not None:
        return before if choice == "before" else after
    if _probability(after, 0.0) > _probability(before, 1.0):
        node, others = after, (before.json, *before.conflicts, *after.conflicts)
    else:
        node, others = before, (*before.conflicts, after.json, *after.conflicts)
    conflicts = {json_key(value): value for value in others}
    conflicts.pop(json_key(node.json), None)
    return replace(node, conflicts=tuple(conflicts.values()))


def _whole(before: Node, after: Node, is_last: bool, is_first: bool) -> _Choice:
    """Return which of two copies of an item is whole, or ``None`` if both are.

    Args:
        before: the copy of the earlier chunk.
        after: the copy of the later chunk.
        is_last: whether the first is the last item of its list, so that the end of its chunk may cut it.
        is_first: whether the second is the first item of its list, so that the start of its chunk may cut it.
    """
    if is_last and is_first:
        if before.completeness == after.completeness:
            return None
        return "before" if before.completeness > after.completeness else "after"
    return "after" if is_last else "before" if is_first else None


def _in_order(before: Sequence[Node], after: Sequence[Node]) -> Iterator[Node]:
    """Yield items that only one of two chunks has, in the order of the document as far as it is known."""
    ends = [_end(item) for item in (*before, *after)]
    return merge_sorted(before, after, key=_end) if None not in ends else iter([*before, *after])


def _end(item: Node) -> Any:
    """Return where the last quote of an item ends."""
    return max((node.span.end for _, node in item.walk() if node.span is not None), default=None)


def _probability(node: Node, unknown: float) -> float:
    return unknown if node.confidence is None else node.confidence.probability
