"""Validation of requests against the limits of a runtime."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from constrain.errors import BudgetError, GenerationError
from constrain.model import EMBEDDING_INDEX, ExLlamaV2MMEmbedding
from constrain.runtime.page_table import pages_of
from constrain.runtime.request import Request


def check_request(
    request: Request,
    max_new_tokens: int,
    *,
    page_size: int,
    num_pages: int | None,
    max_batch_size: int,
    max_seq_len: int,
    vocab_size: int,
) -> None:
    """Reject a request that can never fit or be completed, or whose prompt has ids that the model does not know.

    Args:
        request: the request.
        max_new_tokens: maximum number of generated tokens.
        page_size: positions of a page.
        num_pages: number of pages that can be allocated; ``None`` for a request with its own pages.
        max_batch_size: maximum number of rows that run at a time.
        max_seq_len: maximum sequence length.
        vocab_size: number of token ids; larger ids must refer to embeddings.

    Raises:
        GenerationError: the request can never fit, or an id is unknown.
        BudgetError: every output that the constraint allows is longer than the request allows.
    """
    longest = max(ids.shape[-1] for ids in request.prompt) + max_new_tokens
    pages = sum(pages_of(ids.shape[-1], max_new_tokens, page_size, request.particles) for ids in request.prompt)
    if num_pages is not None and pages > num_pages:
        less = "a smaller max_new_tokens" + (" or fewer outputs" if request.particles > 1 else "")
        raise GenerationError(
            f"Job requires {pages} pages (only {num_pages} available) and cannot be enqueued. Use a larger "
            f"cache, a shorter prompt, or {less}."
        )
    if request.num_rows > max_batch_size:
        raise GenerationError(f"{request.num_rows} sequences are more than max_batch_size={max_batch_size}")
    if num_pages is not None and longest > max_seq_len:
        raise GenerationError(f"prompt and max_new_tokens add up to {longest}, more than max_seq_len={max_seq_len}")
    for ids in request.prompt:
        _check_tokens(ids, vocab_size, request.embeddings)
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
