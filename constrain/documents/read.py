"""Reading of documents: the format is that of the suffix, or else of the content."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import TypeAlias

from constrain.documents.document import Document
from constrain.documents.docx import read_docx
from constrain.documents.encodings import decode
from constrain.documents.html import read_html
from constrain.documents.images import IMAGE_SUFFIXES, decode_image
from constrain.documents.mail import read_mail
from constrain.documents.pdf import read_pdf
from constrain.errors import DocumentError

#: Reads a document from its bytes and its source.
Reader: TypeAlias = Callable[[bytes, str], Document]


def read_text(content: bytes, source: str) -> Document:
    """Read a text, in UTF-8, UTF-16 or an encoding that is detected."""
    return Document(decode(content, source), source)


def _read_image(content: bytes, source: str) -> Document:
    width, height = decode_image(content, source).size
    return Document("", source, {"width": width, "height": height}, image=content)


def _refuse_parquet(content: bytes, source: str) -> Document:
    raise DocumentError(source, "it is a table: name the column of its texts, as the option --column of a run does")


#: Readers by suffix. Images have none: they are read where they are named, and left out of folders.
SUFFIXES: dict[str, Reader] = {
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".rst", ".log"), read_text),
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".eml": read_mail,
}
#: Readers by how a document begins, for other suffixes. Headers of e-mails are taken for such only where two follow.
_BEGINNINGS: tuple[tuple[re.Pattern[bytes], Reader], ...] = (
    (re.compile(rb"%PDF-"), read_pdf),
    (re.compile(rb"PK\x03\x04(?=.*word/)", re.DOTALL), read_docx),
    (re.compile(rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|RIFF.{4}WEBP", re.DOTALL), _read_image),
    (re.compile(rb"PAR1"), _refuse_parquet),
    (re.compile(rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype html|html)", re.I | re.S), read_html),
    (
        re.compile(
            rb"((received|return-path|delivered-to|from|to|subject|date|message-id|mime-version): .*\r?\n"
            rb"([ \t].*\r?\n)*){2}",
            re.I,
        ),
        read_mail,
    ),
)


def read(path: str | Path) -> Document:
    """Read a document: text, Markdown, HTML, PDF, DOCX, e-mail or image.

    Args:
        path: the file. The format is that of its suffix, or, if that is not known, of its content.

    Returns:
        The document, whose ``source`` is the path as given.

    Raises:
        DocumentError: the file cannot be read, is broken or encrypted, has no text because it is a scan, or needs a
            library that is not installed (``pip install 'constrain-lm[documents]'``).
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DocumentError(str(path), (error.strerror or str(error)).lower()) from error
    return read_bytes(content, str(path))


def read_bytes(content: bytes, name: str) -> Document:
    """Read a document from its bytes; errors as for :func:`read`.

    Args:
        content: what the file would have.
        name: the ``source`` of the document; its suffix gives the format as the suffix of a path does.
    """
    try:
        return _reader(content, name)(content, name)
    except DocumentError:
        raise
    except Exception as error:  # parsers raise errors of many types for malformed documents
        raise DocumentError(name, f"it is malformed, and cannot be read: {error}") from error


def _reader(content: bytes, name: str) -> Reader:
    suffix = PurePath(name).suffix.lower()
    known = _read_image if suffix in IMAGE_SUFFIXES else SUFFIXES.get(suffix)
    if known is not None:
        return known
    return next((reader for beginning, reader in _BEGINNINGS if beginning.match(content)), read_text)
