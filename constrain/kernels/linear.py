"""Matrix products with weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from constrain.kernels import cuda
from constrain.kernels.activation import Activation, gated_activation

# Beyond this number of rows, cuBLAS is as fast.
_FEW_ROWS = 8


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """``x @ weight.T + bias + residual``: ``[..., k]`` by ``[n, k]`` (and ``[n]``, ``[..., n]``) to ``[..., n]``."""
    if _is_small(x, weight):
        return _product(x, weight, bias, residual, None)
    y = F.linear(x, weight, bias)
    return y if residual is None else y.add_(residual)


def gated_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: Activation
) -> torch.Tensor:
    """``act(x @ gate.T) * (x @ up.T)``, see :func:`constrain.kernels.gated_activation`.

    Args:
        x: ``[..., k]``.
        weight: ``[2 * n, k]``, the rows of the gate first.
        bias: ``[2 * n]``, added to the products.
        activation: what is applied to the gate.

    Returns:
        ``[..., n]``.
    """
    if _is_small(x, weight):
        return _product(x, weight, bias, None, activation)
    return gated_activation(F.linear(x, weight, bias), activation)


def low_rank(x: torch.Tensor, down: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``x @ down.T @ up.T``: ``[..., k]`` by ``[r, k]`` and ``[n, r]`` to ``[..., n]`` (LoRA, Hu et al. 2021)."""
    return F.linear(F.linear(x, down), up)


def _is_small(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether our own kernel is to multiply, which is bound by the reading of the weights."""
    rows = x.numel() // max(1, x.shape[-1])
    return 0 < rows <= _FEW_ROWS and cuda.takes(x, weight) and weight.is_contiguous()


def _product(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation | None,
) -> torch.Tensor:
    outputs = weight.shape[0] if activation is None else weight.shape[0] // 2
    rows = cuda.as_rows(x)
    out = x.new_empty(*x.shape[:-1], outputs)
    added = None if residual is None else cuda.as_rows(residual)
    with torch.cuda.device(x.device):
        cuda.module.product(
            x=cuda.address(rows),
            weight=cuda.address(weight),
            bias=cuda.address(bias),
            residual=cuda.address(added),
            out=cuda.address(out),
            x_stride=rows.stride(0),
            residual_stride=0 if added is None else added.stride(0),
            out_stride=outputs,
            rows=rows.shape[0],
            inputs=weight.shape[1],
            outputs=outputs,
            gated=activation is not None,
            activation=(activation or Activation.SILU).value,
            dtype=cuda.DTYPES[x.dtype],
            stream=cuda.stream(x),
        )
    return out
