"""Images: formats, limits and decoding."""

from __future__ import annotations

import binascii
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from constrain.arguments import refused
from constrain.documents.optional import optional
from constrain.errors import DocumentError

if TYPE_CHECKING:
    from PIL.Image import Image

#: Formats that are decoded, by Pillow's names; others, some of which run programs, are not even tried.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
#: Suffixes of files that are read as images.
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
#: Most pixels of an image: a small file may stand for a very large one.
MAX_PIXELS = 1 << 26


def decode_image(content: bytes, name: str, max_pixels: int = MAX_PIXELS) -> Image:
    """Decode an image: the first frame, turned as its metadata says, in RGB.

    Args:
        content: the file.
        name: what errors call it.
        max_pixels: most pixels (width times height); a larger image is refused before it takes memory.

    Raises:
        DocumentError: it is malformed, too large, or of another format than :data:`FORMATS`.
    """
    with optional(name):
        from PIL import Image, ImageOps, UnidentifiedImageError
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise DocumentError(name, f"an image of {width} by {height} pixels; at most {max_pixels:,} are read")
            return ImageOps.exif_transpose(image).convert("RGB")
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        formats = ", ".join(FORMATS)
        raise DocumentError(name, f"no image that can be read; the formats are {formats}") from error
    except DocumentError:
        raise
    except Exception as error:  # decoders raise errors of many types for malformed images
        raise DocumentError(name, f"a broken image: {error}") from error


def load_image(what: Any, max_pixels: int = MAX_PIXELS) -> Any:
    """Load an image with Pillow.

    Args:
        what: a Pillow image, which is returned as it is; the bytes or the path of a file; or a ``data:`` or ``file:``
            URL.
        max_pixels: see :func:`decode_image`.

    Raises:
        ArgumentError: ``what`` is none of these; other URLs are not fetched.
        DocumentError: the file cannot be read; as for :func:`decode_image`.
    """
    if hasattr(what, "convert") and hasattr(what, "resize"):
        return what
    if isinstance(what, bytes):
        return decode_image(what, "an image", max_pixels)
    if isinstance(what, str) and what.startswith("data:"):
        return decode_image(data_of(what), "data: URL", max_pixels)
    if not isinstance(what, (str, Path)) or (isinstance(what, str) and "://" in what and not what.startswith("file:")):
        raise refused("image", what, "a Pillow image, bytes, a path or a data: URL; other addresses are not fetched")
    return decode_image(_file(what), str(what), max_pixels)


def data_of(url: str) -> bytes:
    """Return the content of a ``data:`` URL (RFC 2397).

    Raises:
        DocumentError: it has no content, or is not base64 as it says.
    """
    head, comma, body = url.partition(",")
    if not comma:
        raise DocumentError("data: URL", "there is no comma before its content")
    if not head.endswith(";base64"):
        return unquote_to_bytes(body)
    try:
        return b64decode(unquote_to_bytes(body), validate=True)
    except binascii.Error as error:
        raise DocumentError("data: URL", f"not base64: {error}") from error


def encoded_image(image: Any) -> bytes:
    """Encode a Pillow image as a PNG file, without loss."""
    written = BytesIO()
    image.convert("RGB").save(written, "PNG", compress_level=1)
    return written.getvalue()


def _file(path: str | Path) -> bytes:
    name = unquote(urlsplit(path).path) if isinstance(path, str) and path.startswith("file:") else path
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise DocumentError(str(path), (error.strerror or str(error)).lower()) from error
