"""PDF documents: text in lines and paragraphs, with what is filled into forms, and a box for every character."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from statistics import median
from threading import Lock
from typing import TYPE_CHECKING

from constrain.documents.document import PAGES_WITHOUT_TEXT, Document, Page
from constrain.documents.optional import optional
from constrain.documents.pdf_columns import Character, Edges, Line, in_columns
from constrain.documents.pdf_fields import fields_of
from constrain.documents.pdf_labels import beside_labels
from constrain.errors import DocumentError

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage, PdfTextPage

#: Separators of the texts of two pages, and of two paragraphs.
PAGE_BREAK = PARAGRAPH_BREAK = "\n\n"

#: PDFium's mark for a hyphen at which a word is broken; the next line follows it at once.
_HYPHEN = "\x02"
#: Stands for characters that a font has no Unicode for.
_UNKNOWN = 0xFFFD
#: Lines belong to different paragraphs if they are this many usual distances, or heights of a line, apart.
_DISTANCES, _HEIGHTS = 1.4, 2.5

#: PDFium is not safe to use from several threads.
PDFIUM = Lock()


def read_pdf(content: bytes, source: str) -> Document:
    """Read a PDF: its text by pages, paragraphs and lines, and the boxes of its characters.

    The text has what is filled into forms, beside the labels. The metadata has the title, the author, and
    ``pages_without_text``, the numbers of pages that are images, such as scans among others.

    Raises:
        DocumentError: the file is broken or encrypted, has no text because it is a scan, or pypdfium2 is not installed.
    """
    with optional(source):
        import pypdfium2
    with PDFIUM:
        try:
            pdf = pypdfium2.PdfDocument(content)
            with closing(pdf):
                return _document(pdf, source)
        except pypdfium2.PdfiumError as error:
            is_encrypted = error.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD
            reason = "it is encrypted: save a copy without a password" if is_encrypted else f"it is broken: {error}"
            raise DocumentError(source, reason) from error


def _document(pdf: PdfDocument, source: str) -> Document:
    texts: list[str] = []
    pages: list[Page] = []
    start, unread = 0, list[int]()
    pdf.init_forms()
    for number, page in enumerate(pdf, 1):
        placed = _Placement(page)
        fields = [(field.text, placed.edges(*field[1:])) for field in fields_of(pdf, page)]
        characters = _text(in_columns(_with_fields(beside_labels(_lines(page, placed)), fields)))
        text = "".join(character.text for character in characters)
        boxes = tuple(character.box for character in characters)
        width, height = page.get_size()
        pages.append(Page(number, start, start + len(text), width, height, boxes))
        texts.append(text)
        start += len(text) + len(PAGE_BREAK)
        if not text and next(page.get_objects(max_depth=1), None) is not None:
            unread.append(number)
        page.close()
    if unread and not any(texts):
        raise DocumentError(source, "it has no text, only images, as a scan: run OCR over it first, such as ocrmypdf")
    named = {"title": pdf.get_metadata_value("Title"), "author": pdf.get_metadata_value("Author")}
    metadata = {name: value for name, value in (named | {PAGES_WITHOUT_TEXT: unread}).items() if value}
    return Document(PAGE_BREAK.join(texts), source, metadata, tuple(pages))


def _lines(page: PdfPage, placed: _Placement) -> list[Line]:
    """Return the lines of a page, in the order of the file, which is that of reading."""
    lines: list[Line] = [[]]
    for character in _characters(page, placed):
        if character.text == _HYPHEN:
            lines[-1].append(Character("-", character.box))
        if character.text in ("\n", _HYPHEN):
            lines.append([])
        elif character.text >= " ":
            lines[-1].append(character)
    return [line for line in map(_stripped, lines) if line]


def _stripped(line: Line) -> Line:
    """Return a line without spaces at its end."""
    length = len(line)
    while length and line[length - 1].text.isspace():
        length -= 1
    return line[:length]


def _with_fields(lines: list[Line], fields: Sequence[tuple[str, Edges]]) -> list[Line]:
    """Put the texts of fields into the lines beside them, or as lines of their own above those that are lower."""
    for text, edges in sorted(fields, key=lambda field: (field[1][1], field[1][0])):
        added = [[Character(each, edges) for each in line] for line in text.split("\n")]
        line = next((line for line in lines if _is_beside(line, edges)), None) if len(added) == 1 else None
        if line is not None:
            place = max((end for end, each in enumerate(line, 1) if each.box and each.box[0] < edges[0]), default=0)
            space = [Character(" ", None)]
            line[:] = _stripped([*line[:place], *space * (place > 0), *added[0], *space, *line[place:]])
        else:
            place = next((number for number, line in enumerate(lines) if _top(line) > edges[1]), len(lines))
            lines[place:place] = added
    return lines


def _is_beside(line: Line, edges: Edges) -> bool:
    """Return whether a line is at the height of the middle of a field."""
    middle = (edges[1] + edges[3]) / 2
    return any(character.box and character.box[1] <= middle <= character.box[3] for character in line)


def _top(line: Line) -> float:
    return median(character.box[1] for character in line if character.box)


def _characters(page: PdfPage, placed: _Placement) -> Iterator[Character]:
    from pypdfium2 import raw

    textpage = page.get_textpage()
    high = ""
    for index in range(textpage.count_chars()):
        character = chr(raw.FPDFText_GetUnicode(textpage, index) or _UNKNOWN)
        if "\ud800" <= character < "\udc00":
            high = character  # the low surrogate follows, with the same box
            continue
        if high:
            character, high = (high + character).encode("utf-16", "surrogatepass").decode("utf-16", "replace"), ""
        yield Character(character, None if raw.FPDFText_IsGenerated(textpage, index) else placed.box(textpage, index))
    textpage.close()


class _Placement:
    """Places characters on a page as it is shown: cropped, rotated, and measured from the top left corner."""

    def __init__(self, page: PdfPage) -> None:
        self._left, self._bottom, self._right, self._top = page.get_bbox()
        self._rotation = page.get_rotation()

    def box(self, textpage: PdfTextPage, index: int) -> Edges:
        """Return the box of a character: its line's height and its width, and its outline where that is larger."""
        tight, loose = textpage.get_charbox(index), textpage.get_charbox(index, loose=True)
        left, bottom = min(tight[0], loose[0]), min(tight[1], loose[1])
        return self.edges(left, bottom, max(tight[2], loose[2]), max(tight[3], loose[3]))

    def edges(self, left: float, bottom: float, right: float, top: float) -> Edges:
        """Return the edges of what is shown, given those in points of the page."""
        if self._rotation == 90:
            return bottom - self._bottom, left - self._left, top - self._bottom, right - self._left
        if self._rotation == 180:
            return self._right - right, bottom - self._bottom, self._right - left, top - self._bottom
        if self._rotation == 270:
            return self._top - top, self._right - right, self._top - bottom, self._right - left
        return left - self._left, self._top - top, right - self._left, self._top - bottom


def _text(lines: list[Line]) -> list[Character]:
    """Return the characters of a page, with line breaks and paragraph breaks between lines."""
    tops = [_top(line) for line in lines]
    heights = [max(character.box[3] - character.box[1] for character in line if character.box) for line in lines]
    distances = [after - before for before, after in pairwise(tops)]
    usual = median(down) if (down := [distance for distance in distances if distance > 0]) else 0.0
    characters = list(lines[0]) if lines else []
    for line, height, distance in zip(lines[1:], heights, distances, strict=False):
        is_paragraph = distance > min(_DISTANCES * usual, _HEIGHTS * height)
        characters += [Character(each, None) for each in (PARAGRAPH_BREAK if is_paragraph else "\n")]
        characters += line
    return characters
