"""Matrix products with weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from constrain.kernels import cuda
from constrain.kernels.activation import Activation, gated_activation
from constrain.kernels.low_rank import LowRankUpdate, LowRankWorkspace
from constrain.kernels.norm import rms_norm

# With more rows, cuBLAS is as fast.
_FEW_ROWS = 8
# With more rows, cuBLAS is as fast for low-rank updates too.
_SOME_ROWS = 256


@dataclass(frozen=True)
class RowNorm:
    """An RMS norm that is applied to the input of a product, see :func:`constrain.kernels.rms_norm`."""

    weight: torch.Tensor
    eps: float


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    norm: RowNorm | None = None,
    update: LowRankUpdate | None = None,
    workspace: LowRankWorkspace | None = None,
) -> torch.Tensor:
    """``norm(x) @ (weight + update).T + bias + residual``.

    On a GPU, weights may be read before the work that was queued just before this call has ended; so that work must
    not write them.

    Args:
        x: ``[..., k]``.
        weight: ``[n, k]``.
        bias: ``[n]``.
        residual: ``[..., n]``.
        norm: applied to ``x`` first.
        update: of the weight.
        workspace: scratch memory of updates, reused between calls on one stream.

    Returns:
        ``[..., n]``.
    """
    if _is_small(x, weight, update):
        return _product(x, weight, weight.shape[0], bias, residual, None, norm, update, workspace)
    x = _normed(x, norm)
    if update is not None and 0 < _num_rows(x) <= _SOME_ROWS and update.fits_kernels(x):
        y = _product(x, None, weight.shape[0], bias, residual, None, None, update, workspace)
        return _add_product(y, x, weight)
    y = F.linear(x, weight, bias)
    if update is not None:
        _add_product(y, F.linear(x, update.down), update.up)
    return y if residual is None else y.add_(residual)


def gated_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: Activation,
    norm: RowNorm | None = None,
    update: LowRankUpdate | None = None,
    workspace: LowRankWorkspace | None = None,
) -> torch.Tensor:
    """``act(x @ gate.T) * (x @ up.T)``, see :func:`constrain.kernels.gated_activation`; :func:`linear` has more.

    Args:
        x: ``[..., k]``.
        weight: ``[2 * n, k]``, the rows of the gate first.
        bias: ``[2 * n]``, added to the products.
        activation: non-linearity of the gate.
        norm, update, workspace: as for :func:`linear`.

    Returns:
        ``[..., n]``.
    """
    if _is_small(x, weight, update):
        return _product(x, weight, weight.shape[0] // 2, bias, None, activation, norm, update, workspace)
    return gated_activation(linear(x, weight, bias, None, norm, update, workspace), activation)


def _num_rows(x: torch.Tensor) -> int:
    return x.numel() // max(1, x.shape[-1])


def _is_small(x: torch.Tensor, weight: torch.Tensor, update: LowRankUpdate | None) -> bool:
    """Return whether the product is bound by the reading of the weights, and our own kernel takes it."""
    fits = 0 < _num_rows(x) <= _FEW_ROWS and cuda.takes(x, weight) and weight.is_contiguous()
    return fits and (update is None or update.fits_kernels(x))


def _normed(x: torch.Tensor, norm: RowNorm | None) -> torch.Tensor:
    return x if norm is None else rms_norm(x, norm.weight, norm.eps)


def _add_product(y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Add ``x @ weight.T`` to ``y`` in place, which is contiguous."""
    y.view(-1, y.shape[-1]).addmm_(cuda.as_rows(x), weight.T)
    return y


def _product(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    outputs: int,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation | None,
    norm: RowNorm | None,
    update: LowRankUpdate | None,
    workspace: LowRankWorkspace | None,
) -> torch.Tensor:
    """Launch the kernel; without a weight, for the product of the update alone."""
    if norm is not None and x.dtype is not torch.bfloat16:
        # The kernel multiplies by the norm's weight before it divides by the root, which float16 has no range for.
        x, norm = _normed(x, norm), None
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
            inputs=rows.shape[1],
            outputs=outputs,
            eps=0.0 if norm is None else norm.eps,
            gated=activation is not None,
            activation=(activation or Activation.SILU).value,
            dtype=cuda.DTYPES[x.dtype],
            update=None if update is None else update.for_kernels(rows, workspace or LowRankWorkspace()),
            stream=cuda.stream(x),
        )
    return out
