"""Pages of PDF documents as images."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from constrain.documents.optional import optional
from constrain.documents.pdf import PDFIUM
from constrain.errors import DocumentError

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

#: Pixels a point, and the quality of WebP: what one can read on a screen, at about 100 kB for a full page.
_SCALE, _QUALITY = 1.5, 45
#: Effort of the compression, of 0 to 6. More takes twice the time for 2% less.
_EFFORT = 2


def page_images(path: str, numbers: Sequence[int]) -> list[bytes]:
    """Render pages of a PDF as they are shown: cropped and rotated.

    Args:
        path: the file.
        numbers: numbers of the pages, from 1.

    Returns:
        The pages in WebP.

    Raises:
        DocumentError: the file cannot be read, or a library is not installed.
    """
    with optional(path):
        import PIL.Image  # noqa: F401  # pypdfium2 needs it for images
        import pypdfium2
    with PDFIUM:
        try:
            with closing(pypdfium2.PdfDocument(Path(path).read_bytes())) as pdf:
                pdf.init_forms()  # so that values of fields are shown
                return [_image(pdf[number - 1]) for number in numbers]
        except (OSError, pypdfium2.PdfiumError) as error:
            raise DocumentError(path, f"its pages cannot be rendered: {error}") from error


def _image(page: PdfPage) -> bytes:
    image = BytesIO()
    page.render(scale=_SCALE).to_pil().convert("RGB").save(image, "webp", quality=_QUALITY, method=_EFFORT)
    return image.getvalue()
