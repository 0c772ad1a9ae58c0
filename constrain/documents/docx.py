"""Word documents (DOCX)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

from constrain.documents.document import Document
from constrain.documents.docx_kinds import as_docx
from constrain.documents.docx_numbers import ON, end_is_deleted, is_deleted, number_paragraphs
from constrain.documents.numerals import raised
from constrain.documents.optional import optional
from constrain.errors import DocumentError

if TYPE_CHECKING:
    from docx.document import Document as WordDocument

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
#: Elements that hold text: of words, and of formulas.
_TEXTS = {f"{_W}t", f"{_M}t"}
#: Elements that stand for a character; what python-docx leaves out, as insertions under review, is inside of others.
_CHARACTERS = {f"{_W}tab": "\t", f"{_W}ptab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
#: Copies of other text: what old programs show in place of a drawing, and what was there before a change.
_COPIES = {
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
    f"{_W}del",
    f"{_W}moveFrom",
    f"{_W}pPr",
    f"{_W}trPr",
    f"{_W}rPr",
}
#: Symbols of forms in fonts that have no Unicode, by font and the last two digits of their code.
_SYMBOLS = {
    "Wingdings": {"6F": "[ ]", "A8": "[ ]", "FD": "[x]", "FE": "[x]", "FB": "✗", "FC": "✓"},
    "Wingdings 2": {"A3": "[ ]", "51": "[x]", "52": "[x]", "53": "[x]", "4F": "✗", "50": "✓"},
}
#: Elements whose text stands above or below other text: runs, readings, powers and fractions.
_INLINE = {f"{_W}r", f"{_W}ruby", f"{_M}sup", f"{_M}num", f"{_M}den"}
#: Content controls, and the like, that may stand around rows and cells.
_WRAPPERS = {f"{_W}{name}" for name in ("sdt", "sdtContent", "customXml", "ins", "moveTo")}


def read_docx(content: bytes, source: str) -> Document:
    """Read a Word document: headers, paragraphs and tables in their order, footnotes and endnotes, and footers.

    A row of a table is a line, with ``" | "`` between its cells. Paragraphs of lists begin with their numbers, or with
    ``*`` for a bullet. The metadata has the title and the author. Files with macros and templates are read as well.

    Raises:
        DocumentError: the file is broken or encrypted, or python-docx is not installed.
    """
    with optional(source):
        import docx
    try:
        word = docx.Document(BytesIO(as_docx(content)))
    except Exception as error:  # of many types, for what can be wrong with archives, XML and their relations
        raise DocumentError(source, _what_is_wrong(content)) from error
    number_paragraphs(word)
    blocks = [*_margins(word, "header"), *_blocks(word.element.body), *_notes(word), *_margins(word, "footer")]
    properties = {"title": word.core_properties.title, "author": word.core_properties.author}
    metadata = {name: value for name, value in properties.items() if value}
    return Document("\n\n".join(block.strip("\n") for block in blocks if block.strip()), source, metadata)


def _what_is_wrong(content: bytes) -> str:
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        return "it is encrypted, or in the old format DOC: save it as DOCX without a password"
    return "it is broken, or no Word document: open it in Word and save it again"


def _margins(word: WordDocument, name: str) -> list[str]:
    """Return the different texts of the headers or footers that the pages of all sections have."""
    has_even_pages = word.settings.odd_and_even_pages_header_footer
    margins: list[Any] = []
    for section in word.sections:
        pages = ["first_page_"] * section.different_first_page_header_footer + [""] + ["even_page_"] * has_even_pages
        margins += [getattr(section, f"{each}{name}") for each in pages]
    texts = ("\n".join(_blocks(margin.part.element)) for margin in margins if not margin.is_linked_to_previous)
    return list(dict.fromkeys(texts))


def _notes(word: WordDocument) -> Iterator[str]:
    """Yield the texts of footnotes, and then those of endnotes."""
    from docx.opc.constants import RELATIONSHIP_TYPE
    from docx.oxml import parse_xml

    relations = word.part.rels.values()
    for kind in (RELATIONSHIP_TYPE.FOOTNOTES, RELATIONSHIP_TYPE.ENDNOTES):
        for notes in (parse_xml(each.target_part.blob) for each in relations if each.reltype == kind):
            for note in notes.iterchildren(f"{_W}footnote", f"{_W}endnote"):
                yield "\n".join(_blocks(note)).strip()


def _blocks(parent: Any) -> Iterator[str]:
    """Yield the paragraphs and tables inside of an element, also those in content controls and changes."""
    begun = ""
    for child in parent.iterchildren("{*}*"):
        if child.tag == f"{_W}p":
            begun += "".join(_characters(child))
            if not end_is_deleted(child):
                yield begun
                begun = ""
        elif child.tag == f"{_W}tbl":
            yield "\n".join(_row(row) for row in _within(child, f"{_W}tr") if not is_deleted(row.find(f"{_W}trPr")))
        elif child.tag not in _COPIES and not _is_to_fill(child):
            yield from _blocks(child)
    if begun:
        yield begun


def _row(row: Any) -> str:
    cells = ("\n".join(_blocks(cell)) for cell in _within(row, f"{_W}tc"))
    return " | ".join(" ".join(cell.split()) for cell in cells)


def _within(parent: Any, tag: str) -> Iterator[Any]:
    """Yield the children with a tag, also those that are wrapped."""
    for child in parent.iterchildren("{*}*"):
        if child.tag == tag:
            yield child
        elif child.tag in _WRAPPERS:
            yield from _within(child, tag)


def _characters(element: Any) -> Iterator[str]:
    """Yield the text of a paragraph in pieces."""
    for child in element.iterchildren("{*}*"):
        if child.tag in _TEXTS:
            yield (child.text or "").replace("\xad", "")  # optional hyphens, which searches would miss words for
        elif child.tag in _CHARACTERS:
            yield _CHARACTERS[child.tag]
        elif child.tag == f"{_W}fldChar":
            yield _choice(child)
        elif child.tag == f"{_W}sym":
            yield _SYMBOLS.get(child.get(f"{_W}font", ""), {}).get(child.get(f"{_W}char", "")[-2:].upper(), "")
        elif child.tag == f"{_W}r" and _is_hidden(child):
            continue
        elif child.tag in _INLINE:
            yield from _inline(child)
        elif child.tag == f"{_W}txbxContent":
            yield "\n{}\n".format("\n".join(_blocks(child)))
        elif child.tag not in _COPIES and not _is_to_fill(child):
            yield from _characters(child)


def _inline(element: Any) -> Iterator[str]:
    """Yield the text of an element that stands above or below other text."""
    if element.tag == f"{_W}ruby":  # the reading comes first in the file
        for base in element.iterchildren(f"{_W}rubyBase"):
            yield from _characters(base)
        for reading in element.iterchildren(f"{_W}rt"):
            yield f"({''.join(_characters(reading))})"
        return
    text = "".join(_characters(element))
    if element.tag == f"{_M}sup":
        yield raised(text)
    elif element.tag == f"{_M}den":
        yield f"/{text}" if text.isalnum() else f"/({text})"
    elif element.tag == f"{_M}num":
        yield text if text.isalnum() else f"({text})"
    else:
        yield raised(text) if _has(element, "vertAlign", {"superscript"}) else text


def _is_to_fill(control: Any) -> bool:
    """Whether a content control shows what is to be filled in, such as "Click here to enter text", and not a value."""
    properties = control.find(f"{_W}sdtPr")
    return properties is not None and _setting(properties, "showingPlcHdr", "0") in ON


def _is_hidden(run: Any) -> bool:
    return _has(run, "vanish", ON)


def _has(run: Any, name: str, values: Collection[str]) -> bool:
    """Whether a property of a run has one of some values."""
    properties = run.find(f"{_W}rPr")
    return properties is not None and _setting(properties, name, "0") in values


def _choice(field: Any) -> str:
    """Return what the field of a form shows that is no text: a box, or one of several options."""
    box, options = field.find(f".//{_W}checkBox"), field.find(f".//{_W}ddList")
    if box is not None:
        return "[x]" if _setting(box, "checked", _setting(box, "default", "0")) in ON else "[ ]"
    if options is None:
        return ""
    entries = [entry.get(f"{_W}val", "") for entry in options.iterchildren(f"{_W}listEntry")]
    chosen = _setting(options, "result", _setting(options, "default", "0"))
    return entries[int(chosen)] if chosen.isdecimal() and int(chosen) < len(entries) else ""


def _setting(field: Any, name: str, default: str) -> str:
    """Return a setting of a field; one without a value is on."""
    found = field.find(f"{_W}{name}")
    return default if found is None else found.get(f"{_W}val", "1")
