"""Matrix products with weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from constrain.kernels import cuda
from constrain.kernels.activation import Activation, gated_activation
from constrain.kernels.norm import RowNorm, normed
from constrain.kernels.weights.packed import Weight

# With more rows, cuBLAS is as fast.
_FEW_ROWS = 8


def linear(
    x: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    norm: RowNorm | None = None,
) -> torch.Tensor:
    """``norm(x) @ weight.T + bias + residual``: ``[..., k]`` by ``[n, k]`` (and ``[n]``, ``[..., n]``) to ``[..., n]``.

    On a GPU, ``weight`` may be read before the work that was queued just before this call has ended; so that work must
    not write it.
    """
    if not isinstance(weight, torch.Tensor):
        return weight.linear(x, bias, residual, norm)
    if _is_small(x, weight):
        return _product(x, weight, bias, residual, None, norm)
    y = F.linear(normed(x, norm), weight, bias)
    return y if residual is None else y.add_(residual)


def gated_linear(
    x: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None,
    activation: Activation,
    norm: RowNorm | None = None,
) -> torch.Tensor:
    """``act(x @ gate.T) * (x @ up.T)``, see :func:`constrain.kernels.gated_activation`; :func:`linear` has more.

    Args:
        x: ``[..., k]``.
        weight: ``[2 * n, k]``, the rows of the gate first.
        bias: ``[2 * n]``, added to the products.
        activation: non-linearity of the gate.
        norm: applied to ``x`` first.

    Returns:
        ``[..., n]``.
    """
    if not isinstance(weight, torch.Tensor):
        return weight.gated_linear(x, bias, activation, norm)
    if _is_small(x, weight):
        return _product(x, weight, bias, None, activation, norm)
    return gated_activation(F.linear(normed(x, norm), weight, bias), activation)


def _is_small(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return whether the product is bound by the reading of the weights, and our own kernel takes it."""
    rows = x.numel() // max(1, x.shape[-1])
    return 0 < rows <= _FEW_ROWS and cuda.takes(x, weight) and weight.is_contiguous()


def _product(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation | None,
    norm: RowNorm | None,
) -> torch.Tensor:
    if norm is not None and x.dtype is not torch.bfloat16:
        # The kernel multiplies by the norm's weight before it divides by the root, which float16 has no range for.
        x, norm = normed(x, norm), None
    outputs = weight.shape[0] if activation is None else weight.shape[0] // 2
    rows = cuda.as_rows(x)
    out = x.new_empty(*x.shape[:-1], outputs)
    added = None if residual is None else cuda.as_rows(residual)
    with torch.cuda.device(x.device):
        cuda.module.product(
            x=cuda.address(rows),
            norm_weight=0 if norm is None else cuda.address(norm.weight),
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
            eps=0.0 if norm is None else norm.eps,
            gated=activation is not None,
            activation=(activation or Activation.SILU).value,
            dtype=cuda.DTYPES[x.dtype],
            stream=cuda.stream(x),
        )
    return out
