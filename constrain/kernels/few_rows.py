"""Products of few rows by the compiled kernels: what those with dense and with packed weights have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from constrain.kernels import cuda
from constrain.kernels.activation import Activation
from constrain.kernels.norm import RowNorm


def kernels_apply(norm: RowNorm, dtype: torch.dtype) -> bool:
    """Return whether the kernels apply a norm to rows of ``dtype``.

    They have no layer norm. They multiply by the norm's weight before they divide by the root, which float16 has no
    range for.
    """
    return not norm.centred and dtype is torch.bfloat16


def queue_product(
    kernel: Callable[..., None],
    x: torch.Tensor,
    weight_rows: int,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation | None,
    norm: RowNorm | None,
    **own: Any,
) -> torch.Tensor:
    """Queue a product, see :func:`constrain.kernels.linear` and, with an activation, ``gated_linear``.

    Args:
        kernel: a function of the compiled kernels.
        x: ``[..., k]``.
        weight_rows: outputs, or twice as many with an activation.
        bias, residual, activation, norm: as for :func:`constrain.kernels.linear`.
        own: arguments of this kernel alone, the weight among them.

    Returns:
        ``[..., outputs]``.
    """
    outputs = weight_rows if activation is None else weight_rows // 2
    rows = cuda.as_rows(x)
    out = x.new_empty(*x.shape[:-1], outputs)
    added = None if residual is None else cuda.as_rows(residual)
    with torch.cuda.device(x.device):
        kernel(
            x=cuda.address(rows),
            norm_weight=0 if norm is None else cuda.address(norm.weight),
            bias=cuda.address(bias),
            residual=cuda.address(added),
            out=cuda.address(out),
            x_stride=rows.stride(0),
            residual_stride=0 if added is None else added.stride(0),
            out_stride=outputs,
            rows=rows.shape[0],
            eps=0.0 if norm is None else norm.eps,
            gated=activation is not None,
            activation=(activation or Activation.SILU).value,
            dtype=cuda.DTYPES[x.dtype],
            stream=cuda.stream(x),
            **own,
        )
    return out
