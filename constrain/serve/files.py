"""Files in messages: documents of which the model reads the text."""

from __future__ import annotations

from base64 import b64decode

from constrain.documents import read_bytes
from constrain.errors import DocumentError
from constrain.serve.errors import APIError


def file_text(name: str | None, data: str | None, at: str) -> str:
    """Return the text of a file in a message, and a blank line.

    Args:
        name: its name, whose suffix is the format; else the content tells it.
        data: its content in base64, as such or as a ``data:`` URL.
        at: JSON pointer to the part of the message.

    Raises:
        APIError: the content is missing or broken, or is no document with text.
    """
    where = f"{at}/file_data"
    if data is None:
        message = f"{where}: the content is missing; files that are given by an id or an address are not read"
        raise APIError(message, param=where, code="unsupported_content")
    encoded = data.partition(",")[2] if data.startswith("data:") else data
    try:
        content = b64decode(encoded, validate=True)
    except ValueError as error:
        raise APIError(f"{where}: not base64: {error}", param=where, code="invalid_value") from error
    try:
        document = read_bytes(content, name or "file")
    except DocumentError as error:
        raise APIError(f"{where}: {error}", param=where, code="invalid_value") from error
    if document.image is not None:
        message = f"{where}: an image; images are parts of their own, image_url or input_image"
        raise APIError(message, param=where, code="unsupported_content")
    return f"{document.text}\n\n"
