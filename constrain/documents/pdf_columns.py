"""Columns in the lines of a PDF: wide gaps, which PDFium reads as single spaces, are as wide in the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import NamedTuple, TypeAlias

#: Left, top, right and bottom edge, in points from the top left corner of the page.
Edges: TypeAlias = tuple[float, float, float, float]

#: Gaps are wide from this many heights of their line on. Those between the words of justified lines are narrower.
_WIDE = 1.0
#: Fewest spaces of a wide gap.
_MIN_SPACES = 2


class Character(NamedTuple):
    """A character, and its place if it has one."""

    text: str
    box: Edges | None


#: The characters of a line.
Line: TypeAlias = list[Character]


def in_columns(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of a page with gaps as wide as they are shown, so that the cells of a table stand in columns.

    A line without a wide gap stays as it is.
    """
    places = [[character.box for character in line if character.box and not character.text.isspace()] for line in lines]
    boxes = [box for line in places for box in line]
    if not boxes:
        return list(lines)
    width = median(box[2] - box[0] for box in boxes)
    left = min(line[0][0] for line in places if line)
    return [_in_columns(line, left, width) if width > 0 else line for line in lines]


def cells(line: Line) -> list[Line]:
    """Return the parts of a line between its wide gaps."""
    found: list[Line] = []
    words = list(_words(line))
    for number, (spaces, word) in enumerate(words):
        if number == 0 or _is_wide(words[number - 1], words[number]):
            found.append(list(word))
        else:
            found[-1] += [*spaces, *word]
    return found


def _in_columns(line: Line, left: float, width: float) -> Line:
    words = list(_words(line))
    gaps = {number for number in range(1, len(words)) if _is_wide(words[number - 1], words[number])}
    if not gaps:
        return line
    spread: Line = []
    for number, (spaces, word) in enumerate(words):
        if number in gaps or number == 0:
            column = round((word[0].box[0] - left) / width) if word[0].box else 0
            fewest = _MIN_SPACES if number else 0
            spread += [Character(" ", None)] * max(fewest, column - len(spread))
        else:
            spread += spaces
        spread += word
    return spread


def _words(line: Line) -> Iterator[tuple[Line, Line]]:
    """Yield the words of a line, each with the spaces before it."""
    spaces: Line = []
    for is_space, characters in groupby(line, lambda character: character.text.isspace()):
        if is_space:
            spaces = list(characters)
        else:
            yield spaces, list(characters)


def _is_wide(before: tuple[Line, Line], after: tuple[Line, Line]) -> bool:
    """Whether the gap between two words, from left to right, is wide."""
    first, second = before[1][-1].box, after[1][0].box
    if first is None or second is None:
        return False
    return second[0] - first[2] > _WIDE * max(first[3] - first[1], second[3] - second[1])
