"""Reading of documents: the format is that of the suffix, or else of the content."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from constrain.arguments import check_type
from constrain.documents.document import Document
from constrain.documents.docx import read_docx
from constrain.documents.encodings import check_encoding, decoded, encoding_note
from constrain.documents.html import read_html
from constrain.documents.images import IMAGE_SUFFIXES, decode_image
from constrain.documents.mail import is_mail, read_mail
from constrain.documents.pdf import read_pdf
from constrain.documents.unsupported import why_unsupported
from constrain.errors import DocumentError

#: Reads a document from its bytes and its source; texts and pages also take an encoding.
Reader: TypeAlias = Callable[..., Document]


def read_text(content: bytes, source: str, encoding: str | None = None) -> Document:
    """Read a text, in UTF-8, UTF-16, the given encoding or one that is detected."""
    text, used = decoded(content, source, encoding=encoding)
    return Document(text, source, encoding_note(used))


def _read_image(content: bytes, source: str) -> Document:
    width, height = decode_image(content, source).size
    return Document("", source, {"width": width, "height": height}, image=content)


def _read_mail(content: bytes, source: str) -> Document:
    return read_mail(content, source, _read_attached)


def _read_attached(content: bytes, name: str) -> str:
    """Return the text of an attached file; empty if it has none, or none that can be read."""
    try:
        return read_bytes(content, name).text if PurePath(name).suffix.lower() in SUFFIXES else ""
    except DocumentError:
        return ""


#: Readers by suffix. Images have none: they are read where they are named, and left out of folders.
SUFFIXES: dict[str, Reader] = {
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".rst", ".log"), read_text),
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    ".pdf": read_pdf,
    **dict.fromkeys((".docx", ".docm", ".dotx", ".dotm"), read_docx),
    ".eml": _read_mail,
}
#: Readers by how a document begins, for other suffixes.
_BEGINNINGS: tuple[tuple[Callable[[bytes], Any], Reader], ...] = (
    (re.compile(rb"%PDF-").match, read_pdf),
    (re.compile(rb"PK\x03\x04(?=.*word/)", re.DOTALL).match, read_docx),
    (re.compile(rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|RIFF.{4}WEBP", re.DOTALL).match, _read_image),
    (
        re.compile(rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype html|html)", re.I | re.S).match,
        read_html,
    ),
    (is_mail, _read_mail),
)


def read(path: str | Path, *, encoding: str | None = None) -> Document:
    """Read a document: text, Markdown, HTML, PDF, DOCX, e-mail or image.

    Args:
        path: the file. The format is that of its suffix, or, if that is not known, of its content.
        encoding: the encoding of texts and pages; by default that of their mark, UTF-8, or one that is detected.

    Returns:
        The document, whose ``source`` is the path as given. An encoding that was detected is in the metadata.

    Raises:
        ArgumentError: there is no such encoding.
        DocumentError: the file cannot be read, is broken or encrypted, is in a format that is not supported or not in
            the encoding, has no text because it is a scan, or needs a library that is not installed
            (``pip install 'constrain-lm[documents]'``).
    """
    check_type("path", path, (str, Path), "a str or a Path")
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: no file can have such a name
        raise DocumentError(str(path), (getattr(error, "strerror", None) or str(error)).lower()) from error
    return read_bytes(content, str(path), encoding=encoding)


def read_bytes(content: bytes, name: str, *, encoding: str | None = None) -> Document:
    """Read a document from its bytes; errors as for :func:`read`.

    Args:
        content: what the file would have.
        name: the ``source`` of the document; its suffix gives the format as the suffix of a path does.
        encoding: as for :func:`read`.
    """
    check_type("content", content, bytes, "bytes")
    check_encoding(encoding)
    reader = _reader(content, name)
    try:
        if reader in (read_text, read_html):
            return reader(content, name, encoding)
        return reader(content, name)
    except DocumentError:
        raise
    except Exception as error:  # parsers raise errors of many types for malformed documents
        raise DocumentError(name, f"it is malformed, and cannot be read: {error}") from error


def _reader(content: bytes, name: str) -> Reader:
    suffix = PurePath(name).suffix.lower()
    known = _read_image if suffix in IMAGE_SUFFIXES else SUFFIXES.get(suffix)
    if known is not None:
        return known
    reader = next((reader for begins, reader in _BEGINNINGS if begins(content)), read_text)
    reason = why_unsupported(content) if reader is read_text else None
    if reason is not None:
        raise DocumentError(name, reason)
    return reader
