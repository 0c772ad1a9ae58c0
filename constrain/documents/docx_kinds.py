"""Kinds of Word files that differ from DOCX in nothing but their name: with macros, and templates."""

from __future__ import annotations

import re
from io import BytesIO
from zipfile import ZipFile

_TYPES = "[Content_Types].xml"
_DOCUMENT = b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
_OTHERS = re.compile(
    rb"application/vnd\.(?:openxmlformats-officedocument\.wordprocessingml\.template|ms-word\.document\.macroEnabled"
    rb"|ms-word\.template\.macroEnabledTemplate)\.main\+xml"
)


def as_docx(content: bytes) -> bytes:
    """Return a file of one of these kinds as DOCX, the only one that python-docx reads; any other as it is.

    Raises:
        BadZipFile, KeyError: it is no archive, or has no list of types.
    """
    with ZipFile(BytesIO(content)) as archive:
        types = archive.read(_TYPES)
        if not _OTHERS.search(types):
            return content
        with ZipFile(changed := BytesIO(), "w") as copy:
            for name in archive.namelist():
                copy.writestr(name, _OTHERS.sub(_DOCUMENT, types) if name == _TYPES else archive.read(name))
    return changed.getvalue()
