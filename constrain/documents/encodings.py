"""Text from bytes: UTF-8, UTF-16, and other encodings, which are detected."""

from __future__ import annotations

import codecs

from constrain.documents.optional import optional
from constrain.errors import ArgumentError, DocumentError

#: Byte order marks and the codecs that drop them. UTF-32 comes before UTF-16, whose mark is the beginning of its own.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: Encodings that are detected, the more usual first: short texts may be valid in several. That of Thai comes after the
#: others of Asia, since nearly all bytes are valid in it.
_LEGACY = (
    *("cp1252", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257"),
    *("gb18030", "big5", "cp932", "euc_jp", "cp949", "iso8859_2", "iso8859_5", "iso8859_15", "cp1258", "cp874"),
    *("cp866", "cp850", "cp437", "mac_roman"),
)
#: Encodings by those that are declared for them: programs name one where they write an extension of it, and browsers
#: read the extension (https://encoding.spec.whatwg.org/#names-and-labels). Names are Python's, if it has one.
_EXTENSIONS = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "iso-8859-8-i": "iso8859-8",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "x-gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "x-sjis": "cp932",
    "euc_kr": "cp949",
}
#: How texts in ISO-2022-JP, whose bytes are all ASCII, go over to Japanese.
_ESCAPES = (b"\x1b$B", b"\x1b$@")


def check_encoding(encoding: str | None) -> None:
    """Raise an :class:`~constrain.errors.ArgumentError` unless Python knows an encoding of texts by this name."""
    try:
        if encoding is not None:
            "".encode(encoding)
    except LookupError as error:
        raise ArgumentError(f"there is no encoding of texts {encoding!r}; one is 'cp1252', for example") from error


def decode(content: bytes, source: str, declared: str | None = None) -> str:
    """Decode a text, with ``\\n`` at the ends of its lines; arguments and errors as for :func:`decoded`."""
    return decoded(content, source, declared)[0]


def decoded(content: bytes, source: str, declared: str | None = None, encoding: str | None = None) -> tuple[str, str]:
    """Decode a text, and return it, with ``\\n`` at the ends of its lines, and the name of its encoding.

    Args:
        content: the bytes.
        source: name of the document, for errors.
        declared: the encoding that the document names, tried after byte order marks and before detection.
        encoding: the encoding, if it is known.

    Raises:
        DocumentError: the bytes are no text, or not one in ``encoding``, or charset-normalizer is needed and not
            installed.
    """
    used = encoding or encoding_of(content, source, declared)
    try:
        text = content.decode(used, errors="strict" if encoding else "replace")
    except UnicodeError as error:
        raise DocumentError(source, f"it is not in the encoding {encoding}: {error}") from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), used


def encoding_note(encoding: str) -> dict[str, str]:
    """Return the metadata about an encoding: its name, unless it is one of Unicode, which is certain."""
    return {} if encoding.lower().replace("_", "-").startswith("utf") else {"encoding": encoding}


def marked_encoding(content: bytes) -> str | None:
    """Return the encoding that a byte order mark names, or that is UTF-16 without a mark; else ``None``."""
    marked = next((name for mark, name in _MARKS if content.startswith(mark)), None)
    return marked or next((name for name in _utf16(content) if _is_encoded(content, name)), None)


def encoding_of(content: bytes, source: str, declared: str | None = None) -> str:
    """Return the name of a text's encoding; arguments and errors as for :func:`decoded`."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            return name
    first = _EXTENSIONS.get(_known_name(declared), declared) if declared else None
    japanese = "iso2022_jp" if any(escape in content for escape in _ESCAPES) else None
    for candidate in filter(None, (first, japanese, "utf-8", *_utf16(content))):
        if _is_encoded(content, candidate):
            return candidate
    return "utf-8" if _is_damaged_utf8(content) else _detected(content, source)


def _known_name(declared: str) -> str:
    """Return Python's name of an encoding, or its own in lower case if Python does not know it."""
    try:
        return codecs.lookup(declared).name
    except (LookupError, ValueError):  # of names that no encoding can have
        return declared.lower()


def _is_damaged_utf8(content: bytes) -> bool:
    """Whether most of what is not ASCII is UTF-8, so that a few bytes must be wrong rather than all the others."""
    others = [character for character in content.decode("utf-8", "replace") if character > "\x7f"]
    return 0 not in content and 4 * others.count("\ufffd") < len(others)


def _utf16(content: bytes) -> tuple[str, ...]:
    """Return the byte order of UTF-16 without a mark: of alphabets, most of the high bytes are zero."""
    for order, high in (("utf-16-be", content[::2]), ("utf-16-le", content[1::2])):
        if 2 * high.count(0) > len(high):
            return (order,)
    return ()


def _is_encoded(content: bytes, encoding: str) -> bool:
    try:
        return "\0" not in content.decode(encoding)
    except (LookupError, ValueError):
        return False


def _detected(content: bytes, source: str) -> str:
    with optional(source):
        from charset_normalizer import from_bytes
    matches = list(from_bytes(content, cp_isolation=list(_LEGACY))) if 0 not in content else []
    if not matches:
        raise DocumentError(source, "it is not a text: convert it to a format that can be read, such as PDF or UTF-8")
    best = matches[0]
    equal = {match.encoding for match in matches if (match.chaos, match.coherence) == (best.chaos, best.coherence)}
    return next(name for name in _LEGACY if name in equal)
