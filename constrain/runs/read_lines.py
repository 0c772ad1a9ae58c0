"""Lines of a run, as they are in its output."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, ValidationError

from constrain.engine.pointers import pointer
from constrain.errors import RunError
from constrain.runs.lines import Line

_Span: TypeAlias = Annotated[list[int], Field(min_length=2, max_length=2)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)

    span: _Span | None = None


class _Confidence(BaseModel):
    model_config = ConfigDict(strict=True)

    probability: NonNegativeFloat
    alternatives: dict[str, NonNegativeFloat] | None = None


class _Line(BaseModel):
    """What there may be besides a record or an error. Strict, since the lines are used as they are."""

    model_config = ConfigDict(strict=True)

    key: str = ""
    source: str | None = None
    part: _Part = _Part()
    spans: dict[str, _Span] = {}
    occurrences: dict[str, list[_Span]] = {}
    confidence: dict[str, _Confidence] = {}
    conflicts: dict[str, Any] = {}
    marks: dict[str, str] = {}


def read_lines(path: str | Path) -> list[Line]:
    """Read records and failures, in order: one for each key, a record rather than a failure, and the last one.

    The end of the file may be an incomplete line, which a run that goes on or was interrupted leaves. It is left out.

    Raises:
        RunError: the file cannot be read, or a line is neither a record nor a failure.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    complete = raw[: raw.rfind(b"\n") + 1]
    torn = raw[len(complete) :]
    lines = [_parsed(path, number, line) for number, line in enumerate(complete.split(b"\n"), 1) if line.strip()]
    if torn.strip() and _is_json(torn):
        lines.append(_parsed(path, len(lines) + 1, torn))
    return _without_repeats(lines)


def _parsed(path: str | Path, number: int, raw: bytes) -> Line:
    try:
        line = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _unusable(path, number, f"is not JSON ({error})") from error
    if not isinstance(line, dict) or not ("record" in line or isinstance(line.get("error"), dict)):
        raise _unusable(path, number, 'is neither {"source": FILE, "record": RECORD} nor a failure')
    try:
        _Line.model_validate(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _unusable(path, number, f"is malformed at #{pointer(first['loc'])}: {first['msg']}") from error
    return line


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def _unusable(path: str | Path, number: int, reason: str) -> RunError:
    return RunError(
        f"line {number} of {path} {reason}: give the JSON Lines of `constrain extract`; "
        "those of a table are beside it, in the file with .jsonl after its name"
    )


def _without_repeats(lines: Iterable[Line]) -> list[Line]:
    kept: dict[str, Line] = {}
    for number, line in enumerate(lines):
        keyed = {"key": str(number), **line}
        if "error" not in line or "error" in kept.get(keyed["key"], line):
            kept[keyed["key"]] = keyed
    return list(kept.values())
