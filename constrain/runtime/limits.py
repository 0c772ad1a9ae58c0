"""Validation of requests against the limits of a runtime."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from constrain.errors import BudgetError, GenerationError
from constrain.model import EMBEDDING_INDEX, ExLlamaV2, ExLlamaV2MMEmbedding
from constrain.model.lora import check_adapters
from constrain.runtime.page_allocator import PageAllocator, pages_of
from constrain.runtime.request import Request


def check_room(request: Request, max_new_tokens: int, allocator: PageAllocator, max_seq_len: int) -> None:
    """Reject a request that is longer than ``max_seq_len``, or than the cache.

    Raises:
        GenerationError: the request can never fit.
    """
    lengths, available = [ids.shape[-1] for ids in request.prompt], len(allocator.pages)
    pages = sum(pages_of(length, max_new_tokens, allocator.page_size, request.particles) for length in lengths)
    if pages > available:
        less = "a smaller max_new_tokens" + (" or fewer outputs" if request.particles > 1 else "")
        raise GenerationError(
            f"Job requires {pages} pages (only {available} available) and cannot be enqueued. Use a larger "
            f"cache, a shorter prompt, or {less}."
        )
    longest = max(lengths) + max_new_tokens
    if longest > max_seq_len:
        raise GenerationError(f"prompt and max_new_tokens add up to {longest}, more than max_seq_len={max_seq_len}")


def check_request(request: Request, max_new_tokens: int, max_batch_size: int, model: ExLlamaV2) -> None:
    """Reject a request that can never run or be completed, or whose prompt has ids that the model does not know.

    Raises:
        GenerationError: the request has too many rows, an id is unknown, or an adapter is not attached to the model.
        BudgetError: every output that the constraint allows is longer than the request allows.
    """
    if request.num_rows > max_batch_size:
        raise GenerationError(f"{request.num_rows} sequences are more than max_batch_size={max_batch_size}")
    check_adapters(model, request.loras)
    for ids in request.prompt:
        _check_tokens(ids, model.config.vocab_size, request.embeddings)
    _check_budget(request, max_new_tokens)


def _check_tokens(ids: torch.Tensor, vocab_size: int, embeddings: Sequence[ExLlamaV2MMEmbedding]) -> None:
    least, most = ids.aminmax()
    if least >= 0 and most < vocab_size:
        return
    for token in set(ids[(ids < 0) | (ids >= vocab_size)].tolist()):
        if not any(0 <= token - each.first_index < each.length for each in embeddings):
            kind = "a row of embeddings that were not given" if token >= EMBEDDING_INDEX else "outside the vocabulary"
            raise GenerationError(f"the prompt holds id {token}, which is {kind}")


def _check_budget(request: Request, max_new_tokens: int) -> None:
    """Reject a request if every output that its constraint allows is longer."""
    constraint = request.constraint
    if constraint is None or not request.within_budget or request.trigger is not None:
        return
    if constraint.min_tokens() is None:
        return
    constraint.begin()  # its filters may have been used before
    needed = constraint.min_tokens()
    after = 0 if request.faithful else 1  # the token after the end need not fit
    if needed is not None and needed - after > max_new_tokens:
        raise BudgetError(max_new_tokens, needed - after)
