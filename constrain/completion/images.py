"""Images of conversations: embeddings in the place of the tokens by which a chat template names them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import Any

import torch

from constrain.errors import ArgumentError, GenerationError
from constrain.model import ExLlamaV2, ExLlamaV2MMEmbedding, ExLlamaV2VisionTower
from constrain.runtime import Runtime

#: Most images whose embeddings are cached, and most bytes of these.
_MAX_CACHED, _MAX_BYTES = 64, 1 << 30


class MessageImages:
    """Encodes conversations with images.

    Embeddings of recent images are cached, so that an image that occurs again has the same ids and hits the prefix
    cache. Two different images have no id in common.
    """

    def __init__(self, tower: ExLlamaV2VisionTower, runtime: Runtime) -> None:
        """
        Args:
            tower: the loaded vision tower.
            runtime: runs the text model.
        """
        self._tower, self._runtime = tower, runtime
        self._tokenizer, self._max_tokens = runtime.tokenizer, runtime.max_seq_len
        self._cached: OrderedDict[bytes, ExLlamaV2MMEmbedding] = OrderedDict()
        self._lock = threading.Lock()

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        images: Iterable[Any],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> tuple[torch.Tensor, list[ExLlamaV2MMEmbedding]]:
        """Encode a conversation with the chat template.

        Args:
            messages: the conversation; ``{"type": "image"}`` stands for an image in a content.
            images: Pillow images, in order.
            tools, variables: see :meth:`constrain.tokenizer.ExLlamaV2Tokenizer.apply_chat_template`.

        Returns:
            The prompt, int64 of shape (1, n), and the embeddings that it refers to.

        Raises:
            ArgumentError: an image is not a Pillow image, or the chat template does not write one token for each.
            GenerationError: the images have too many tokens.
            TokenizerError: the chat template refuses the messages.
        """
        text = self._tokenizer.render_chat(messages, tools=tools, **variables)
        ids = self._tokenizer.encode_prompt(self._tower.expanded(text))
        return self.placed(ids, images)

    def placed(self, ids: torch.Tensor, images: Iterable[Any]) -> tuple[torch.Tensor, list[ExLlamaV2MMEmbedding]]:
        """Put embeddings in the place of the tokens that stand for images.

        Args:
            ids: a prompt, int64 of shape (1, n).
            images: its images, in order.

        Returns:
            The prompt, int64 of shape (1, m), and the embeddings that it refers to.

        Raises:
            ArgumentError: an image is not a Pillow image, or the prompt does not have one token for each.
            GenerationError: the images have too many tokens.
        """
        token = self._tokenizer.single_id(self._tower.image_token)
        places = [place for place, each in enumerate(ids[0].tolist()) if each == token]
        inputs = self._inputs(images)
        if len(places) != len(inputs):
            raise ArgumentError(
                f"the chat template writes {self._tower.image_token} {len(places)} times for {len(inputs)} images; "
                "it has to write one for each"
            )
        embeddings = [self._embedding(pixels) for pixels in inputs]
        parts, start = [], 0
        for place, embedding in zip(places, embeddings, strict=True):
            parts += [ids[:, start:place], embedding.get_ids_tensor()]
            start = place + 1
        return torch.cat([*parts, ids[:, start:]], dim=1), embeddings

    def _inputs(self, images: Iterable[Any]) -> list[torch.Tensor]:
        """Return the inputs of the tower; raises as soon as they are longer than the context."""
        inputs: list[torch.Tensor] = []
        length = 0
        for image in images:
            inputs.append(self._tower.pixels(image))
            length += self._tower.length(inputs[-1])
            if length > self._max_tokens:
                raise GenerationError(
                    f"{len(inputs)} images have {length} tokens and the context {self._max_tokens}: give fewer or "
                    "smaller images, or load the model with a larger max_seq_len"
                )
        return inputs

    def _embedding(self, pixels: torch.Tensor) -> ExLlamaV2MMEmbedding:
        key = blake2b(pixels.numpy().tobytes() + str(pixels.shape).encode()).digest()
        with self._exclusively(), self._lock:
            if key not in self._cached:
                self._cached[key] = self._tower.embeddings_of_pixels(self._runtime.model, self._tokenizer, pixels)
            self._cached.move_to_end(key)
            found = self._cached[key]
            self._evict()
        return found

    def _exclusively(self) -> AbstractContextManager[None]:
        """Keep steps from running on a GPU: one may capture a graph, which other work would invalidate."""
        return self._runtime.between_steps() if self._tower.device.type == "cuda" else nullcontext()

    def _evict(self) -> None:
        """Evict the least recently used images while the cache is too large."""
        size = sum(each.get_size_in_bytes() for each in self._cached.values())
        while len(self._cached) > _MAX_CACHED or (size > _MAX_BYTES and len(self._cached) > 1):
            _, oldest = self._cached.popitem(last=False)
            size -= oldest.get_size_in_bytes()


def no_images(model: ExLlamaV2) -> str:
    """Return why a model without a loaded vision tower reads no images, and what to do."""
    if model.config.vision_model_type:
        return "no vision tower is loaded; use load(images=True)"
    return "the model reads texts only: it has no supported vision tower; load a model that has one"
