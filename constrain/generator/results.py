"""Result dictionaries of a generator: see :meth:`ExLlamaV2DynamicGenerator.iterate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from constrain.runtime.outputs import Finish, Piece, SampledToken


def of_each(pieces: Sequence[Piece], value: Callable[[SampledToken], float]) -> Iterator[torch.Tensor]:
    """Yield a value of the tokens of each piece, of shape (1, n): views of one tensor, as allocating many is slow."""
    values = torch.tensor([[value(token) for piece in pieces for token in piece.tokens]])
    return iter(torch.split(values, [len(piece.tokens) for piece in pieces], dim=1))


def joined(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return values of tokens, each of shape (1, 1, k), as one tensor of shape (1, n, k); for one token no copy."""
    return values[0] if len(values) == 1 else torch.cat(list(values), dim=1)


def piece_keys(piece: Piece, ids: torch.Tensor, probs: torch.Tensor | None) -> dict[str, Any]:
    """Return ``text`` and the requested values of released text; keys without a value are omitted.

    ``ids`` and, if requested, ``probs`` are those of its tokens, of shape (1, n).
    """
    result: dict[str, Any] = {"text": piece.text} if piece.text else {}
    if not piece.tokens:
        return result
    result["token_ids"] = ids
    if probs is not None:
        result["token_probs"] = probs
    top = [token.top for token in piece.tokens if token.top is not None]
    if top:
        result["top_k_tokens"] = joined([ids for ids, _ in top])
        result["top_k_probs"] = joined([probabilities for _, probabilities in top])
    logits = [token.logits for token in piece.tokens if token.logits is not None]
    if logits:
        result["logits"] = joined(logits)
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
        tokens = end.held.tokens
        chances = torch.tensor([[token.prob for token in tokens]]) if probs else None
        result["held"] = piece_keys(end.held, token_ids(tokens), chances)
    return result
