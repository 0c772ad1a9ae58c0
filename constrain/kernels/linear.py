"""Matrix products with weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from constrain.kernels import cuda
from constrain.kernels.activation import Activation, gated_activation
from constrain.kernels.few_rows import kernels_apply, queue_product
from constrain.kernels.low_rank import LowRankUpdate, LowRankWorkspace, add_projected, project
from constrain.kernels.norm import RowNorm, normed
from constrain.kernels.weights.packed import Weight

# With more rows, cuBLAS is as fast.
_FEW_ROWS = 8
# With more rows, cuBLAS is as fast for low-rank updates too.
_SOME_ROWS = 256


def linear(
    x: torch.Tensor,
    weight: Weight,
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
        residual: ``[..., n]``; the result may be written to its memory.
        norm: applied to ``x`` first.
        update: of the weight.
        workspace: scratch memory of updates, reused between calls on one stream.

    Returns:
        ``[..., n]``.
    """
    if not isinstance(weight, torch.Tensor):
        return _updated(weight.linear(x, bias, residual, norm), x, norm, update)
    if _is_small(x, weight, update):
        return _product(x, weight, bias, residual, None, norm, update, workspace)
    x = normed(x, norm)
    if update is not None and _takes_update(x, update):
        return _product_beside_update(x, weight, bias, residual, None, update, workspace)
    return _updated(_dense(x, weight, bias, residual), x, None, update)


def gated_linear(
    x: torch.Tensor,
    weight: Weight,
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
    if not activation.compiled:
        return gated_activation(linear(x, weight, bias, None, norm, update, workspace), activation)
    if not isinstance(weight, torch.Tensor):
        if update is None:
            return weight.gated_linear(x, bias, activation, norm)
        return gated_activation(_updated(weight.linear(x, bias, norm=norm), x, norm, update), activation)
    if _is_small(x, weight, update):
        return _product(x, weight, bias, None, activation, norm, update, workspace)
    x = normed(x, norm)
    if update is not None and _takes_update(x, update):
        return _product_beside_update(x, weight, bias, None, activation, update, workspace)
    return gated_activation(_updated(F.linear(x, weight, bias), x, None, update), activation)


def _num_rows(x: torch.Tensor) -> int:
    return x.numel() // max(1, x.shape[-1])


def _is_small(x: torch.Tensor, weight: torch.Tensor, update: LowRankUpdate | None) -> bool:
    """Return whether the product is bound by the reading of the weights, and our own kernel takes it."""
    fits = 0 < _num_rows(x) <= _FEW_ROWS and cuda.takes(x, weight) and weight.is_contiguous()
    return fits and (update is None or update.fits_kernels(x))


def _takes_update(x: torch.Tensor, update: LowRankUpdate) -> bool:
    return 0 < _num_rows(x) <= _SOME_ROWS and update.fits_kernels(x)


def _dense(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None
) -> torch.Tensor:
    if residual is None:
        return F.linear(x, weight, bias)
    if bias is None and x.is_cuda and residual.is_contiguous():
        # The sum is part of the product, which costs a kernel less.
        residual.view(-1, residual.shape[-1]).addmm_(cuda.as_rows(x), weight.T)
        return residual
    return F.linear(x, weight, bias).add_(residual)


def _updated(y: torch.Tensor, x: torch.Tensor, norm: RowNorm | None, update: LowRankUpdate | None) -> torch.Tensor:
    """Add the product of an update to ``y``, in place."""
    if update is None:
        return y
    low = F.linear(cuda.as_rows(normed(x, norm)), update.down)
    y.view(-1, y.shape[-1]).addmm_(low, update.up.T)
    return y


def _product_beside_update(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation | None,
    update: LowRankUpdate,
    workspace: LowRankWorkspace | None,
) -> torch.Tensor:
    """Multiply by a weight, while the rows are projected for the update on a second stream."""
    workspace = workspace or LowRankWorkspace()
    rows = cuda.as_rows(x)
    prepared = update.for_kernels(rows, workspace)
    side = workspace.side_stream(x.device)
    side.follow()
    with side.queue():
        project(rows, prepared)
    y = F.linear(rows, weight, bias)
    side.join()
    added = None if residual is None else cuda.as_rows(residual)
    return add_projected(y, rows, prepared, added, activation).view(*x.shape[:-1], -1)


def _product(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation | None,
    norm: RowNorm | None,
    update: LowRankUpdate | None,
    workspace: LowRankWorkspace | None,
) -> torch.Tensor:
    if norm is not None and not kernels_apply(norm, x.dtype):
        x, norm = normed(x, norm), None
    outputs, inputs = weight.shape
    prepared = None
    if update is not None:
        workspace = workspace or LowRankWorkspace()  # its memory is kept until the kernel is queued
        prepared = update.for_kernels(cuda.as_rows(x), workspace)
    return queue_product(
        cuda.module.product,
        x,
        outputs,
        bias,
        residual,
        activation,
        norm,
        weight=cuda.address(weight),
        inputs=inputs,
        outputs=outputs if activation is None else outputs // 2,
        update=prepared,
    )
