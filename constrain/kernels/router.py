"""The norm before a mixture of experts, its router, and the choice of experts."""

from __future__ import annotations

from typing import cast

import torch

from constrain.kernels import cuda
from constrain.kernels.few_rows import kernels_apply
from constrain.kernels.linear import linear
from constrain.kernels.norm import RowNorm, normed
from constrain.kernels.routing import ExpertChoice, Routing, route
from constrain.kernels.weights.packed import Weight

# The kernel's blocks read one another's memory.
_CAPABILITY = 9


def route_normed(
    x: torch.Tensor,
    norm: RowNorm,
    weight: Weight,
    bias: torch.Tensor | None,
    routing: Routing,
    correction: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ExpertChoice]:
    """Normalise rows, and choose the experts of each by ``norm(x) @ weight.T + bias``.

    The weight may be read before the work that was queued just before this call has ended.

    Args:
        x: ``[rows, k]``.
        norm: applied to ``x``.
        weight, bias: of the router, ``[experts, k]`` and ``[experts]``.
        routing, correction: as for :func:`constrain.kernels.route`.

    Returns:
        ``norm(x)`` of the dtype of ``x``, and the choice.
    """
    if _fits_kernel(x, norm, weight, bias, routing):
        return _route_normed_cuda(x, norm, cast(torch.Tensor, weight), bias, routing, correction)
    rows = normed(x, norm)
    return rows, route(linear(rows, weight, bias), routing, correction)


def _fits_kernel(x: torch.Tensor, norm: RowNorm, weight: Weight, bias: torch.Tensor | None, routing: Routing) -> bool:
    if not isinstance(weight, torch.Tensor) or not cuda.takes(x, norm.weight, weight, bias):
        return False
    known = kernels_apply(norm, x.dtype) and weight.is_contiguous() and routing.chosen_groups == routing.groups
    if not known or torch.cuda.get_device_capability(x.device)[0] < _CAPABILITY:
        return False
    fits = 0 < len(x) <= cuda.module.MAX_ROUTED_ROWS and len(weight) <= cuda.module.MAX_ROUTED_EXPERTS
    return bool(fits and routing.chosen <= cuda.module.MAX_CHOSEN_EXPERTS)


def _route_normed_cuda(
    x: torch.Tensor,
    norm: RowNorm,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    routing: Routing,
    correction: torch.Tensor | None,
) -> tuple[torch.Tensor, ExpertChoice]:
    rows = torch.empty_like(x, memory_format=torch.contiguous_format)
    experts = torch.empty(len(x), routing.chosen, dtype=torch.int64, device=x.device)
    weights = torch.empty(len(x), routing.chosen, device=x.device)
    with torch.cuda.device(x.device):
        cuda.module.route_normed(
            x=cuda.address(x),
            norm_weight=cuda.address(norm.weight),
            weight=cuda.address(weight),
            bias=cuda.address(bias),
            correction=cuda.address(correction),
            normed=cuda.address(rows),
            experts=cuda.address(experts),
            weights=cuda.address(weights),
            x_stride=x.stride(0),
            rows=len(x),
            width=x.shape[1],
            count=len(weight),
            chosen=routing.chosen,
            scoring=routing.scoring.value,
            normalised=routing.normalised,
            scale=routing.scale,
            eps=norm.eps,
            stream=cuda.stream(x),
        )
    return rows, ExpertChoice(experts, weights)
