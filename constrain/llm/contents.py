"""Contents of messages: texts and images, in the forms in which people write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from constrain.documents import load_image
from constrain.errors import ArgumentError

_TEXTS = ("text", "input_text", "output_text")
_IMAGES = ("image", "image_url", "input_image")
_FORM = (
    "an image in a message is {'type': 'image', 'image': ...}, with a Pillow image, a path, bytes or a data: URL; or "
    "{'type': 'image_url', 'image_url': {'url': ...}}"
)


def with_images(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Any]]:
    """Return a conversation in the form that chat templates take, and its images in order.

    Parts of contents are ``{"type": "text", "text": ...}`` and ``{"type": "image", "image": ...}``, or those of
    OpenAI's APIs: ``image_url``, ``input_text``, ``input_image``; :func:`constrain.documents.load_image` reads them.

    Raises:
        ArgumentError: an image has none of these forms, or is given by a web address.
        DocumentError: the file of an image cannot be read.
    """
    images: list[Any] = []
    return [_message(message, images) for message in messages], images


def _message(message: Mapping[str, Any], images: list[Any]) -> Mapping[str, Any]:
    content = message.get("content")
    if not isinstance(content, (list, tuple)):
        return message
    return {**message, "content": [_part(part, images) for part in content]}


def _part(part: Any, images: list[Any]) -> Any:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in _TEXTS:
        return {**part, "type": "text"}
    if kind not in _IMAGES:
        return part
    given = part.get(kind if kind != "input_image" else "image_url")
    image = given.get("url") if isinstance(given, Mapping) else given
    if image is None:
        raise ArgumentError(_FORM)
    images.append(load_image(image))
    return {"type": "image"}
