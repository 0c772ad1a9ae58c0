"""Indexed embeddings: rows of a model's input space that take the place of tokens, with ids of their own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from constrain.errors import GenerationError

EMBEDDING_INDEX = 1_000_000_000
"""First id of indexed embeddings; smaller ids are tokens."""


class IndexedEmbeddings(Protocol):
    """A block of embeddings, and the ids by which a sequence refers to them."""

    @property
    def first_index(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def embeddings(self) -> torch.Tensor: ...


class IdAllocator:
    """Allocates disjoint ranges of ids."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = EMBEDDING_INDEX

    def allocate(self, length: int) -> int:
        """Allocate ``length`` ids, and return the first."""
        with self._lock:
            first, self._next = self._next, self._next + length
        return first


def as_int32(ids: torch.Tensor) -> torch.Tensor:
    """Return ids as int32. Those of embeddings that are too large begin again at :data:`EMBEDDING_INDEX`."""
    count = (1 << 31) - EMBEDDING_INDEX
    return ids.where(ids < EMBEDDING_INDEX, (ids - EMBEDDING_INDEX) % count + EMBEDDING_INDEX).int()


ID_ALLOCATOR = IdAllocator()
"""Allocator of the ids of all indexed embeddings of the process."""


class ExLlamaV2MMEmbedding:
    """Indexed embeddings, with the interface of exllamav2.

    Attributes:
        embeddings: ``[length, hidden_size]``.
        first_index, length: the ids are ``first_index`` to ``first_index + length - 1``.
        text_alias: string that refers to them in a text, see ``ExLlamaV2Tokenizer.encode``.
        thw_grid: images, rows and columns of embeddings of an image, without the tokens before and after it.
        pre_tokens, post_tokens: numbers of tokens before and after it that are among the embeddings.
        added: ``[layers, length of the image, hidden_size]``, added to the states of the image after each of the first
            layers; ``None``: nothing.
        metadata: for use by the caller.
    """

    def __init__(
        self,
        model: Any,
        embeddings: torch.Tensor,
        text_alias: str | None = None,
        thw_grid: tuple[int, int, int] | None = None,
        pre_tokens: int = 0,
        post_tokens: int = 0,
    ) -> None:
        """Allocate ids for ``embeddings``.

        Raises:
            GenerationError: their shape is not ``[length, hidden_size of the model]``.
        """
        hidden = model.config.hidden_size
        if embeddings.dim() != 2 or embeddings.shape[1] != hidden:
            raise GenerationError(f"embeddings must be [length, {hidden}], not {list(embeddings.shape)}")
        self.model = model
        self.embeddings = embeddings
        self.length = embeddings.shape[0]
        self.first_index = ID_ALLOCATOR.allocate(self.length)
        self.text_alias = text_alias if text_alias is not None else f"<$EMB_{self.first_index}$>"
        self.thw_grid, self.pre_tokens, self.post_tokens = thw_grid, pre_tokens, post_tokens
        self.added: torch.Tensor | None = None
        self.metadata: dict[str, Any] = {}

    def get_ids(self) -> list[int]:
        """The ids, in order."""
        return list(range(self.first_index, self.first_index + self.length))

    def get_ids_tensor(self) -> torch.Tensor:
        """The ids, int64 ``[1, length]``."""
        return torch.arange(self.first_index, self.first_index + self.length).unsqueeze(0)

    def get_vision_token_range(self) -> tuple[int, int]:
        """First id of the content and one more than its last."""
        return self.first_index + self.pre_tokens, self.first_index + self.length - self.post_tokens

    def get_size_in_bytes(self) -> int:
        """Memory of the embeddings in bytes."""
        return self.embeddings.numel() * self.embeddings.element_size()


def add_to_layer(x: torch.Tensor, ids: torch.Tensor, blocks: Sequence[IndexedEmbeddings], layer: int) -> torch.Tensor:
    """Add what embeddings have for the states after a layer (DeepStack: Meng et al. 2024).

    Args:
        x: states ``[batch, width, hidden]``, changed in place.
        ids: their ids, int64 ``[batch, width]`` on the CPU.
        blocks: the embeddings that ids refer to.
        layer: index of the layer.

    Returns:
        ``x``.
    """
    for block in blocks:
        added: torch.Tensor | None = getattr(block, "added", None)
        if added is None or layer >= len(added):
            continue
        first = block.first_index + getattr(block, "pre_tokens", 0)
        within = (ids >= first) & (ids < first + added.shape[1])
        x[within.to(x.device)] += added[layer][ids[within] - first].to(x)
    return x
