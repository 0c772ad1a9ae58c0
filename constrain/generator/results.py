"""Result dictionaries of a generator: see :meth:`ExLlamaV2DynamicGenerator.iterate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from constrain.runtime.events import Finish, Piece, SampledToken


def ids_of_each(pieces: Sequence[Piece]) -> list[torch.Tensor]:
    """Return the token ids of each piece, int64 of shape (1, n): views of one tensor, as allocating many is slow."""
    ids = torch.tensor([[token.id for piece in pieces for token in piece.tokens]], dtype=torch.long)
    return list(torch.split(ids, [len(piece.tokens) for piece in pieces], dim=1))


def piece_keys(piece: Piece, ids: torch.Tensor, probs: bool) -> dict[str, Any]:
    """Return ``text``, ``token_ids`` and the requested values of released text; keys without a value are omitted."""
    result: dict[str, Any] = {"text": piece.text} if piece.text else {}
    if not piece.tokens:
        return result
    result["token_ids"] = ids
    if probs:
        result["token_probs"] = torch.tensor([[token.prob for token in piece.tokens]])
    top = [token.top for token in piece.tokens if token.top is not None]
    if top:
        result["top_k_tokens"] = torch.stack([ids for ids, _ in top]).unsqueeze(0)
        result["top_k_probs"] = torch.stack([each for _, each in top]).unsqueeze(0)
    logits = [token.logits for token in piece.tokens if token.logits is not None]
    if logits:
        result["logits"] = torch.stack(logits).unsqueeze(0)
    return result


def token_ids(tokens: Sequence[SampledToken]) -> torch.Tensor:
    """Return token ids, int64 of shape (1, n)."""
    return torch.tensor([[token.id for token in tokens]], dtype=torch.long)


def end_keys(end: Finish, probs: bool, pieces: Sequence[str]) -> dict[str, Any]:
    """Return ``eos_reason`` and its details; ``pieces``: the text of each token, special ones included."""
    result: dict[str, Any] = {"eos_reason": end.reason}
    if isinstance(end.trigger, int):
        result["eos_triggering_token_id"] = end.trigger
        result["eos_triggering_token_str"] = pieces[end.trigger]
    elif end.trigger is not None:
        result["eos_triggering_string"] = end.trigger
    if end.error is not None:
        result["exception"] = end.error
    if end.held:
        result["held"] = piece_keys(end.held, token_ids(end.held.tokens), probs)
    return result
