"""Items that the lists of overlapping chunks have in common.

Two items are the same if they stand at the same place: if a passage that only one item of each list quotes is the same,
or overlaps. Items without quotes are the same if they are equal, as far as no chunk cuts one of them, and what they say
is said in the overlap, as often as they are there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from constrain.documents import Part
from constrain.extract.annotated import Node, Path
from constrain.extract.extraction import Span
from constrain.extract.overlap import OverlapItems, Seam

#: Spans of an item by the paths of their values, in which the index of every list is -1.
_Quotes: TypeAlias = Mapping[Path, list[Span]]

#: Agreement of two values that are the same, and of two of which one is a part of the other.
_SAME, _PARTLY = 2, 1


def same_items(before: Sequence[Node], after: Sequence[Node], chunks: Sequence[Part]) -> list[tuple[int, int]]:
    """Return the positions of the items that two lists have in common, in order.

    Args:
        before: items that were found in earlier chunks.
        after: items that were found in one chunk.
        chunks: the chunks.
    """
    seams = _seams(before, after, chunks)
    if not seams:
        return []
    left, right = _at_the_end(before, seams), _at_the_start(after, seams)
    # An item that stands across an end of the overlap is whole in one list, and the first or last one of the other.
    across_start = [left[0] - 1 if left else len(before) - 1]
    across_end = [right[-1] + 1 if right else 0]
    across_start = [index for index in across_start if index >= 0 and before[index].chunk in seams]
    across_end = [index for index in across_end if index < len(after)]
    quotes_before, quotes_after = _own_quotes(before), _own_quotes(after)

    def weight(one: int, other: int) -> int:
        if one in across_start and (other > 0 or after[other].completeness >= before[one].completeness):
            return 0
        if other in across_end and (one < len(before) - 1 or before[one].completeness >= after[other].completeness):
            return 0
        if quotes_before[one] and quotes_after[other]:
            return _shared_places(quotes_before[one], quotes_after[other])
        return agreement(before[one].json, after[other].json, seams[before[one].chunk]) or 0

    return align(across_start + left, right + across_end, weight)


def align(left: Sequence[int], right: Sequence[int], weight: Callable[[int, int], int]) -> list[tuple[int, int]]:
    """Return the pairs, in the order of both sequences, of greatest total weight; those of weight 0 are no pairs."""
    weights = [[weight(one, other) for other in right] for one in left]
    best = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in range(len(left) - 1, -1, -1):
        for j in range(len(right) - 1, -1, -1):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], best[i + 1][j + 1] + weights[i][j])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        if weights[i][j] and best[i][j] == best[i + 1][j + 1] + weights[i][j]:
            pairs.append((left[i], right[j]))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def agreement(one: Any, other: Any, seam: Seam) -> int | None:
    """Return how many values two records have in common, or ``None`` if they differ in one.

    Values that are null in one of them, and texts of which a chunk has only a part, do not differ.
    """
    if one is None or other is None:
        return 0
    if isinstance(one, dict) and isinstance(other, dict):
        return _total([agreement(one[name], other[name], seam) for name in one.keys() & other.keys()])
    if isinstance(one, list) and isinstance(other, list):
        return _agreement_of_lists(one, other, seam)
    if one == other and isinstance(one, bool) == isinstance(other, bool):
        return _SAME
    is_cut = isinstance(one, str) and isinstance(other, str) and seam.is_cut(one, other)
    return _PARTLY if is_cut else None


def _total(agreements: Sequence[int | None]) -> int | None:
    return None if None in agreements else sum(filter(None, agreements))


def _agreement_of_lists(one: Sequence[Any], other: Sequence[Any], seam: Seam) -> int:
    """Lists do not differ, since each chunk may have items that the other has not."""
    weights = {(i, j): agreement(one[i], other[j], seam) or 0 for i in range(len(one)) for j in range(len(other))}
    return sum(weights[pair] for pair in align(range(len(one)), range(len(other)), lambda i, j: weights[i, j]))


# The overlap


def _seams(before: Sequence[Node], after: Sequence[Node], chunks: Sequence[Part]) -> dict[int, Seam]:
    """Return the seams of a chunk with those before it, by the numbers of these, as far as both have items."""
    if not after:
        return {}
    seams = {number: Seam(chunks[number], chunks[after[0].chunk]) for number in {item.chunk for item in before}}
    return {number: seam for number, seam in seams.items() if seam.start < seam.end}


def _at_the_end(items: Sequence[Node], seams: Mapping[int, Seam]) -> list[int]:
    """Return the positions of the items of earlier chunks that stand in the overlap."""
    found: list[int] = []
    for number, seam in seams.items():
        of_chunk = [index for index, item in enumerate(items) if item.chunk == number]
        overlap = OverlapItems(seam, seam.before, len(of_chunk))
        found += [index for index in reversed(of_chunk) if overlap.has(items[index])]
    return sorted(found)


def _at_the_start(items: Sequence[Node], seams: Mapping[int, Seam]) -> list[int]:
    """Return the positions of the items of the later chunk that stand in the overlap."""
    widest = max(seams.values(), key=lambda seam: seam.end)
    overlap = OverlapItems(widest, widest.after, len(items))
    return [index for index, item in enumerate(items) if overlap.has(item)]


# Quotes


def _own_quotes(items: Sequence[Node]) -> list[_Quotes]:
    """Return the quotes that each item has alone: a heading, say, may be quoted by all that stand below it."""
    quotes = [list(_quotes(item)) for item in items]
    counts = Counter(quote for each in quotes for quote in set(each))
    return [_by_path(quote for quote in each if counts[quote] == 1) for each in quotes]


def _quotes(item: Node) -> Iterator[tuple[Path, Span]]:
    for path, node in item.walk():
        if node.span is not None:
            yield tuple(-1 if isinstance(step, int) else step for step in path), node.span


def _by_path(quotes: Iterator[tuple[Path, Span]]) -> _Quotes:
    found: defaultdict[Path, list[Span]] = defaultdict(list)
    for path, span in quotes:
        found[path].append(span)
    return found


def _shared_places(one: _Quotes, other: _Quotes) -> int:
    """Return how far two items stand at the same place; 0 if they are different ones."""
    shared = differing = 0
    for path in one.keys() & other.keys():
        best = max(_overlap(first, second) for first in one[path] for second in other[path])
        shared += best
        # Quotes inside of lists differ where the chunks have different items of a list.
        differing += best == 0 and -1 not in path
    return shared if shared >= _SAME * differing else 0


def _overlap(one: Span, other: Span) -> int:
    if one == other:
        return _SAME
    return _PARTLY if one.start < other.end and other.start < one.end else 0
