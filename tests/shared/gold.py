"""Documents whose records are known, and a perfect extractor for any part of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from constrain.documents import Document, Part
from constrain.engine.pointers import pointer
from constrain.extract import Extraction, Span

FILLER = [
    "The committee met again and found nothing to decide. ",
    "Rain fell on the harbour; the boats stayed in. ",
    "Nach dem Essen gingen alle nach Hause.\n",
    "Η συνάντηση τελείωσε νωρίς.\n\n",
    "会议很早就结束了。",
]

#: Items of which a chunk has a part: they are left out, or have the values that are whole, or parts of values, too.
Partial = Literal["left out", "values", "cut"]


@dataclass
class Gold:
    """A text that is being put together, and the items of its list: the value and the span of each field."""

    text: str = ""
    items: list[dict[str, tuple[Any, Span]]] = field(default_factory=list)

    @property
    def document(self) -> Document:
        return Document(self.text)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [{name: value for name, (value, _) in item.items()} for item in self.items]

    @property
    def spans(self) -> dict[str, Span]:
        """The spans of all values, by their pointers."""
        return {
            pointer(("items", index, name)): span
            for index, item in enumerate(self.items)
            for name, (_, span) in item.items()
        }

    def add_item(self, *pieces: str | tuple[str, Any]) -> None:
        """Append an item to the text: plain text, and names of fields with their values."""
        item: dict[str, tuple[Any, Span]] = {}
        for piece in pieces:
            name, value = piece if isinstance(piece, tuple) else ("", piece)
            if name:
                item[name] = value, Span(len(self.text), len(self.text) + len(str(value)))
            self.text += str(value)
        self.items.append(item)

    def found_in(self, chunk: Part, partial: Partial = "left out", quoted: bool = True) -> Extraction[Any]:
        """The extraction of a perfect extractor from a part of the text, with spans in that part."""
        seen = [_visible(item, chunk, partial == "cut") for item in self.items]
        seen = [item for item in seen if any(value is not None for value, _ in item.values())]
        if partial == "left out":
            seen = [item for item in seen if all(value is not None for value, _ in item.values())]
        record = {"items": [{name: value for name, (value, _) in item.items()} for item in seen]}
        spans = {
            pointer(("items", index, name)): Span(span.start - chunk.start, span.end - chunk.start)
            for index, item in enumerate(seen)
            for name, (_, span) in item.items()
            if span is not None
        }
        return Extraction(record, record, "", [], "stop", document=chunk, spans=spans if quoted else {})


def _visible(item: dict[str, tuple[Any, Span]], chunk: Part, cut: bool) -> dict[str, tuple[Any, Span | None]]:
    """The values of an item as far as they are in a chunk."""
    found: dict[str, tuple[Any, Span | None]] = {}
    for name, (value, span) in item.items():
        start, end = max(span.start, chunk.start), min(span.end, chunk.end)
        text = chunk.whole.text[start:end].strip() if start < end else ""
        if (start, end) == span:
            found[name] = value, span
        elif cut and text and isinstance(value, str):
            start = chunk.whole.text.index(text, start)
            found[name] = text, Span(start, start + len(text))
        else:
            found[name] = None, None
    return found
