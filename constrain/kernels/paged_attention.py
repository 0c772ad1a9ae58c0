"""Attention of a few new tokens over a paged KV cache."""

from __future__ import annotations

import torch

from constrain.kernels import cuda
from constrain.kernels.attention import attention
from constrain.kernels.kv_quantization import KVQuantization, Unquantized
from constrain.kernels.pages import Pages
from constrain.kernels.rotary import rotate
from constrain.kernels.weights.cpu import HEAD_MULTIPLE, multiplies_interleaved, pool

_NO_WINDOW = 1 << 62


class AttentionWorkspace:
    """Scratch memory of attention kernels that run one after the other; it grows to the largest need."""

    def __init__(self) -> None:
        self._partials = torch.empty(0, dtype=torch.uint8)
        self._counters = torch.empty(0, dtype=torch.int32)

    def reserve(self, partial_bytes: int, counters: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return uninitialised memory for partial results, and counters that are zero between calls."""
        if self._partials.device != device or self._partials.numel() < partial_bytes:
            self._partials = torch.empty(partial_bytes, dtype=torch.uint8, device=device)
        if self._counters.device != device or self._counters.numel() < counters:
            self._counters = torch.zeros(counters, dtype=torch.int32, device=device)
        return self._partials, self._counters


def paged_attention(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    pages: Pages,
    lengths: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    cap: float | None = None,
    sinks: torch.Tensor | None = None,
    workspace: AttentionWorkspace | None = None,
) -> torch.Tensor:
    """Attention of the last positions of each sequence over its keys, see :func:`constrain.kernels.attention`.

    Queries and keys are rotated to their positions. New keys and values are written into the pages first, and read
    from there as the earlier ones are. Can be captured in a CUDA graph.

    Args:
        qkv: ``[batch, queries, heads + 2 * kv_heads, head_dim]``, contiguous, of the last ``queries`` positions, in
            order: each attends to the positions up to its own.
        cos, sin: by position, ``[positions, 1, d]``, in the form that :func:`constrain.kernels.rotate` takes.
        pages: keys and values of earlier positions, and slots for the new ones.
        lengths: int32 ``[batch]``, positions of each sequence, the new ones included; 0: the row is idle, writes
            nothing, and its output is zero. At least one kernel must lie between one that writes the lengths or the
            block table and this one.
        scale: factor of the scores.
        window: maximum number of positions that a query attends to, its own included.
        cap: soft cap of the scores.
        sinks: see :func:`constrain.kernels.attention`; the compiled kernel does not have them.
        workspace: scratch memory, reused between calls on one stream.

    Returns:
        ``[batch, queries, heads * head_dim]``.
    """
    if sinks is None and cuda.takes(qkv, cos, sin) and cos.shape[-1] % 16 == 0 and pages.fit_kernels(qkv):
        return _attend_cuda(qkv, cos, sin, pages, lengths, scale, window, cap, workspace or AttentionWorkspace())
    plain = cap is None and sinks is None
    if plain and qkv.shape[1] == 1 and _fits_cpu_kernel(qkv, cos, sin, pages, lengths):
        return _attend_cpu(qkv, cos, sin, pages, lengths, scale, window)
    return paged_attention_reference(qkv, cos, sin, pages, lengths, scale=scale, window=window, cap=cap, sinks=sinks)


def cpu_reads_pages(quantizations: tuple[KVQuantization, KVQuantization], dtype: torch.dtype, head_dim: int) -> bool:
    """Return whether a kernel on the CPU attends with single tokens over keys and values of these formats.

    It has neither caps nor sinks.
    """
    stored = [part for each in quantizations if isinstance(each, Unquantized) for part in each.layout(head_dim)]
    if stored != [(head_dim, torch.float32)] * 2 or head_dim % HEAD_MULTIPLE:
        return False
    return multiplies_interleaved(torch.device("cpu"), dtype)


def paged_attention_reference(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    pages: Pages,
    lengths: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """:func:`paged_attention` in plain torch, over as much of the pages as the block table names."""
    kv_heads, past = pages.kv_heads, lengths - qkv.shape[1]
    heads = qkv.shape[2] - 2 * kv_heads
    position = (past.long().unsqueeze(1) + torch.arange(qkv.shape[1], device=qkv.device)).clamp_(min=0)
    rotated = rotate(qkv[:, :, : heads + kv_heads], cos[position], sin[position])
    pages.write(rotated[:, :, heads:], qkv[:, :, heads + kv_heads :], past)
    return attend_pages(rotated[:, :, :heads], pages, lengths, scale=scale, window=window, cap=cap, sinks=sinks)


def attend_pages(
    q: torch.Tensor,
    pages: Pages,
    lengths: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of rotated queries ``[batch, queries, heads, head_dim]`` over pages, in plain torch.

    Other arguments are those of :func:`paged_attention`.
    """
    keys, values = pages.gather(q.dtype)
    key = torch.arange(keys.shape[1], device=q.device)
    ends = lengths.view(-1, 1, 1) - torch.arange(q.shape[1] - 1, -1, -1, device=q.device).view(1, -1, 1)
    seen = key < ends
    if window is not None:
        seen &= key >= ends - window
    # Slots that have not been written may hold nan, and zero times nan is not zero.
    written = (key < lengths.view(-1, 1)).view(*keys.shape[:2], 1, 1)
    mask = torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill_(~seen, torch.finfo(q.dtype).min / 2)
    keys, values = (x.where(written, 0.0) for x in (keys, values))
    out = attention(q, keys, values, scale=scale, mask=mask.unsqueeze(1), cap=cap, sinks=sinks)
    return out.masked_fill((lengths == 0).view(-1, 1, 1), 0.0)


def _fits_cpu_kernel(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pages: Pages, lengths: torch.Tensor
) -> bool:
    tensors = qkv, cos, sin, lengths, pages.block_table, *pages.keys, *pages.values
    if any(each.device.type != "cpu" or not each.is_contiguous() for each in tensors):
        return False
    return cpu_reads_pages((pages.key_quantization, pages.value_quantization), qkv.dtype, qkv.shape[-1])


def _attend_cpu(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    pages: Pages,
    lengths: torch.Tensor,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    tokens, _, states, dim = qkv.shape
    heads = states - 2 * pages.kv_heads
    out = qkv.new_empty(tokens, 1, heads * dim)
    pool().paged_attention(
        qkv=qkv.data_ptr(),
        keys=pages.keys[0].data_ptr(),
        values=pages.values[0].data_ptr(),
        out=out.data_ptr(),
        cos=cos.data_ptr(),
        sin=sin.data_ptr(),
        block_tables=pages.block_table.data_ptr(),
        lengths=lengths.data_ptr(),
        tokens=tokens,
        heads=heads,
        kv_heads=pages.kv_heads,
        dim=dim,
        rotary_dim=cos.shape[-1],
        page_size=pages.page_size,
        table_width=pages.block_table.shape[1],
        window=window or _NO_WINDOW,
        scale=scale,
    )
    return out


def _attend_cuda(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    pages: Pages,
    lengths: torch.Tensor,
    scale: float,
    window: int | None,
    cap: float | None,
    workspace: AttentionWorkspace,
) -> torch.Tensor:
    batch, queries, all_heads, dim = qkv.shape
    heads = all_heads - 2 * pages.kv_heads
    out = qkv.new_empty(batch, queries, heads * dim)
    call = cuda.module.PagedAttention(
        qkv=cuda.address(qkv),
        out=cuda.address(out),
        cos=cuda.address(cos),
        sin=cuda.address(sin),
        pages=pages.for_kernels(dim),
        lengths=cuda.address(lengths),
        max_length=pages.capacity,
        batch=batch,
        queries=queries,
        heads=heads,
        rotary_dim=cos.shape[-1],
        window=window or 0,
        scale=scale,
        cap=cap or 0.0,
        dtype=cuda.DTYPES[qkv.dtype],
    )
    with torch.cuda.device(qkv.device):
        partial_bytes, counter_count = call.workspace()
        partials, counters = workspace.reserve(partial_bytes, counter_count, qkv.device)
        call.run(partials=cuda.address(partials), counters=cuda.address(counters), stream=cuda.stream(qkv))
    return out
