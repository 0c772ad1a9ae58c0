"""Chunks of a long document: of limited length, cut at borders of pages, paragraphs and sentences, overlapping."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

from constrain.arguments import check_count
from constrain.documents import Document, Part, part_of

#: Counts the tokens of a text.
Count: TypeAlias = Callable[[str], int]

#: How good a place to cut is.
_WORD, _LINE, _SENTENCE, _PARAGRAPH, _PAGE = range(5)
#: Fewest tokens of the pieces that long sentences are divided into, so that chunks can overlap by a part of one.
_MIN_PIECE = 32
#: Text before borders. A dot next to a digit, or before a lower-case letter, is mostly that of a date or an
#: abbreviation.
_ENDS = (
    (re.compile(r"\n"), _LINE),
    (re.compile(r"(?<!\d)[.!?…؟۔]+[\"'”’»)\]]*\s+(?=[^\s\d])|[。！？｡]+[”」』）]*"), _SENTENCE),
    (re.compile(r"\n[^\S\n]*\n\s*"), _PARAGRAPH),
)
#: Joiners and variation selectors, which belong to the characters next to them.
_JOINERS = frozenset("\u200c\u200d\ufe0e\ufe0f")


def chunks(document: Document, limit: int, overlap: int, count: Count) -> list[Part]:
    """Divide a document.

    A chunk ends at the best border of its second half: that of a page, else a paragraph, a sentence, a line. Only a
    line that alone has more than ``limit`` tokens is cut between words, or within a word that has. The next chunk
    begins up to ``overlap`` tokens earlier, so that what stands across the end is whole in it.

    Args:
        document: the document.
        limit: most tokens of a chunk.
        overlap: most tokens that a chunk has in common with the next; at most half of ``limit``.
        count: counts the tokens of a text.

    Returns:
        The chunks in order; together they have every character of the document.

    Raises:
        ArgumentError: ``limit`` or ``overlap`` is out of range.
    """
    check_count("limit", limit, 1)
    check_count("overlap", overlap, 0, limit // 2)
    pieces = _Pieces.of(document, min(limit, max(overlap, _MIN_PIECE)), count)
    found: list[Part] = []
    first = last = 0
    while last < len(pieces.borders) - 1:
        first, last = _fitted(pieces, pieces.start(first, last, limit, overlap), last, limit, count)
        found.append(part_of(document, pieces.borders[first], pieces.borders[last], len(found) + 1))
    return found


def _fitted(pieces: _Pieces, first: int, covered: int, limit: int, count: Count) -> tuple[int, int]:
    """Return the pieces of a chunk: from ``first``, or later, to one after those ``covered``."""
    last = pieces.end(first, covered, limit)
    # Pieces may have more tokens together than one by one.
    while count(pieces.text[pieces.borders[first] : pieces.borders[last]]) > limit and last - first > 1:
        if last > covered + 1:
            last -= 1
        else:
            first += 1
    return first, last


@dataclass(frozen=True)
class _Pieces:
    """The smallest pieces of a text that chunks consist of.

    Attributes:
        text: the text.
        borders: offsets of the beginning, of the borders between pieces, and of the end.
        quality: kind of each border, the greater the better to cut at.
        tokens: tokens before each border.
    """

    text: str
    borders: list[int]
    quality: list[int]
    tokens: list[int]

    @classmethod
    def of(cls, document: Document, limit: int, count: Count) -> _Pieces:
        """Divide a document into pieces of at most ``limit`` tokens."""
        text, qualities = document.text, _borders(document)
        borders, tokens = [0], [0]
        for start, end in pairwise([0, *sorted(qualities), len(text)]):
            for middle, size in _words(text, start, end, limit, count):
                borders.append(middle)
                tokens.append(size)
        return cls(text, borders, [qualities.get(border, _WORD) for border in borders], list(accumulate(tokens)))

    def end(self, first: int, covered: int, limit: int) -> int:
        """Return the border at which a chunk from border ``first`` ends, after border ``covered``."""
        furthest = max(bisect_right(self.tokens, self.tokens[first] + limit) - 1, covered + 1)
        if furthest >= len(self.borders) - 1:
            return len(self.borders) - 1
        half = max(bisect_left(self.tokens, self.tokens[first] + limit // 2), covered + 1)
        best = max(range(min(half, furthest), furthest + 1), key=lambda border: (self.quality[border], border))
        if self.quality[best] > _WORD:
            return best
        return max(range(covered + 1, furthest + 1), key=lambda border: (self.quality[border] > _WORD, border))

    def start(self, first: int, last: int, limit: int, overlap: int) -> int:
        """Return the border at which the chunk after the one from ``first`` to ``last`` starts."""
        end, later = self.tokens[last], min(first + 1, last)
        earliest = bisect_left(self.tokens, max(end - overlap, self.tokens[last + 1] - limit), later, last + 1)
        latest = bisect_right(self.tokens, end - 3 * overlap // 4, earliest, last + 1)
        return max(range(earliest, max(latest, earliest + 1)), key=lambda border: (self.quality[border], -border))


def _borders(document: Document) -> dict[int, int]:
    """Return the places inside of a document where it can be cut, and how good they are."""
    text = document.text
    found: dict[int, int] = {}
    for pattern, quality in _ENDS:
        for match in pattern.finditer(text):
            if quality != _SENTENCE or not text[match.end() : match.end() + 1].islower():
                found[match.end()] = max(quality, found.get(match.end(), quality))
    found |= {page.start: _PAGE for page in document.pages}
    return {border: quality for border, quality in found.items() if 0 < border < len(text)}


def _words(text: str, start: int, end: int, limit: int, count: Count) -> Iterator[tuple[int, int]]:
    """Yield the ends of pieces that have at most ``limit`` tokens, and how many they have, by halving at words."""
    size = count(text[start:end])
    middle = _middle(text, start, end)
    if size <= limit or middle == end:
        yield end, size
        return
    yield from _words(text, start, middle, limit, count)
    yield from _words(text, middle, end, limit, count)


def _middle(text: str, start: int, end: int) -> int:
    """Return where to cut a piece: after the space nearest to its middle, else between two characters near it."""
    center = (start + end) // 2
    spaces = (match.end() for match in re.compile(r"\s+").finditer(text, start, end))
    inside = [space for space in spaces if start < space < end]
    if inside:
        return min(inside, key=lambda space: abs(space - center))
    middle = max(center, start + 1)
    while middle < end and (unicodedata.combining(text[middle]) or {text[middle], text[middle - 1]} & _JOINERS):
        middle += 1
    return middle
