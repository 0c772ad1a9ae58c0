"""The parts of an e-mail: its texts, its attachments, and the messages inside of it."""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from mimetypes import guess_extension
from typing import Any

from constrain.documents.encodings import decode
from constrain.documents.flowed import unwrapped
from constrain.documents.html import declared_encoding, html_to_text

#: Which of several alternatives is read: the first of these that has text, then the others in their order.
_PREFERRED = ("text/plain", "text/html", "multipart/related", "multipart/mixed", "multipart/alternative")
#: Kinds of ``message/*`` that are messages. The others are fields, such as those that say why one was not delivered.
_MESSAGES = frozenset({"rfc822", "global", "news", "partial"})
#: Transfer encodings that leave a text as it is.
_AS_IT_IS = frozenset({"", "7bit", "8bit", "binary"})


@dataclass(frozen=True)
class Attachment:
    """A file that is attached to an e-mail.

    Attributes:
        name: its name.
        content: its bytes.
        text: what it says if it is a text by its content type, else ``None``.
    """

    name: str
    content: bytes
    text: str | None = None


@dataclass
class Parts:
    """What an e-mail consists of.

    Attributes:
        texts: the texts that it shows, in order; of alternatives, one.
        attachments: its attachments, in order.
        messages: messages inside of it, such as forwarded ones.
    """

    texts: list[str] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    messages: list[EmailMessage] = field(default_factory=list)

    @property
    def body(self) -> str:
        """The texts, with an empty line between them."""
        texts = [text for text in self.texts if text.strip()]
        return texts[0] if len(texts) == 1 else "\n\n".join(text.strip("\n") for text in texts)

    def add(self, other: Parts) -> None:
        """Add those of another part."""
        self.texts += other.texts
        self.attachments += other.attachments
        self.messages += other.messages


def mail_parts(message: EmailMessage, source: str, charset: str | None) -> Parts:
    """Take an e-mail apart.

    Args:
        message: the e-mail.
        source: its name, for errors.
        charset: the encoding of texts without a transfer encoding, instead of the one that they name.

    Raises:
        DocumentError: a text is none, or a library that reads HTML is not installed.
    """
    return _Walk(source, charset).parts(message)


def fields_of(message: EmailMessage) -> Iterator[tuple[str, str]]:
    """Yield the names and values of headers; a value is in one line, and empty if it is malformed."""
    for name, raw in message.raw_items():
        try:
            value = str(message.policy.header_fetch_parse(name, raw))
        except Exception:  # the standard library raises errors of many types for malformed headers
            value = ""
        yield name, " ".join(value.encode("utf-8", "surrogateescape").decode("utf-8", "replace").split())


@dataclass(frozen=True)
class _Walk:
    source: str
    charset: str | None

    def parts(self, part: EmailMessage) -> Parts:
        payload: Any = part.get_payload()
        if part.get_content_maintype() == "message" and isinstance(payload, list):
            return self._of_messages(part, [_decoded(each, part) for each in payload])
        if part.get_content_maintype() == "multipart" and isinstance(payload, list):
            return self._of_several(part.get_content_subtype(), payload)
        if part.get_content_maintype() in ("text", "multipart"):  # a multipart without parts is broken
            return self._of_bytes(part)
        name, content = part.get_filename() or _name(part), part.get_payload(decode=True)
        return Parts(attachments=[Attachment(name, content if isinstance(content, bytes) else b"")] if name else [])

    def _of_messages(self, part: EmailMessage, messages: list[EmailMessage]) -> Parts:
        if part.get_content_subtype() in _MESSAGES:
            return Parts(messages=messages)
        return _of_text(part, b"", "\n\n".join(map(_fields, messages)))

    def _of_several(self, kind: str, children: Sequence[EmailMessage]) -> Parts:
        found = Parts()
        if kind == "related":  # the first is a page, the others are its images
            rest = [child for child in children[1:] if child.is_attachment()]
            children = [*children[:1], *rest]
        each = [self.parts(child) for child in children]
        if kind == "alternative":
            ranked = sorted(range(len(each)), key=lambda number: _rank(children[number]))
            shown = next((number for number in ranked if each[number].body), None)
            for number, parts in enumerate(each):
                parts.texts = parts.texts if number == shown else []
        for parts in each:
            found.add(parts)
        return found

    def _of_bytes(self, part: EmailMessage) -> Parts:
        content = part.get_payload(decode=True)
        if not isinstance(content, bytes) or not content.strip():
            return Parts()
        encoding = str(part.get("Content-Transfer-Encoding", "")).strip().lower()
        declared = self.charset if self.charset and encoding in _AS_IT_IS else part.get_content_charset()
        if part.get_content_type() == "text/html" and declared in (None, "us-ascii"):  # which is the default
            declared = declared_encoding(content) or declared
        text = decode(content, self.source, declared)
        if part.get_content_type() == "text/html":
            text = html_to_text(text, self.source)
        elif part.get_content_type() == "text/rfc822-headers":
            text = _fields(_message(content))
        elif _parameter(part, "format") == "flowed":
            text = unwrapped(text, _parameter(part, "delsp") == "yes")
        return _of_text(part, content, text)


def _of_text(part: EmailMessage, content: bytes, text: str) -> Parts:
    name = part.get_filename()
    is_attached = part.is_attachment() or name is not None
    return Parts(attachments=[Attachment(name or "text", content, text)]) if is_attached else Parts([text])


def _parameter(part: EmailMessage, name: str) -> str:
    """Return a parameter of the content type in lower case; ``""`` if there is none."""
    return str(part.get_param(name, "")).strip().lower()


def _fields(message: EmailMessage) -> str:
    """Return the headers of a message as lines."""
    return "\n".join(f"{name}: {value}" for name, value in fields_of(message) if value)


def _decoded(message: EmailMessage, part: EmailMessage) -> EmailMessage:
    """Return a message inside of a part; some programs encode all of it, which no standard allows."""
    encoding, payload = str(part.get("Content-Transfer-Encoding", "")).strip().lower(), message.get_payload()
    if encoding != "base64" or message.keys() or not isinstance(payload, str):
        return message
    try:
        return _message(binascii.a2b_base64(payload))
    except ValueError:
        return message


def _message(content: bytes) -> EmailMessage:
    return message_from_bytes(content, _class=EmailMessage, policy=policy.default)


def _name(part: EmailMessage) -> str:
    """Return a name for an attachment without a file name; ``""`` for an inline part, such as an image."""
    if not part.is_attachment() and part.get_content_maintype() != "application":
        return ""
    return f"attachment{guess_extension(part.get_content_type()) or ''}"


def _rank(part: EmailMessage) -> int:
    kind = part.get_content_type()
    return _PREFERRED.index(kind) if kind in _PREFERRED else len(_PREFERRED)
