"""Rows whose elements are gathered by a list."""

from __future__ import annotations

import torch

from constrain.kernels import cuda
from constrain.kernels.norm import RowNorm, normed


def gathered(x: torch.Tensor, order: torch.Tensor, norm: RowNorm | None = None) -> torch.Tensor:
    """``norm(x)[..., order]``, for products with weights whose inputs are in another order.

    Args:
        x: ``[..., n]``.
        order: int32 ``[columns]``, each at least 0 and below ``n``; not written by the work queued just before.
        norm: applied to ``x`` first.

    Returns:
        ``[..., columns]``.
    """
    if norm is not None and norm.centred:
        x, norm = normed(x, norm), None
    weight = None if norm is None else norm.weight
    if not cuda.takes(x, weight) or len(order) % 2 or not order.is_contiguous():
        return normed(x, norm).index_select(-1, order)
    out, rows = x.new_empty(*x.shape[:-1], len(order)), cuda.as_rows(x)
    with torch.cuda.device(x.device):
        cuda.module.gather(
            x=cuda.address(rows),
            order=cuda.address(order),
            weight=cuda.address(weight),
            out=cuda.address(out),
            x_stride=rows.stride(0),
            rows=rows.shape[0],
            width=rows.shape[1],
            columns=len(order),
            eps=0.0 if norm is None else norm.eps,
            dtype=cuda.DTYPES[x.dtype],
            stream=cuda.stream(x),
        )
    return out
