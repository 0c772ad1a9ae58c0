"""Values beside their labels, which programs that fill in a printed form write to a PDF after all labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from constrain.documents.pdf_columns import Character, Edges, Line, cells

_COLON = ":"
#: Most lines of a page of which labels are looked for: the time grows with the square of the number.
_MAX_LINES = 1000
#: Points by which the edges of lines in one column differ at most, and heights by which these are apart.
_SAME_EDGE, _APART = 1.0, 2.0
#: Share of its height by which a label and its value stand higher or lower at most.
_SAME_HEIGHT = 0.25


class _Label(NamedTuple):
    """The colon of a label.

    Attributes:
        line: number of its line.
        end: place after it in the line.
        box: its edges.
        limit: where the text after it begins; infinite if there is none.
    """

    line: int
    end: int
    box: Edges
    limit: float


def beside_labels(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of a page with values after the labels that end with a colon at their left, on the same height.

    A line is moved only if all its parts between wide gaps are such values, and so are the lines of its column: others
    may be a column of text.
    """
    labels = [label for number, line in enumerate(lines) for label in _labels(number, line)]
    if not labels or len(lines) > _MAX_LINES:
        return list(lines)
    parts = [[part for part in map(_placed, cells(line)) if part.boxes] for line in lines]
    nearest: dict[_Label, tuple[int, _Part]] = {}
    for number, each in enumerate(parts):
        for part in each:
            label = _label_of(number, part, labels)
            if label is not None and (label not in nearest or part.left < nearest[label][1].left):
                nearest[label] = number, part
    values: dict[int, dict[_Label, _Part]] = {}
    for label, (number, part) in nearest.items():
        values.setdefault(number, {})[label] = part
    for column in _columns(parts):
        if any(len(values.get(number, ())) < len(parts[number]) for number in column):
            for number in column:
                values.pop(number, None)
    return _joined(lines, values)


class _Part(NamedTuple):
    """A part of a line, with the boxes of its characters."""

    characters: Line
    boxes: list[Edges]

    @property
    def left(self) -> float:
        return self.boxes[0][0]


def _placed(part: Line) -> _Part:
    return _Part(part, [character.box for character in part if character.box])


def _labels(number: int, line: Line) -> Iterator[_Label]:
    """Yield the labels of a line that have nothing, or a gap, behind them."""
    for place, character in enumerate(line):
        if character.text == _COLON and character.box is not None:
            after = (each.box for each in line[place + 1 :] if each.box and not each.text.isspace())
            limit = next(after, (math.inf,))[0]
            if limit - character.box[2] > character.box[3] - character.box[1]:
                yield _Label(number, place + 1, character.box, limit)


def _label_of(number: int, part: _Part, labels: Sequence[_Label]) -> _Label | None:
    """Return the label at the left of a part of a line; ``None`` if there is none with enough room, or it is one."""
    if part.characters[-1].text == _COLON:
        return None
    right, bottom = part.boxes[-1][2], part.boxes[0][3]
    found = [
        label
        for label in labels
        if label.line != number
        and label.box[2] <= part.left
        and right <= label.limit
        and abs(label.box[3] - bottom) < _SAME_HEIGHT * (label.box[3] - label.box[1])
    ]
    return max(found, key=lambda label: label.box[2], default=None)


def _columns(parts: Sequence[Sequence[_Part]]) -> Iterator[list[int]]:
    """Yield the numbers of lines that follow one another in the file and stand one below another."""
    column = [0]
    for number, (above, below) in enumerate(pairwise(parts), 1):
        if above and below and _is_above(above[0].boxes[0], below[0].boxes[0]):
            column.append(number)
        else:
            yield column
            column = [number]
    yield column


def _is_above(above: Edges, below: Edges) -> bool:
    return abs(above[0] - below[0]) < _SAME_EDGE and 0 < below[1] - above[1] < _APART * (above[3] - above[1])


def _joined(lines: Sequence[Line], values: Mapping[int, Mapping[_Label, _Part]]) -> list[Line]:
    """Put the parts of lines after the labels that they are the values of."""
    joined = {number: list(line) for number, line in enumerate(lines) if number not in values}
    space = [Character(" ", None)]
    found = [(label, part) for each in values.values() for label, part in each.items()]
    for label, part in sorted(found, key=lambda value: -value[0].end):  # the last first: places stay valid
        joined[label.line][label.end : label.end] = [*space, *part.characters]
    return [joined[number] for number in sorted(joined)]
