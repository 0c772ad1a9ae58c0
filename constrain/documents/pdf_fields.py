"""What is filled into a page of a PDF: the values of form fields, and texts that were written on the page."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

#: Flags of annotations that no screen shows (PDF 1.7, table 165), and of text fields for passwords (table 228).
_HIDDEN, _PASSWORD = 1 << 1 | 1 << 5, 1 << 13


class PdfField(NamedTuple):
    """A field with what it shows, which may have several lines.

    Attributes:
        text: what it shows.
        left, bottom, right, top: its edges, in points of the page.
    """

    text: str
    left: float
    bottom: float
    right: float
    top: float


def fields_of(pdf: PdfDocument, page: PdfPage) -> Iterator[PdfField]:
    """Yield the fields of a page that show something; the forms of the document have been initialised."""
    from pypdfium2 import raw

    for index in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        try:
            text, edges = _text(pdf, annotation), raw.FS_RECTF()
            if text and raw.FPDFAnnot_GetRect(annotation, edges):
                yield PdfField(text, edges.left, edges.bottom, edges.right, edges.top)
        finally:
            raw.FPDFPage_CloseAnnot(annotation)


def _text(pdf: PdfDocument, annotation: Any) -> str:
    from pypdfium2 import raw

    kind = raw.FPDFAnnot_GetSubtype(annotation)
    if raw.FPDFAnnot_GetFlags(annotation) & _HIDDEN:
        return ""
    if kind == raw.FPDF_ANNOT_FREETEXT:
        return _string(lambda *buffer: raw.FPDFAnnot_GetStringValue(annotation, b"Contents", *buffer))
    return _value(pdf.formenv, annotation) if kind == raw.FPDF_ANNOT_WIDGET and pdf.formenv else ""


def _value(form: Any, field: Any) -> str:
    """Return what a form field shows; boxes are as those of pages in HTML."""
    from pypdfium2 import raw

    kind = raw.FPDFAnnot_GetFormFieldType(form, field)
    if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        return "[x]" if raw.FPDFAnnot_IsChecked(form, field) else "[ ]"
    if kind in (raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX):
        options = range(raw.FPDFAnnot_GetOptionCount(form, field))
        chosen = [option for option in options if raw.FPDFAnnot_IsOptionSelected(form, field, option)]
        if chosen:
            return "\n".join(_label(form, field, option) for option in chosen)
    elif kind != raw.FPDF_FORMFIELD_TEXTFIELD or raw.FPDFAnnot_GetFormFieldFlags(form, field) & _PASSWORD:
        return ""
    return _string(lambda *buffer: raw.FPDFAnnot_GetFormFieldValue(form, field, *buffer))


def _label(form: Any, field: Any, option: int) -> str:
    from pypdfium2 import raw

    return _string(lambda *buffer: raw.FPDFAnnot_GetOptionLabel(form, field, option, *buffer))


def _string(write: Callable[..., int]) -> str:
    """Return the text that a function of PDFium writes into a buffer, in lines."""
    from pypdfium2 import raw

    size = write(None, 0)
    buffer = ctypes.create_string_buffer(size)
    write(ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)), size)
    text = buffer.raw.decode("utf-16-le", "replace").rstrip("\0")
    lines = ("".join(filter(str.isprintable, line)).strip() for line in text.replace("\r", "\n").split("\n"))
    return "\n".join(filter(None, lines))
