"""Which record belongs to which line of gold."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from constrain.arguments import refused
from constrain.errors import RunError
from constrain.runs import Line


@dataclass(frozen=True)
class Match:
    """A line of gold, and the line of the same document in the output of a run; ``None`` if there is none."""

    gold: Line
    line: Line | None


def match(lines: Iterable[Line], gold: Iterable[Line]) -> list[Match]:
    """Find the line of each gold record: the last one of the same source and part.

    So if a file has lines of several models, that of the last model is compared. Lines without a source are found by
    their key, and those without either by their number.

    Args:
        lines: records and failures, as :func:`constrain.runs.read_lines` returns them.
        gold: gold records, read likewise.

    Raises:
        ArgumentError: the lines are none, but the path of a file, for example, or one has neither source nor key.
        RunError: gold has no records, a line of it has none, or none belongs to a line.
    """
    by_place = {_place(line): line for line in _listed("lines", lines)}
    matches = [Match(_checked(each), by_place.get(_place(each))) for each in _listed("gold", gold)]
    if not matches:
        raise RunError("gold has no records")
    if by_place and all(each.line is None for each in matches):
        raise RunError("no line of gold has the source, or the key, of a record: they are of different documents")
    return matches


def _listed(name: str, lines: Iterable[Line]) -> list[Line]:
    if isinstance(lines, (str, Path, Mapping)) or not isinstance(lines, Iterable):
        raise refused(name, lines, "the lines that read_lines returns")
    listed = list(lines)
    for number, line in enumerate(listed):
        if not isinstance(line, Mapping) or (line.get("source") is None and "key" not in line):
            raise refused(f"{name}[{number}]", line, "a line of read_lines, with a source or a key")
    return listed


def _place(line: Line) -> Hashable:
    source, part = line.get("source"), line.get("part", {})
    source = source and re.sub(r"^(\./+)+", "", source)  # the same file, as another command has named it
    # The span of a page or a row follows from its number.
    named = frozenset((name, _hashable(value)) for name, value in part.items() if name != "span")
    return line["key"] if source is None else (source, named)


def _hashable(value: Hashable | list[object] | dict[str, object]) -> Hashable:
    return json.dumps(value, sort_keys=True) if isinstance(value, (list, dict)) else value


def _checked(gold: Line) -> Line:
    if "record" not in gold:
        name = gold.get("source") or gold.get("key")
        raise RunError(f"the gold of {name} has an error instead of a record: correct it, or remove it")
    return gold
