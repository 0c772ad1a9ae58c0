"""Rounding of weights to codes: to the nearest, or such that the errors of the inputs of a product cancel (GPTQ)."""

from __future__ import annotations

import torch

from constrain.quantization.packing import CodedWeight

# Inputs whose errors are passed on together, which takes one product for all that come later.
_BLOCK = 128
# Dampings that are tried, each ten times the one before.
_TRIES = 5
# Shares of the largest magnitude of a group that are tried as its range, by bits: what lies beyond is clipped, which
# pays only where steps are wide.
_RANGES = {4: tuple(1 - step / 20 for step in range(10)), 8: (1.0,)}
# Elements whose scales are chosen together; few enough for the caches of a processor.
_PIECE = 1 << 19


def choose_scales(
    weight: torch.Tensor, bits: int, group_size: int, dtype: torch.dtype, importance: torch.Tensor
) -> torch.Tensor:
    """Choose the scale of each group that makes the squared error of rounding to the nearest smallest.

    Args:
        weight: float32 ``[outputs, inputs]``.
        bits: of a code.
        group_size: divides ``inputs``.
        dtype: of the scales.
        importance: float32 ``[inputs]``, weights of the squared errors.

    Returns:
        ``[outputs, inputs / group_size]``, positive.
    """
    rows = max(1, _PIECE // weight.shape[1])
    factors = importance.view(-1, group_size)
    pieces = (piece.view(len(piece), -1, group_size) for piece in torch.split(weight, rows))
    return torch.cat([_scales_of(piece, bits, dtype, factors) for piece in pieces])


def _scales_of(groups: torch.Tensor, bits: int, dtype: torch.dtype, importance: torch.Tensor) -> torch.Tensor:
    """Choose scales ``[n, groups]`` of ``[n, groups, group_size]``."""
    whole = groups.abs().amax(dim=-1) / ((1 << (bits - 1)) - 0.5)
    smallest = torch.finfo(dtype).smallest_normal
    best: torch.Tensor = whole.clamp(min=smallest).to(dtype)
    least = torch.full_like(whole, torch.inf)
    for share in _RANGES[bits]:
        scales = (whole * share).clamp(min=smallest).to(dtype)
        wide = scales.float().unsqueeze(-1)
        error = nearest(groups, wide, bits).mul_(wide).sub_(groups).square_().mul_(importance).sum(dim=-1)
        better = error < least
        best, least = torch.where(better, scales, best), torch.where(better, error, least)
    return best


def nearest(weight: torch.Tensor, scales: torch.Tensor, bits: int) -> torch.Tensor:
    """Round to the nearest codes, as floats; the scales can be broadcast to the weight."""
    limit = 1 << (bits - 1)
    return (weight / scales).round_().clamp_(-limit, limit - 1)


def round_to_nearest(weight: torch.Tensor, scales: torch.Tensor, bits: int) -> CodedWeight:
    """Round each element of a float32 weight ``[outputs, inputs]`` to its nearest code."""
    groups = weight.view(*scales.shape, -1)
    codes = nearest(groups, scales.float().unsqueeze(-1), bits).flatten(1)
    return CodedWeight(codes.to(torch.int8), scales, bits)


def round_with_compensation(
    weight: torch.Tensor,
    scales: torch.Tensor,
    bits: int,
    hessian: torch.Tensor,
    damping: float,
    activation_order: bool,
) -> CodedWeight:
    """Round the elements of a weight one input after the other, and let those to come make up for the error.

    With ``H``, the mean of ``x x^T`` over inputs ``x``, the mean squared error of a row is ``e H e^T``, where ``e`` is
    the error of its weights. Once an input is rounded, the best change of those after it is proportional to its row of
    the upper Cholesky factor of the inverse of ``H`` (GPTQ, Frantar et al. 2022, after Optimal Brain Surgeon, Hassibi
    and Stork 1993).

    Args:
        weight: float32 ``[outputs, inputs]``.
        scales: ``[outputs, groups]``, of groups of neighbouring inputs.
        bits: of a code.
        hessian: float32 ``[inputs, inputs]``, as above.
        damping: share of the mean of the diagonal that is added to it, for inputs that hardly vary on their own.
        activation_order: round inputs with large activations first, while there are many left to make up for their
            errors, instead of in their order.
    """
    order = torch.arange(len(hessian), device=hessian.device)
    if activation_order:
        order = hessian.diagonal().argsort(descending=True, stable=True)
    groups = order // (len(order) // scales.shape[1])
    factor = inverse_factor(hessian[order][:, order], damping)
    codes = _in_order(weight[:, order], scales.float()[:, groups], bits, factor)
    return CodedWeight(codes[:, order.argsort()], scales, bits)


def _in_order(weight: torch.Tensor, scales: torch.Tensor, bits: int, factor: torch.Tensor) -> torch.Tensor:
    """Round the columns from left to right; weight, which is overwritten, and scales are ``[outputs, inputs]``."""
    inputs = weight.shape[1]
    codes = torch.empty_like(weight, dtype=torch.int8)
    for start in range(0, inputs, _BLOCK):
        end = min(start + _BLOCK, inputs)
        errors = torch.empty_like(weight[:, start:end])
        for column in range(start, end):
            scale = scales[:, column]
            rounded = nearest(weight[:, column], scale, bits)
            codes[:, column] = rounded.to(torch.int8)
            error = (weight[:, column] - rounded * scale) / factor[column, column]
            weight[:, column:end].addr_(error, factor[column, column:end], alpha=-1)
            errors[:, column - start] = error
        weight[:, end:].addmm_(errors, factor[start:end, end:], alpha=-1)
    return codes


def inverse_factor(hessian: torch.Tensor, damping: float) -> torch.Tensor:
    """Return the upper Cholesky factor of the inverse of a matrix, whose diagonal is damped as far as that takes.

    If no damping helps, the identity, with which no error is made up for.
    """
    diagonal = hessian.diagonal()
    mean = float(diagonal.mean()) or 1.0
    identity: torch.Tensor = torch.eye(len(hessian), device=hessian.device)
    # Inputs that were always zero say nothing of their errors, and pass none on.
    unused = (diagonal == 0).float().diag() * mean
    for _ in range(_TRIES):
        lower, failed = torch.linalg.cholesky_ex(hessian + unused + identity * (damping * mean))
        if not failed:
            upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if not failed:
                found: torch.Tensor = upper
                return found
        damping = max(damping, 1e-4) * 10
    return identity


def squared_errors(weight: torch.Tensor, coded: torch.Tensor, hessian: torch.Tensor | None) -> torch.Tensor:
    """Return the mean squared error of the products with each row, and their mean squares: ``[2, outputs]``.

    Without a Hessian, sums over the elements of the row.
    """
    both = (coded - weight, weight)
    return torch.stack([((x if hessian is None else x @ hessian) * x).sum(dim=-1) for x in both])
