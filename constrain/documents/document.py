"""A document: its text or image, where it comes from, and where its characters stand on pages."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

from constrain.arguments import check_text
from constrain.documents.images import encoded_image
from constrain.errors import ArgumentError

if TYPE_CHECKING:
    from PIL.Image import Image

#: In the metadata, the numbers of pages that are images, such as scans among others.
PAGES_WITHOUT_TEXT = "pages_without_text"


@dataclass(frozen=True)
class Box:
    """A rectangle on a page, in PDF points (1/72 inch) from the top left corner.

    Attributes:
        page: number of the page, from 1.
        left, top, right, bottom: the edges.
    """

    page: int
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Page:
    """A page of a document.

    Attributes:
        number: its number, from 1.
        start, end: the characters of the document's text that stand on it.
        width, height: size in PDF points.
        boxes: for each of these characters its left, top, right and bottom edge, or ``None`` for a character without
            a place, such as a line break that the reader added. Empty if the reader knows no places.
    """

    number: int
    start: int
    end: int
    width: float = 0.0
    height: float = 0.0
    boxes: tuple[tuple[float, float, float, float] | None, ...] = ()


@dataclass(frozen=True)
class Document:
    """A text, or an image, to extract records from.

    Attributes:
        text: the text; empty for an image.
        source: where it comes from, such as a path; ``None`` if it was given as a string.
        metadata: further properties, such as the title of a PDF or the sender of an e-mail.
        pages: its pages, in order; empty if the format has none.
        image: the file of an image, which models with a vision tower read in place of a text.
    """

    text: str
    source: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    pages: tuple[Page, ...] = ()
    image: bytes | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        check_text("the text of a document", self.text)

    @classmethod
    def of(cls, what: Any) -> Document:
        """Return a document; a string or a Pillow image becomes one without a source.

        Raises:
            ArgumentError: ``what`` is none of these.
        """
        if isinstance(what, Document):
            return what
        if isinstance(what, os.PathLike):
            raise ArgumentError(f"{what!r} is a path, and no document; constrain.documents.read reads files")
        return cls("", image=encoded_image(what)) if hasattr(what, "convert") else cls(what)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but white space, and no image."""
        return self.image is None and not self.text.strip()

    @property
    def pages_without_text(self) -> list[int]:
        """Numbers of the pages that are images, as far as the document has pages."""
        return list(self.metadata.get(PAGES_WITHOUT_TEXT, ())) if self.pages else []

    @property
    def identity(self) -> str:
        """Identity of its content: the text, or a digest of the image."""
        return self.text if self.image is None else f"image {blake2b(self.image, digest_size=16).hexdigest()}"

    def page_at(self, offset: int) -> Page | None:
        """Return the page that the character at ``offset`` stands on, or ``None`` if there are no pages."""
        index = bisect_right([page.start for page in self.pages], offset) - 1
        return self.pages[index] if index >= 0 else None

    def boxes(self, start: int, end: int) -> list[Box]:
        """Return the places of the characters from ``start`` to ``end``: one box for each line of each page."""
        boxes: list[Box] = []
        for page in self.pages:
            if page.boxes:
                inside = page.boxes[max(start - page.start, 0) : max(end - page.start, 0)]
                boxes += _lines(page.number, inside)
        return boxes


def _lines(page: int, places: tuple[tuple[float, float, float, float] | None, ...]) -> list[Box]:
    """Join the boxes of neighbouring characters on the same line."""
    lines: list[Box] = []
    for place in places:
        if place is None:
            continue
        box = Box(page, *place)
        if lines and _share_a_line(lines[-1], box):
            last = lines[-1]
            left, right = min(last.left, box.left), max(last.right, box.right)
            lines[-1] = Box(page, left, min(last.top, box.top), right, max(last.bottom, box.bottom))
        else:
            lines.append(box)
    return lines


def _share_a_line(first: Box, second: Box) -> bool:
    """Whether two boxes are side by side, in either direction of writing: most of the lower one's height is shared."""
    shared = min(first.bottom, second.bottom) - max(first.top, second.top)
    return 2 * shared > min(first.bottom - first.top, second.bottom - second.top)


DocumentLike: TypeAlias = "str | Document | Image"
"""A document, its text, or a Pillow image."""
