"""Attention of a few new tokens over the pages of a cache."""

from __future__ import annotations

import torch

from constrain.kernels import cuda
from constrain.kernels.attention import attention
from constrain.kernels.pages import Pages


class AttentionWorkspace:
    """Memory that attention kernels share, which may not run at the same time; it grows to the largest need."""

    def __init__(self) -> None:
        self._partials = torch.empty(0, dtype=torch.uint8)
        self._counters = torch.empty(0, dtype=torch.int32)

    def reserve(self, partial_bytes: int, counters: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Uninitialised memory for partial results, and counters, which are zero between calls."""
        if self._partials.device != device or self._partials.numel() < partial_bytes:
            self._partials = torch.empty(partial_bytes, dtype=torch.uint8, device=device)
        if self._counters.device != device or self._counters.numel() < counters:
            self._counters = torch.zeros(counters, dtype=torch.int32, device=device)
        return self._partials, self._counters


def paged_attention(
    q: torch.Tensor,
    pages: Pages,
    lengths: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    cap: float | None = None,
    workspace: AttentionWorkspace | None = None,
) -> torch.Tensor:
    """Attention of the last positions of each sequence over all of it, see :func:`constrain.kernels.attention`.

    Args:
        q: ``[batch, queries, heads, head_dim]``, of the last ``queries`` positions, in order: each sees the positions
            up to its own.
        pages: keys and values.
        lengths: int32 ``[batch]``, positions of each sequence, the queries' own included; 0: the row is idle, and comes
            out as zeros.
        scale: factor of the scores.
        window: a query sees this number of positions at most, its own included.
        cap: soft cap of the scores.
        workspace: reused between calls of one stream.

    Returns:
        ``[batch, queries, heads * head_dim]``.
    """
    if cuda.takes(q) and pages.fit_kernels() and q.shape[-1] <= 256:
        return _attend_cuda(q, pages, lengths, scale, window, cap, workspace or AttentionWorkspace())
    return paged_attention_reference(q, pages, lengths, scale=scale, window=window, cap=cap)


def paged_attention_reference(
    q: torch.Tensor,
    pages: Pages,
    lengths: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    cap: float | None = None,
) -> torch.Tensor:
    """:func:`paged_attention` in plain torch, over as much of the pages as the block table names."""
    k, v = pages.gather()
    key = torch.arange(k.shape[1], device=q.device)
    ends = lengths.view(-1, 1, 1) - torch.arange(q.shape[1] - 1, -1, -1, device=q.device).view(1, -1, 1)
    seen = key < ends
    if window is not None:
        seen &= key >= ends - window
    # Slots that nobody has written yet hold anything, and zero times that need not be zero.
    written = (key < lengths.view(-1, 1)).view(*k.shape[:2], 1, 1)
    mask = torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill_(~seen, torch.finfo(q.dtype).min / 2)
    out = attention(q, k.where(written, 0.0), v.where(written, 0.0), scale=scale, mask=mask.unsqueeze(1), cap=cap)
    return out.masked_fill((lengths == 0).view(-1, 1, 1), 0.0)


def _attend_cuda(
    q: torch.Tensor,
    pages: Pages,
    lengths: torch.Tensor,
    scale: float,
    window: int | None,
    cap: float | None,
    workspace: AttentionWorkspace,
) -> torch.Tensor:
    batch, queries, heads, dim = q.shape
    out = q.new_empty(batch, queries, heads * dim)
    call = cuda.module.PagedAttention(
        q=cuda.address(q),
        out=cuda.address(out),
        q_batch_stride=q.stride(0),
        q_query_stride=q.stride(1),
        q_head_stride=q.stride(2),
        pages=pages.for_kernels(),
        lengths=cuda.address(lengths),
        max_length=pages.capacity,
        batch=batch,
        queries=queries,
        heads=heads,
        window=window or 0,
        scale=scale,
        cap=cap or 0.0,
        dtype=cuda.DTYPES[q.dtype],
    )
    with torch.cuda.device(q.device):
        partial_bytes, counter_count = call.workspace()
        partials, counters = workspace.reserve(partial_bytes, counter_count, q.device)
        call.run(partials=cuda.address(partials), counters=cuda.address(counters), stream=cuda.stream(q))
    return out
