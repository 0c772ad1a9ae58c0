"""The overlap of two chunks, and the items in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

from constrain.documents import Part
from constrain.extract.annotated import Node

#: First character of the scripts that are written without spaces, for the most part.
_UNSPACED = "\u2e80"


@dataclass(frozen=True)
class Seam:
    """Two chunks that overlap.

    Attributes:
        before: the first.
        after: the second.
    """

    before: Part
    after: Part

    @property
    def start(self) -> int:
        """Offset of the overlap in the document."""
        return self.after.start

    @property
    def end(self) -> int:
        """End of the overlap in the document; not after ``start`` if there is none."""
        return self.before.end

    @cached_property
    def text(self) -> str:
        """The text of the overlap."""
        return self.before.text[max(self.start - self.before.start, 0) :]

    def is_cut(self, one: str, other: str) -> bool:
        """Whether a text of the first chunk and one of the second are one, of which a chunk has only a part."""
        is_beginning = other.startswith(one) and self.before.text.rstrip().endswith(one)
        return is_beginning or (one.endswith(other) and self.after.text.lstrip().startswith(other))


class OverlapItems:
    """Tells which items of a chunk stand in an overlap; ask for those first that are the nearest to it.

    An item with quotes stands where they do. Others are searched for by the rarest in the chunk of their texts; if that
    occurs in the overlap twice, two items that have it can be there. Items without any text of the chunk are assumed to
    be as dense as the others.
    """

    def __init__(self, seam: Seam, chunk: Part, num_items: int) -> None:
        """
        Args:
            seam: the overlapping chunks.
            chunk: the one that has the items.
            num_items: number of its items.
        """
        self._seam, self._chunk = seam, chunk
        self._left: dict[str, int] = {}
        # Twice the average number: an item too many is only tried in vain.
        self._unknown = ceil(2 * num_items * len(seam.text) / max(len(chunk.text), 1))

    def has(self, item: Node) -> bool:
        """Whether an item stands in the overlap."""
        spans = [node.span for _, node in item.walk() if node.span is not None]
        if spans:
            return any(span.start < self._seam.end and self._seam.start < span.end for span in spans)
        rarest = self._rarest(item)
        if not rarest:
            self._unknown -= 1
            return self._unknown >= 0
        said = [text for text in rarest if self._left.setdefault(text, occurrences(text, self._seam.text)) > 0]
        self._left |= {text: self._left[text] - 1 for text in said}
        return bool(said)

    def _rarest(self, item: Node) -> list[str]:
        """Return the values of an item that occur in the chunk, and the least often there."""
        counts = {text: count for text in _said(item.json) if (count := occurrences(text, self._chunk.text))}
        return [text for text, count in counts.items() if count == min(counts.values())]


def occurrences(value: str, text: str) -> int:
    """Count how often a value stands in a text, not as a part of a word or a number."""
    before = r"(?<!\w)" if value[0].isalnum() and value[0] < _UNSPACED else ""
    after = r"(?!\w)" if value[-1].isalnum() and value[-1] < _UNSPACED else ""
    return len(re.findall(before + re.escape(value) + after, text))


def _said(record: Any) -> Iterator[str]:
    """Yield the texts and numbers of a record."""
    if isinstance(record, dict):
        record = list(record.values())
    if isinstance(record, list):
        for value in record:
            yield from _said(value)
    elif isinstance(record, (str, int, float)) and not isinstance(record, bool) and str(record).strip():
        yield str(record).strip()
