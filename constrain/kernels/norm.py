"""Normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from constrain.kernels import cuda

# Elements of a head that the kernel takes.
_MAX_NORMED_DIM = 256


@dataclass(frozen=True)
class RowNorm:
    """A norm that is applied to the input of a product: :func:`layer_norm` if ``centred``, else :func:`rms_norm`."""

    weight: torch.Tensor
    eps: float
    bias: torch.Tensor | None = None
    centred: bool = False


def normed(x: torch.Tensor, norm: RowNorm | None) -> torch.Tensor:
    """Apply a norm; ``x`` itself if there is none."""
    if norm is None:
        return x
    if norm.centred:
        return layer_norm(x, norm.weight, norm.bias, norm.eps)
    return rms_norm(x, norm.weight, norm.eps)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """``x / sqrt(mean(x**2) + eps) * weight`` over the last dimension (Zhang and Sennrich 2019).

    Args:
        x: ``[..., n]``.
        weight: ``[n]``, or ``None`` for one everywhere.
        eps: added to the mean square.
        residual: of the shape of ``x``; becomes ``residual + x`` in place, and the sum is normalised instead of ``x``.

    Returns:
        The shape and dtype of ``x``; the mean is taken in float32 at least.
    """
    if cuda.takes(x, residual, weight):
        return _normalise(x, residual, weight, None, eps, centred=False)
    return rms_norm_reference(x if residual is None else residual.add_(x), weight, eps)


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """:func:`rms_norm` in plain torch."""
    if x.is_cuda or x.dtype is not torch.float32:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    # On the CPU, F.rms_norm is a chain of seven operations, and for one token the time is in their number.
    n = x.shape[-1]
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = norm.mul_(norm).add_(n * eps).rsqrt_().mul_(n**0.5)
    return x * scale if weight is None else (x * weight).mul_(scale)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """``(x - mean(x)) / sqrt(var(x) + eps) * weight + bias`` over the last dimension (Ba et al. 2016).

    Args:
        x, eps, residual: as for :func:`rms_norm`.
        weight, bias: ``[n]``, or ``None`` for one and for zero everywhere.

    Returns:
        The shape and dtype of ``x``.
    """
    if cuda.takes(x, residual, weight, bias):
        return _normalise(x, residual, weight, bias, eps, centred=True)
    summed = x if residual is None else residual.add_(x)
    return F.layer_norm(summed, x.shape[-1:], weight, bias, eps)


def normalise_heads(x: torch.Tensor, weight: torch.Tensor, eps: float, *, centred: bool = False) -> None:
    """Apply :func:`rms_norm` to each head in place, or :func:`layer_norm` if ``centred``.

    Args:
        x: ``[batch, width, heads, dim]``.
        weight: ``[heads, dim]``.
        eps: added to the mean square.
        centred: subtract the mean first.
    """
    batch, width, heads, dim = x.shape
    if not (cuda.takes(x, weight) and dim <= _MAX_NORMED_DIM and x.stride(2) == dim and weight.is_contiguous()):
        x.copy_((layer_norm(x, None, None, eps) if centred else rms_norm(x, None, eps)) * weight)
        return
    rows = x.flatten(0, 1)
    assert rows.data_ptr() == x.data_ptr()
    with torch.cuda.device(x.device):
        cuda.module.normalise_heads(
            x=cuda.address(rows),
            weight=cuda.address(weight),
            stride=rows.stride(0),
            tokens=batch * width,
            heads=heads,
            dim=dim,
            eps=eps,
            centred=centred,
            dtype=cuda.DTYPES[x.dtype],
            stream=cuda.stream(x),
        )


def _normalise(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    centred: bool,
) -> torch.Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    rows, sums = cuda.as_rows(x), None if residual is None else residual.view(-1, x.shape[-1])
    with torch.cuda.device(x.device):
        cuda.module.normalise(
            x=cuda.address(rows),
            residual=cuda.address(sums),
            weight=cuda.address(weight),
            bias=cuda.address(bias),
            out=cuda.address(out),
            x_stride=rows.stride(0),
            residual_stride=0 if sums is None else sums.stride(0),
            out_stride=x.shape[-1],
            rows=rows.shape[0],
            width=x.shape[-1],
            eps=eps,
            centred=centred,
            dtype=cuda.DTYPES[x.dtype],
            stream=cuda.stream(x),
        )
    return out
