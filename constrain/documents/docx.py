"""Word documents (DOCX)."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

from constrain.documents.document import Document
from constrain.documents.optional import optional
from constrain.errors import DocumentError

if TYPE_CHECKING:
    from docx.document import Document as WordDocument

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
#: Elements whose text counts; what python-docx leaves out, as insertions under review, is inside of others.
_CHARACTERS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
#: Copies of other text: what old programs show in place of a drawing, and what was there before a change.
_COPIES = {
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
    f"{_W}del",
    f"{_W}moveFrom",
    f"{_W}pPr",
    f"{_W}rPr",
}


def read_docx(content: bytes, source: str) -> Document:
    """Read a Word document: headers, paragraphs and tables in their order, and footers.

    A row of a table is a line, with ``" | "`` between its cells. The metadata has the title and the author.

    Raises:
        DocumentError: the file is broken or encrypted, or python-docx is not installed.
    """
    with optional(source):
        import docx
    try:
        word = docx.Document(BytesIO(content))
    except Exception as error:  # of many types, for what can be wrong with archives, XML and their relations
        raise DocumentError(source, _what_is_wrong(content)) from error
    blocks = [*_margins(word, "header"), *_blocks(word.element.body), *_margins(word, "footer")]
    properties = {"title": word.core_properties.title, "author": word.core_properties.author}
    metadata = {name: value for name, value in properties.items() if value}
    return Document("\n\n".join(block for block in blocks if block.strip()), source, metadata)


def _what_is_wrong(content: bytes) -> str:
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        return "it is encrypted, or in the old format DOC: save it as DOCX without a password"
    return "it is broken, or no Word document: open it in Word and save it again"


def _margins(word: WordDocument, name: str) -> list[str]:
    """Return the different texts of the headers or footers of all sections."""
    margins = [getattr(section, kind) for section in word.sections for kind in (f"first_page_{name}", name)]
    texts = ("\n".join(_blocks(margin.part.element)) for margin in margins if not margin.is_linked_to_previous)
    return list(dict.fromkeys(texts))


def _blocks(parent: Any) -> Iterator[str]:
    """Yield the paragraphs and tables inside of an element, also those in content controls and changes."""
    for child in parent.iterchildren("{*}*"):
        if child.tag == f"{_W}p":
            yield "".join(_characters(child))
        elif child.tag == f"{_W}tbl":
            yield "\n".join(map(_row, child.iterchildren(f"{_W}tr")))
        elif child.tag not in _COPIES:
            yield from _blocks(child)


def _row(row: Any) -> str:
    cells = ("\n".join(_blocks(cell)) for cell in row.iterchildren(f"{_W}tc"))
    return " | ".join(" ".join(cell.split()) for cell in cells)


def _characters(element: Any) -> Iterator[str]:
    """Yield the text of a paragraph in pieces."""
    for child in element.iterchildren("{*}*"):
        if child.tag == f"{_W}t":
            yield child.text or ""
        elif child.tag in _CHARACTERS:
            yield _CHARACTERS[child.tag]
        elif child.tag not in _COPIES:
            if child.tag == f"{_W}p":  # of a text box
                yield "\n"
            yield from _characters(child)
