"""E-mails."""

from __future__ import annotations

from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from typing import Any

from constrain.documents.document import Document
from constrain.documents.encodings import decode
from constrain.documents.html import html_to_text

#: Headers that are shown at the beginning of the text, by the name that they have in the metadata.
_HEADERS = {"From": "sender", "To": "recipients", "Cc": "copies", "Subject": "subject", "Date": "date"}


_FORWARDED = "\n\n---------- Forwarded message ----------\n"


def read_mail(content: bytes, source: str) -> Document:
    """Read an e-mail: lines with its headers and the names of attachments, an empty line, and its text.

    Attached messages, such as forwarded ones, follow in the same form.

    The metadata has ``sender``, ``recipients``, ``copies``, ``subject``, ``date`` (ISO 8601, or as it is if it is no
    date) and ``attachments``, a list of names, as far as the e-mail has them.
    """
    message = message_from_bytes(content, _class=EmailMessage, policy=policy.default)
    return _document(message, source)


def _document(message: EmailMessage, source: str) -> Document:
    headers = {name: value for name in _HEADERS if (value := _header(message, name))}
    metadata: dict[str, Any] = {_HEADERS[name]: value for name, value in headers.items()}
    if "date" in metadata:
        metadata["date"] = _iso_date(metadata["date"])
    attachments = [name for part in message.iter_attachments() if (name := part.get_filename())]
    if attachments:
        metadata["attachments"], headers["Attachments"] = attachments, ", ".join(attachments)
    lines = [f"{name}: {value}" for name, value in headers.items()]
    forwarded = "".join(_FORWARDED + _document(inner, source).text for inner in _attached_messages(message))
    return Document("\n".join([*lines, "", _body(message, source) + forwarded]).strip("\n"), source, metadata)


def _attached_messages(message: EmailMessage) -> Iterator[EmailMessage]:
    for part in message.iter_attachments():
        content = part.get_payload() if part.get_content_type() == "message/rfc822" else None
        if isinstance(content, list) and content and isinstance(content[0], EmailMessage):
            yield content[0]


def _header(message: EmailMessage, name: str) -> str:
    """Return a header in one line, or an empty string."""
    try:
        value = str(message.get(name, ""))
    except Exception:  # the standard library raises errors of many types for malformed headers
        return ""
    return " ".join(value.encode("utf-8", "surrogateescape").decode("utf-8", "replace").split())


def _iso_date(date: str) -> str:
    try:
        return parsedate_to_datetime(date).isoformat()
    except ValueError:
        return date


def _body(message: EmailMessage, source: str) -> str:
    """Return the plain text of a message, or if it has none, that of its HTML."""
    for kind in ("plain", "html"):
        part = message.get_body((kind,))
        content = part.get_payload(decode=True) if part is not None else None
        if part is not None and isinstance(content, bytes) and content.strip():
            text = decode(content, source, part.get_content_charset())
            return text if kind == "plain" else html_to_text(text, source)
    return ""
