"""Lines of a run: a record or a failure as a JSON object, and as the bytes of a line of JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

from constrain.errors import DocumentError

if TYPE_CHECKING:
    from constrain.extract.extraction import Confidence, Extraction

#: A record with where it comes from, or a failure; see :func:`record_line` and :func:`failure_line`.
Line: TypeAlias = dict[str, Any]

#: Characters that JSON allows in strings, but at which some programs break lines.
_BREAKS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}
#: Significant digits of a probability.
_DIGITS = 8


def record_line(key: str, extraction: Extraction[Any], record: Any, part: Mapping[str, Any]) -> Line:
    """Return the line of a record.

    Args:
        key: see :func:`~constrain.runs.work_key`.
        extraction: the extraction.
        record: its value as JSON, see :meth:`constrain.extract.Target.dump`.
        part: which part of the source the document is; its ``span`` is where that stands in the text of the whole, and
            the spans of the record are in the text of the part.

    Returns:
        ``key``, ``source``, ``part``, ``record``, ``spans``, ``occurrences``, ``confidence``, ``conflicts``,
        ``pages_without_text``, ``usage`` and ``finish_reason``. The names of members in the middle are JSON pointers
        into the record. What is empty is left out, except the source and the record.
    """
    members = {
        "part": dict(part),
        "record": record,
        "spans": dict(extraction.spans),
        "occurrences": dict(extraction.occurrences),
        "confidence": {pointer: _confidence(each) for pointer, each in extraction.confidence.items()},
        "conflicts": dict(extraction.conflicts),
        "pages_without_text": [] if part else extraction.document.pages_without_text,
        "usage": asdict(extraction.usage),
        "finish_reason": extraction.finish_reason,
    }
    kept = {name: value for name, value in members.items() if value or name == "record"}
    return {"key": key, "source": extraction.document.source, **kept}


def failure_line(key: str, source: str | None, part: Mapping[str, Any], error: Exception) -> Line:
    """Return the line of a failure: ``key``, ``source``, ``part`` if there is one, and ``error``."""
    reason = error.reason if isinstance(error, DocumentError) else str(error)
    where = {"part": dict(part)} if part else {}
    return {"key": key, "source": source, **where, "error": {"type": type(error).__name__, "message": reason}}


def encode_line(line: Line) -> bytes:
    """Return a line as UTF-8, with its line break, and no other that any program would take for one."""
    try:
        return json.dumps(line, ensure_ascii=False).translate(_BREAKS).encode() + b"\n"
    except UnicodeEncodeError:  # the name of a file need not be text
        return json.dumps(line).encode() + b"\n"


def _confidence(confidence: Confidence) -> dict[str, Any]:
    members: dict[str, Any] = {
        "probability": _rounded(confidence.probability),
        "removed": _rounded(confidence.removed),
    }
    if confidence.alternatives is not None:
        members["alternatives"] = {name: _rounded(share) for name, share in confidence.alternatives.items()}
    return members


def _rounded(probability: float) -> float:
    return float(f"{probability:.{_DIGITS}g}")
