"""Prompts, made ready for the model: encoded, padded, cut, and stripped of a token to be healed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from constrain.arguments import check_type, refused
from constrain.errors import GenerationError
from constrain.model.embeddings import ExLlamaV2MMEmbedding

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2
    from constrain.tokenizer import ExLlamaV2Tokenizer

PLACEHOLDER = "{{EMBED_HERE}}"
# Large enough to vanish in a softmax; infinity would make rows that attend to nothing undefined.
_MASKED = torch.finfo(torch.float16).min


def check_ids(ids: Any, name: str = "input_ids") -> None:
    """Refuse what are no ids of shape (rows, n), or none at all.

    Raises:
        ArgumentError: that is what they are.
    """
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or not ids.numel() or ids.is_floating_point():
        raise refused(name, ids, "ids as the tokenizer gives them, int64 of shape (rows, n), and not empty")


def embeddings_of(embeddings: Sequence[ExLlamaV2MMEmbedding] | None) -> list[ExLlamaV2MMEmbedding]:
    """The embeddings of a list of such; none for ``None``.

    Raises:
        ArgumentError: it holds something else.
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
        embeddings: what the ids beyond the vocabulary stand for.
    """

    ids: torch.Tensor
    padding: torch.Tensor
    embeddings: tuple[ExLlamaV2MMEmbedding, ...] = ()

    @property
    def input_mask(self) -> torch.Tensor | None:
        """Additive attention mask over the prompt, float16 of shape (batch, n); ``None`` without padding."""
        if not self.padding.any():
            return None
        is_padding = torch.arange(self.ids.shape[1]) < self.padding[:, None]
        return torch.zeros(self.ids.shape, dtype=torch.float16).masked_fill_(is_padding, _MASKED)

    @property
    def position_offsets(self) -> torch.Tensor | None:
        """What to add to the position of each token of a row, int32 of shape (batch,); ``None`` without padding."""
        return -self.padding.int() if self.padding.any() else None

    def cut_left(self, limit: int) -> PromptBatch:
        """Return the last ``limit`` positions."""
        cut = max(0, self.ids.shape[1] - limit)
        return replace(self, ids=self.ids[:, cut:], padding=(self.padding - cut).clamp_min(0))

    def split_last(self) -> tuple[PromptBatch, torch.Tensor]:
        """Return the prompts without their last tokens, and these, of shape (batch, 1)."""
        return replace(self, ids=self.ids[:, :-1]), self.ids[:, -1:]

    def can_heal(self, tokenizer: ExLlamaV2Tokenizer) -> bool:
        """Whether the last token of every row is text, of whole characters, with another token before it."""
        if int(self.ids.shape[1] - self.padding.max()) < 2:
            return False
        return all(can_heal(tokenizer, token) for token in self.ids[:, -1].tolist())


def can_heal(tokenizer: ExLlamaV2Tokenizer, token: int) -> bool:
    """Whether a token is text, of whole characters."""
    pieces = tokenizer.get_id_to_piece_list()
    piece = pieces[token] if token < len(pieces) else ""
    return bool(piece) and "\ufffd" not in piece


def encode_prompts(
    tokenizer: ExLlamaV2Tokenizer,
    prompts: Sequence[str],
    add_bos: bool,
    encode_special_tokens: bool,
    embeddings: Sequence[ExLlamaV2MMEmbedding] = (),
) -> PromptBatch:
    """Encode prompts; with embeddings, one for each prompt, they take the place of the placeholder.

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
    """Return the embeddings of each row of a tensor of shape (batch, n, hidden size).

    Raises:
        GenerationError: it has another shape.
    """
    check_type("input_embeddings", embeddings, torch.Tensor, "a tensor")
    if embeddings.dim() != 3 or embeddings.shape[0] != rows:
        shape = tuple(embeddings.shape)
        raise GenerationError(f"input_embeddings must have shape ({rows}, n, {model.config.hidden_size}), not {shape}")
    return [ExLlamaV2MMEmbedding(model, row) for row in embeddings]


def prepend_embeddings(
    model: ExLlamaV2, ids: torch.Tensor, embeddings: torch.Tensor
) -> tuple[torch.Tensor, list[ExLlamaV2MMEmbedding]]:
    """Put embeddings of shape (batch, n, hidden size) before ids of shape (batch, m).

    Returns:
        The ids, int64 of shape (batch, n + m), and what the first of them stand for.

    Raises:
        GenerationError: they have another shape.
    """
    blocks = split_embeddings(model, embeddings, ids.shape[0])
    return torch.cat([torch.cat([block.get_ids_tensor() for block in blocks]), ids], dim=1), blocks


def _placed(text: str, embedding: ExLlamaV2MMEmbedding) -> str:
    if text.count(PLACEHOLDER) != 1:
        raise GenerationError(f"a prompt with input_embeddings must hold {PLACEHOLDER} exactly once")
    return text.replace(PLACEHOLDER, embedding.text_alias)
