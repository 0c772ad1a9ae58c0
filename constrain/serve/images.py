"""Images in messages of clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from constrain.documents import decode_image
from constrain.documents.images import data_of
from constrain.errors import DocumentError
from constrain.serve.errors import APIError
from constrain.serve.fetch import FetchError, fetch
from constrain.serve.models import ServedModel
from constrain.serve.protocol.chat import Picture
from constrain.serve.settings import ServerSettings


@dataclass
class ImageReader:
    """Reads the images of one request.

    Attributes:
        model: the model that is to see them.
        settings: what is allowed.
        count: number of images so far.
    """

    model: ServedModel
    settings: ServerSettings
    count: int = 0

    def read(self, url: str | None, part: str, at: str) -> Picture:
        """Return an image.

        Args:
            url: a ``data:`` URL, or a web address if the server fetches images.
            part: JSON pointer to the part of the message, or to the URL if it stands alone.
            at: JSON pointer to the URL.

        Raises:
            APIError: the model reads no images, the address is not allowed, there are too many images, or this one is
                too large or broken.
        """
        self.check(at if part == at else f"{part}/type")
        self.count += 1
        most = self.settings.max_images
        if self.count > most:
            raise APIError(f"{part}: a request has at most {most} images", param=part, code="too_many_images")
        try:
            content = self._content(url, at)
            decode_image(content, at, self.settings.max_image_pixels)
        except DocumentError as error:
            raise APIError(f"{at}: {error.reason}", param=at, code="invalid_image") from error
        return Picture(content=content)

    def check(self, at: str) -> None:
        """Raise :class:`APIError` if the model reads no images; ``at`` is the JSON pointer to one."""
        if self.model.llm.images is None:
            message = f"{at}: the model {self.model.name!r} reads texts and documents only, no images"
            raise APIError(message, param=at, code="unsupported_content")

    def _content(self, url: str | None, at: str) -> bytes:
        if url is None:
            message = f"{at}: an image is given by a data: URL, not by an id"
            raise APIError(message, param=at, code="unsupported_content")
        if url.startswith("data:"):
            return data_of(url)
        if not self.settings.fetch_images:
            message = f"{at}: this server fetches no images; send it as a data: URL"
            raise APIError(message, param=at, code="image_not_fetched")
        try:
            return fetch(url, self.settings.max_image_bytes, self.settings.fetch_timeout)
        except FetchError as error:
            raise APIError(f"{at}: {error}", param=at, code="image_not_fetched") from error


def image_of(picture: Picture) -> Any:
    """Return a Pillow image; it was decoded before, so there is no error."""
    return decode_image(picture.content, "an image")
