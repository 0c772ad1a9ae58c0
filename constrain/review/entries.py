"""Data of a document for the page: an entry of the index, for lists and filters, and the data of its view."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from constrain.documents import Box, Document
from constrain.review.fields import Fields, min_known, probability_of
from constrain.review.sources import Found
from constrain.review.utf16 import Utf16Offsets
from constrain.runs import Line, encode_line

#: Decimal places of the edges of boxes, which are shares of a page.
_DIGITS = 4


def index_entry(line: Line, fields: Fields) -> dict[str, Any]:
    """Return the data that the list and the filters need."""
    part = {kind: number for kind, number in line.get("part", {}).items() if kind != "span"}
    return {
        "id": _identity(line),
        "source": line.get("source"),
        "partLabel": ", ".join(f"{kind} {number}" for kind, number in part.items()) or None,
        "error": line.get("error"),
        "finish": line.get("finish_reason"),
        "conflicts": len(line.get("conflicts", {})),
        "least": min_known(map(probability_of, line.get("confidence", {}).values())),
        "fields": {} if "error" in line else fields.summary(line),
    }


def detail(line: Line, found: Found) -> dict[str, Any]:
    """Return the data of the view of a document: offsets as in UTF-16, edges of boxes as shares of their page."""
    document = found.document if found.is_unchanged else None
    text = found.document.text if found.document else None
    offsets = Utf16Offsets(text or "")
    spans = line.get("spans", {}) if document else {}
    occurrences = line.get("occurrences", {}) if document else {}
    members = {
        "id": _identity(line),
        "key": line["key"],
        "source": line.get("source"),
        "part": line.get("part"),
        "record": line.get("record"),
        "confidence": line.get("confidence", {}),
        "conflicts": line.get("conflicts", {}),
        "spans": {pointer: offsets.span(span) for pointer, span in spans.items()},
        "occurrences": {pointer: [*map(offsets.span, places)] for pointer, places in occurrences.items()},
        "boxes": _boxes(document, spans) if document else {},
        "text": text,
        "pages": _pages(found.document, offsets) if found.document else [],
        "note": found.note,
    }
    if "error" in line:
        del members["record"]
    return members


def _identity(line: Line) -> str:
    """Return a digest of a record and where it is from. A person's notes belong to it: other records have none."""
    members = {name: line.get(name) for name in ("key", "source", "part", "record")}
    return blake2b(encode_line(members), digest_size=12).hexdigest()


def without_text(members: Mapping[str, Any], note: str) -> dict[str, Any]:
    """Return the entry without its long members."""
    return {**members, "text": None, "pages": [], "spans": {}, "occurrences": {}, "boxes": {}, "note": note}


def _pages(document: Document, offsets: Utf16Offsets) -> list[dict[str, Any]]:
    return [
        {"number": page.number, "start": offsets.at(page.start), "width": page.width, "height": page.height}
        for page in document.pages
    ]


def _boxes(document: Document, spans: Mapping[str, tuple[int, int]]) -> dict[str, list[list[float]]]:
    sizes = {page.number: (page.width, page.height) for page in document.pages}
    boxes = {pointer: document.boxes(*span) for pointer, span in spans.items()}
    return {pointer: [_shares(box, *sizes[box.page]) for box in found] for pointer, found in boxes.items() if found}


def _shares(box: Box, width: float, height: float) -> list[float]:
    edges = box.left / width, box.top / height, box.right / width, box.bottom / height
    return [box.page, *(round(edge, _DIGITS) for edge in edges)]
