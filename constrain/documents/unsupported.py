"""Formats that are known by how they begin, and that are not read: their error says what to do."""

from __future__ import annotations

import re

#: What documents of a format are to be saved as, by the format and how it begins.
_FORMATS: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (re.compile(rb"PK\x03\x04.*xl/", re.S), "a spreadsheet (XLSX)", "save it as CSV, and use --column"),
    (re.compile(rb"PK\x03\x04.*ppt/", re.S), "a presentation (PPTX)", "save it as PDF"),
    (re.compile(rb"PK\x03\x04.{22,60}mimetypeapplication/vnd.oasis", re.S), "OpenDocument", "save it as DOCX or PDF"),
    (re.compile(rb"PK\x03\x04.{22,60}mimetypeapplication/epub", re.S), "an e-book (EPUB)", "convert it to HTML or PDF"),
    (re.compile(rb"PK(\x03\x04|\x05\x06)|\x1f\x8b|BZh|\xfd7zXZ|7z\xbc\xaf|Rar!"), "an archive", "unpack it"),
    (
        re.compile(b"\xd0\xcf\x11\xe0.*" + "__substg1.0_".encode("utf-16-le"), re.S),
        "an e-mail of Outlook (MSG)",
        "save it as EML",
    ),
    (
        re.compile(rb"\xd0\xcf\x11\xe0"),
        "in an old format of Office (DOC, XLS, PPT)",
        "save it as DOCX, CSV or PDF",
    ),
    (re.compile(rb"\{\\rtf"), "RTF", "save it as DOCX or PDF"),
    (re.compile(rb"%!PS"), "PostScript", "convert it to PDF"),
)


def why_unsupported(content: bytes) -> str | None:
    """Return why a document in a format that is not read cannot be read, and what to do; ``None`` for any other."""
    if content.startswith(b"PAR1"):
        return "it is a table: name the column of its texts, as the option --column of a run does"
    for beginning, format, advice in _FORMATS:
        if beginning.match(content):
            return f"it is {format}, which is not supported: {advice}"
    return None
