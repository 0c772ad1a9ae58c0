"""Sources and the lines of their records, as a run writes them."""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from constrain.runs import Line, work_key

SETTINGS = "0123456789abcdef"
#: A value in a text: ``{/total=12.50}``.
_VALUE = re.compile(r"\{(/[^=}]*)=([^}]*)\}", re.DOTALL)


def annotated(markup: str) -> tuple[str, dict[str, tuple[int, int]]]:
    """Return a text, and the spans of its values, which are marked as ``{/pointer=value}``."""
    spans: dict[str, tuple[int, int]] = {}
    text, end = "", 0
    for match in _VALUE.finditer(markup):
        text += markup[end : match.start()]
        spans[match[1]] = len(text), len(text) + len(match[2])
        text += match[2]
        end = match.end()
    return text + markup[end:], spans


def record_of(values: Mapping[str, Any]) -> Any:
    """Return the record whose values, by their pointers, these are."""
    record: dict[str, Any] = {}
    for pointer, value in values.items():
        *path, last = pointer.split("/")[1:]
        parent = record
        for step in path:
            parent = parent.setdefault(step, {})
        parent[last] = value
    return _lists(record)


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    members = {name: _lists(member) for name, member in value.items()}
    is_list = bool(members) and all(name.isdigit() for name in members)
    return list(members.values()) if is_list else members


def confidence(probability: float, removed: float = 0.0, **alternatives: float) -> dict[str, Any]:
    named = {json.dumps(name): share for name, share in alternatives.items()}
    return {"probability": probability, "removed": removed, **({"alternatives": named} if named else {})}


def line_of(source: str, text: str | None, part: Mapping[str, Any] | None = None, **members: Any) -> Line:
    """Return a line with the key that a run gives it."""
    key = work_key(SETTINGS, source, part or {}, text)
    return {"key": key, "source": source, **({"part": part} if part else {}), **members}


def text_line(path: Path, markup: str, other: Mapping[str, Any] | None = None, **members: Any) -> Line:
    """Write a text file, and return the line of its record.

    Args:
        path: the file.
        markup: its text with marked values.
        other: further values by pointer.
        members: further members of the line.
    """
    text, spans = annotated(markup)
    path.write_text(text, encoding="utf-8")
    values = {pointer: text[start:end] for pointer, (start, end) in spans.items()} | dict(other or {})
    return line_of(str(path), text, **{"record": record_of(values), "spans": spans, "finish_reason": "stop", **members})


def thousand_lines(folder: Path) -> list[Line]:
    """Write a thousand texts of about 5,000 characters, which hardly repeat themselves, and return their lines."""
    draw = random.Random(0)
    words = ["".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 10))) for _ in range(20_000)]
    lines = []
    for number in range(1000):
        text = " ".join([*draw.choices(words, k=300), f"{{/sum={number}}}", *draw.choices(words, k=400)])
        sure = {"/sum": confidence(1 - number / 1000)}
        lines.append(text_line(folder / f"{number}.txt", text, confidence=sure))
    return lines


def write_lines(path: Path, lines: Iterable[Line]) -> Path:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return path
