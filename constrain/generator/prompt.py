"""Batches of prompt ids: encoding, left padding and truncation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from constrain.arguments import check_type, refused
from constrain.errors import GenerationError
from constrain.model import ExLlamaV2, ExLlamaV2MMEmbedding
from constrain.tokenizer import ExLlamaV2Tokenizer

PLACEHOLDER = "{{EMBED_HERE}}"
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
#: Attention mask values below this one hide a position.
_HIDDEN = -1e4


def ids_of(ids: Any) -> torch.Tensor:
    """Return a non-empty integer tensor of shape (rows, n) as int64.

    Raises:
        ArgumentError: it is something else.
    """
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or not ids.numel() or ids.dtype not in _INTEGERS:
        raise refused("input_ids", ids, "ids as the tokenizer gives them, int64 of shape (rows, n), and not empty")
    return ids.long()


def embeddings_of(embeddings: Sequence[ExLlamaV2MMEmbedding] | None) -> list[ExLlamaV2MMEmbedding]:
    """Return embeddings as a list; empty for ``None``.

    Raises:
        ArgumentError: ``embeddings`` is not a list of embeddings.
    """
    found = () if embeddings is None else embeddings
    if not isinstance(found, (list, tuple)) or not all(isinstance(each, ExLlamaV2MMEmbedding) for each in found):
        raise refused("embeddings", embeddings, "a list of ExLlamaV2MMEmbedding")
    return list(found)


@dataclass(frozen=True)
class PromptBatch:
    """Encoded prompts.

    Attributes:
        ids: int64 of shape (batch, n), padded on the left.
        padding: int64 of shape (batch,), the number of padding tokens in each row.
        embeddings: what ids beyond the vocabulary refer to.
    """

    ids: torch.Tensor
    padding: torch.Tensor
    embeddings: tuple[ExLlamaV2MMEmbedding, ...] = ()

    @property
    def rows(self) -> list[torch.Tensor]:
        """The ids of each prompt without padding, int64 of shape (1, n)."""
        return [row[pad:].unsqueeze(0) for row, pad in zip(self.ids, self.padding.tolist(), strict=True)]

    def cut_left(self, limit: int) -> PromptBatch:
        """Return a batch with only the last ``limit`` positions."""
        cut = max(0, self.ids.shape[1] - limit)
        return replace(self, ids=self.ids[:, cut:], padding=(self.padding - cut).clamp_min(0))


def encode_prompts(
    tokenizer: ExLlamaV2Tokenizer,
    prompts: Sequence[str],
    add_bos: bool,
    encode_special_tokens: bool,
    embeddings: Sequence[ExLlamaV2MMEmbedding],
) -> PromptBatch:
    """Encode prompts; embeddings, if any, one for each prompt, replace the placeholder.

    Raises:
        GenerationError: a prompt has no token, or not exactly one placeholder for its embeddings.
    """
    texts = list(prompts)
    if embeddings:
        texts = [_placed(text, embedding) for text, embedding in zip(texts, embeddings, strict=True)]
    ids, offsets = tokenizer.encode(
        texts,
        add_bos=add_bos,
        encode_special_tokens=encode_special_tokens,
        return_offsets=True,
        embeddings=list(embeddings) or None,
    )
    padding = -offsets.long()
    for i, length in enumerate((ids.shape[1] - padding).tolist()):
        if length == 0:
            raise GenerationError(f"prompt {i} has no token to start from: give it text, or set add_bos")
    return PromptBatch(ids, padding, tuple(embeddings))


def split_embeddings(model: ExLlamaV2, embeddings: torch.Tensor, rows: int) -> list[ExLlamaV2MMEmbedding]:
    """Split a tensor of shape (batch, n, hidden size) into the embeddings of each row.

    Raises:
        GenerationError: the tensor has another shape.
    """
    check_type("input_embeddings", embeddings, torch.Tensor, "a tensor")
    if embeddings.dim() != 3 or embeddings.shape[0] != rows:
        shape = tuple(embeddings.shape)
        raise GenerationError(f"input_embeddings must have shape ({rows}, n, {model.config.hidden_size}), not {shape}")
    return [ExLlamaV2MMEmbedding(model, row) for row in embeddings]


def prepend_embeddings(
    model: ExLlamaV2, ids: torch.Tensor, embeddings: torch.Tensor
) -> tuple[torch.Tensor, list[ExLlamaV2MMEmbedding]]:
    """Prepend embeddings of shape (batch, n, hidden size) to ids of shape (batch, m).

    Returns:
        The ids, int64 of shape (batch, n + m), and the embeddings that the first ``n`` refer to.

    Raises:
        GenerationError: the embeddings have another shape.
    """
    blocks = split_embeddings(model, embeddings, ids.shape[0])
    return torch.cat([torch.cat([block.get_ids_tensor() for block in blocks]), ids], dim=1), blocks


def _placed(text: str, embedding: ExLlamaV2MMEmbedding) -> str:
    if text.count(PLACEHOLDER) != 1:
        raise GenerationError(f"a prompt with input_embeddings must hold {PLACEHOLDER} exactly once")
    return text.replace(PLACEHOLDER, embedding.text_alias)


def left_padding(
    ids: torch.Tensor, input_mask: torch.Tensor | None, position_offsets: torch.Tensor | None
) -> torch.Tensor:
    """Return the number of left padding tokens of each row, int64 of shape (rows,).

    Args:
        ids: int64 of shape (rows, n).
        input_mask: added to the attention scores of key positions: very negative at padding.
        position_offsets: minus the padding of each row.

    Raises:
        GenerationError: mask or offsets hide positions other than left padding.
    """
    rows, width = ids.shape
    padding = torch.zeros(rows, dtype=torch.long)
    if position_offsets is not None:
        padding = -position_offsets.view(-1).long().expand(rows)
    if input_mask is not None:
        hidden = input_mask[:, :width].expand(rows, -1) < _HIDDEN
        leading = hidden.long().cumprod(dim=1).sum(dim=1)
        padding = leading if position_offsets is None else padding
        if not (torch.equal(hidden.sum(dim=1), padding) and torch.equal(leading, padding)):
            raise GenerationError("input_mask and position_offsets may only hide padding on the left of each prompt")
    if (padding < 0).any() or (padding >= width).any():
        raise GenerationError(f"position_offsets must be minus the padding of each row, not {(-padding).tolist()}")
    return padding
