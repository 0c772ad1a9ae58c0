"""E-mails."""

from __future__ import annotations

import re
from collections.abc import Callable
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias

from constrain.documents.document import Document
from constrain.documents.encodings import marked_encoding
from constrain.documents.mail_parts import Attachment, fields_of, mail_parts

#: Returns the text of a file, given its bytes and its name; empty if it has none that can be read.
AttachmentReader: TypeAlias = Callable[[bytes, str], str]

#: Headers that are shown at the beginning of the text, by the name that they have in the metadata.
_HEADERS = {"From": "sender", "To": "recipients", "Cc": "copies", "Subject": "subject", "Date": "date"}
_FORWARDED = "\n\n---------- Forwarded message ----------\n"
_ATTACHED = "\n\n---------- Attachment: {} ----------\n"

_HEADER_LINES = re.compile(rb"(?:[!-9;-~]+:.*\r?\n(?:[ \t].*\r?\n)*)+(?:\r?\n|\Z)")
#: Headers that programs add which send and receive e-mails.
_TRANSPORT = frozenset({"message-id", "mime-version", "received", "return-path", "delivered-to"})
#: Headers that a text may have that a person has saved or typed.
_USUAL = frozenset(
    "from to cc bcc subject date sender reply-to in-reply-to references sent importance priority".split()
)
_ADDRESS = re.compile(r"[^\s@<>]+@[^\s@<>]+")


def read_mail(content: bytes, source: str, read_attached: AttachmentReader) -> Document:
    """Read an e-mail: lines with its headers and the names of attachments, an empty line, and its text.

    The text has all texts that the e-mail shows, in order: of alternatives, the plain text or else the page; of
    reports, such as one that a message was not delivered, the fields. Then come attached texts, and what can be read of
    attached PDF, DOCX and the like, each after a line with its name. Attached messages, such as forwarded ones, follow,
    written as the e-mail itself is.

    The metadata has ``sender``, ``recipients``, ``copies``, ``subject``, ``date`` (ISO 8601, or as it is if it is no
    date), ``attachments``, a list of names, and ``attachments_read``, the names of those that are in the text, as far
    as the e-mail has them.

    Args:
        content: the e-mail.
        source: its name.
        read_attached: reads attached files that are no texts.
    """
    encoding = marked_encoding(content)
    if encoding is not None:  # programs that save texts add marks, which are no part of an e-mail
        content = content.decode(encoding, "replace").encode()
    message = message_from_bytes(content, _class=EmailMessage, policy=policy.default)
    return _document(message, source, "utf-8" if encoding else None, read_attached)


def is_mail(content: bytes) -> bool:
    """Return whether a text without a known suffix is an e-mail, and no text that begins with lines like its headers.

    It has a header of the programs that transport e-mails, or is from an address at a date and has no other headers
    than those that people write.
    """
    if (encoding := marked_encoding(content[:1024])) is not None:
        content = content.decode(encoding, "replace").encode()
    found = _HEADER_LINES.match(content)
    if found is None:
        return False
    headers = message_from_bytes(found[0], policy=policy.compat32)
    names = {name.lower() for name in headers}
    if not names.isdisjoint(_TRANSPORT):
        return True
    has_address = _ADDRESS.search(str(headers.get("From", ""))) is not None
    are_usual = all(name in _USUAL or name.startswith("content-") for name in names)
    return are_usual and has_address and _iso_date(str(headers.get("Date", ""))) is not None


def _document(message: EmailMessage, source: str, charset: str | None, read: AttachmentReader) -> Document:
    fields = {name.lower(): value for name, value in reversed([*fields_of(message)])}
    headers = {name: value for name in _HEADERS if (value := fields.get(name.lower()))}
    metadata: dict[str, Any] = {_HEADERS[name]: value for name, value in headers.items()}
    if "date" in metadata:
        metadata["date"] = _iso_date(metadata["date"]) or metadata["date"]
    parts = mail_parts(message, source, charset)
    body, attached = parts.body, parts.attachments
    if not body and attached and attached[0].text is not None:  # the text itself has a name
        body, attached = attached[0].text, attached[1:]
    if names := [each.name for each in parts.attachments]:
        metadata["attachments"], headers["Attachments"] = names, ", ".join(names)
    texts = [(each.name, text) for each in attached if (text := _text_of(each, read)).strip()]
    if texts:
        metadata["attachments_read"] = [name for name, _ in texts]
    lines = [f"{name}: {value}" for name, value in headers.items()]
    appended = "".join(_ATTACHED.format(name) + text.strip("\n") for name, text in texts)
    forwarded = "".join(_FORWARDED + _document(inner, source, charset, read).text for inner in parts.messages)
    return Document("\n".join([*lines, "", body + appended + forwarded]).strip("\n"), source, metadata)


def _text_of(attachment: Attachment, read: AttachmentReader) -> str:
    """Return the text of an attachment; empty if there is none that can be read."""
    return attachment.text if attachment.text is not None else read(attachment.content, attachment.name)


def _iso_date(date: str) -> str | None:
    """Return a date of a header as ISO 8601, or ``None`` if it is none."""
    try:
        return parsedate_to_datetime(date).isoformat()
    except ValueError:
        return None
