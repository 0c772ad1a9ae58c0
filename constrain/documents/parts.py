"""Parts of documents: pages, paragraphs, rows, and any other range of characters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

from constrain.arguments import check_type, refused
from constrain.documents.document import Document, Page

#: Kinds of parts.
PartKind: TypeAlias = Literal["page", "paragraph", "row"]

#: A paragraph: lines up to an empty one. A row: a line.
_PATTERNS = {"paragraph": re.compile(r"\S(?:.|\n(?!\s*\n))*"), "row": re.compile(r"\S.*")}


@dataclass(frozen=True)
class Part(Document):
    """A part of a document: a document itself, that knows where it stands in the whole.

    Attributes:
        whole: the document that it is a part of, which is no part itself.
        start, end: its characters in the text of the whole.
        number: its number among the parts of its kind, from 1.
    """

    whole: Document = field(default_factory=lambda: Document(""))
    start: int = 0
    number: int = 1

    @property
    def end(self) -> int:
        """Its end in the text of the whole."""
        return self.start + len(self.text)


def part_of(document: Document, start: int, end: int, number: int = 1) -> Part:
    """Return the characters from ``start`` to ``end`` as a part, with their pages and boxes.

    A part of a part is one of the whole; source and metadata are those of the document.
    """
    whole, offset = (document.whole, document.start) if isinstance(document, Part) else (document, 0)
    pages = tuple(_cut(page, start, end) for page in document.pages if page.start < end and start < page.end)
    text = document.text[start:end]
    return Part(text, document.source, document.metadata, pages, whole, offset + start, number)


def parts(document: Document, each: PartKind) -> Iterator[Part]:
    """Yield the parts of a document that are not empty.

    Args:
        document: the document.
        each: ``"page"``; ``"paragraph"``, which ends at an empty line; or ``"row"``, a line. A document without pages
            is a single one.

    Raises:
        ArgumentError: ``each`` is none of these.
    """
    check_type("document", document, Document, "a Document")
    if each not in get_args(PartKind):
        raise refused("each", each, "'page', 'paragraph' or 'row'")
    return _pages(document) if each == "page" else _matches(document, _PATTERNS[each])


def _pages(document: Document) -> Iterator[Part]:
    for page in document.pages or (Page(1, 0, len(document.text)),):
        if document.text[page.start : page.end].strip():
            yield part_of(document, page.start, page.end, page.number)


def _matches(document: Document, pattern: re.Pattern[str]) -> Iterator[Part]:
    for number, match in enumerate(pattern.finditer(document.text), 1):
        yield part_of(document, match.start(), match.end(), number)


def _cut(page: Page, start: int, end: int) -> Page:
    """Return the part of a page between two offsets, with offsets from the first."""
    first, last = max(page.start, start), min(page.end, end)
    boxes = page.boxes[first - page.start : last - page.start]
    return replace(page, start=first - start, end=last - start, boxes=boxes)
