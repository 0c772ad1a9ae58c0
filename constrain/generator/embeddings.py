"""Embeddings that stand in a prompt as tokens of their own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from constrain.errors import GenerationError

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2

_FIRST_INDEX = 1_000_000_000


class _IndexRanges:
    """Hands out ranges of token ids beyond every vocabulary, each once in the life of the process."""

    def __init__(self) -> None:
        self._next = _FIRST_INDEX
        self._lock = threading.Lock()

    def take(self, length: int) -> int:
        """Reserve ``length`` ids, and return the first."""
        with self._lock:
            first = self._next
            self._next += length
        return first


_ranges = _IndexRanges()


class ExLlamaV2MMEmbedding:
    """A run of embeddings, and the token ids that stand for it.

    Attributes:
        model: the model that the embeddings are for.
        embeddings: tensor of shape (length, hidden size).
        first_index, length: the range of ids.
        text_alias: text that stands for the run in a prompt.
        metadata: for the maker of the embeddings.
        thw_grid, pre_tokens, post_tokens: layout of an image, where it is one.

    Raises:
        GenerationError: the embeddings do not fit the model.
    """

    def __init__(
        self,
        model: ExLlamaV2,
        embeddings: torch.Tensor,
        text_alias: str | None = None,
        thw_grid: tuple[int, int, int] | None = None,
        pre_tokens: int = 0,
        post_tokens: int = 0,
    ) -> None:
        hidden = model.config.hidden_size
        if embeddings.dim() != 2 or embeddings.shape[1] != hidden:
            raise GenerationError(f"embeddings must have shape (n, {hidden}), not {tuple(embeddings.shape)}")
        self.model = model
        self.embeddings = embeddings
        self.length = embeddings.shape[0]
        self.first_index = _ranges.take(self.length)
        self.text_alias = text_alias if text_alias is not None else f"<$EMB_{self.first_index}$>"
        self.thw_grid = thw_grid
        self.pre_tokens = pre_tokens
        self.post_tokens = post_tokens
        self.metadata: dict[str, Any] = {}

    def get_ids(self) -> list[int]:
        """Return the ids."""
        return list(range(self.first_index, self.first_index + self.length))

    def get_ids_tensor(self) -> torch.Tensor:
        """Return the ids, int64 of shape (1, length)."""
        return torch.tensor([self.get_ids()], dtype=torch.long)

    def get_vision_token_range(self) -> tuple[int, int]:
        """Return the first id of the image itself, and the id after its last."""
        return self.first_index + self.pre_tokens, self.first_index + self.length - self.post_tokens

    def get_size_in_bytes(self) -> int:
        """Return the size of the embeddings in memory."""
        return self.embeddings.numel() * self.embeddings.element_size()
