"""Images in messages."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import torch

from constrain.errors import ArgumentError
from constrain.model import ExLlamaV2, ExLlamaV2MMEmbedding, ExLlamaV2VisionTower
from constrain.tokenizer import ExLlamaV2Tokenizer

_MOST_KEPT = 64


def images_in(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the images of a conversation in order: the parts ``{"type": "image", "image": ...}`` of contents.

    Raises:
        ArgumentError: a part of this type has no image, or an image is given by its address.
    """
    return [_image(part) for part in _parts(messages) if part.get("type") in ("image", "image_url")]


def _parts(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        content = message.get("content")
        yield from (part for part in content if isinstance(part, Mapping)) if isinstance(content, list) else ()


def _image(part: Mapping[str, Any]) -> Any:
    if part["type"] == "image_url" or part.get("image") is None:
        raise ArgumentError("an image in a message is {'type': 'image', 'image': ...}, with an image of PIL")
    return part["image"]


class MessageImages:
    """Makes embeddings of the images of conversations.

    Recent ones are kept: an image has the same ids again, and so its place in the prefix cache.
    """

    def __init__(self, tower: ExLlamaV2VisionTower, model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer) -> None:
        """
        Args:
            tower: the loaded vision tower.
            model, tokenizer: the loaded text model and its tokenizer.
        """
        self._tower, self._model, self._tokenizer = tower, model, tokenizer
        self._kept: OrderedDict[bytes, ExLlamaV2MMEmbedding] = OrderedDict()
        self._lock = threading.Lock()

    def placed(self, ids: torch.Tensor, images: Sequence[Any]) -> tuple[torch.Tensor, list[ExLlamaV2MMEmbedding]]:
        """Put embeddings in the place of the tokens that stand for images.

        Args:
            ids: a prompt, int64 of shape (1, n).
            images: its images, in order.

        Returns:
            The prompt, int64 of shape (1, m), and the embeddings that it refers to.

        Raises:
            ArgumentError: an image is none, or the chat template does not write a token for every image.
        """
        token = self._tokenizer.single_id(self._tower.image_token)
        places = [place for place, each in enumerate(ids[0].tolist()) if each == token]
        if len(places) != len(images):
            raise ArgumentError(
                f"the chat template writes {len(places)} times {self._tower.image_token} for {len(images)} images"
            )
        embeddings = [self._embedding(image) for image in images]
        parts, start = [], 0
        for place, embedding in zip(places, embeddings, strict=True):
            parts += [ids[:, start:place], embedding.get_ids_tensor()]
            start = place + 1
        return torch.cat([*parts, ids[:, start:]], dim=1), embeddings

    def _embedding(self, image: Any) -> ExLlamaV2MMEmbedding:
        pixels = self._tower.pixels(image)
        key = blake2b(pixels.numpy().tobytes() + str(pixels.shape).encode()).digest()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._tower.embeddings_of_pixels(self._model, self._tokenizer, pixels)
            self._kept.move_to_end(key)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            return self._kept[key]
