"""HTML documents."""

from __future__ import annotations

import re

from constrain.documents.document import Document
from constrain.documents.encodings import decode
from constrain.documents.optional import optional

#: The encoding that a page or its XML declaration names, which stands near the beginning.
_DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_DECLARED_WITHIN = 2048


def read_html(content: bytes, source: str) -> Document:
    """Read a page: its text as it is laid out, with lists and tables, and its title as metadata."""
    declared = _DECLARED.search(content[:_DECLARED_WITHIN])
    markup = decode(content, source, declared[1].decode() if declared else None)
    title = title_of(markup, source)
    return Document(html_to_text(markup, source), source, {"title": title} if title else {})


def html_to_text(markup: str, source: str) -> str:
    """Return the text of a page, with ``\\n`` at the ends of its lines.

    Raises:
        DocumentError: inscriptis is not installed.
    """
    with optional(source):
        from inscriptis import get_text
    lines = get_text(markup).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def title_of(markup: str, source: str) -> str:
    """Return the title of a page, or an empty string."""
    with optional(source):
        from lxml import etree
    root = etree.HTML(markup.encode(), etree.HTMLParser(encoding="utf-8")) if markup.strip() else None
    title = "" if root is None else root.findtext(".//title") or ""
    return " ".join(title.split())
