"""Products with the weights of the experts that rows have chosen."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from constrain.kernels.activation import Activation, gated_activation
from constrain.kernels.linear import gated_linear, linear
from constrain.kernels.weights.packed import Weight
from constrain.kernels.weights.stacked import StackedWeight

ExpertWeight = torch.Tensor | StackedWeight | Sequence[Weight]
"""Weights of the same projections of every expert: ``[experts, n, k]``, plain or packed, or one for each expert."""


# On a GPU, with more rows it pays to wait for the choice.
_FEW_ROWS = 64


def expert_linear(
    x: torch.Tensor,
    weight: ExpertWeight,
    experts: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
) -> torch.Tensor:
    """Multiply each row with the weights of its experts: ``x[i, j] @ weight[experts[i, j]].T + bias[experts[i, j]]``.

    Where this is captured in a CUDA graph, no shape depends on the choice. Otherwise the host may wait for the choice,
    and there is one product for each expert that is chosen.

    Args:
        x: ``[rows, chosen, k]``, or ``[rows, 1, k]`` for the same input of all experts of a row.
        weight: ``[experts, n, k]``, or a weight ``[n, k]`` of each expert.
        experts: int64 ``[rows, chosen]``.
        bias: ``[experts, n]``.
        activation: applied to the result as :func:`constrain.kernels.gated_activation` does, which halves ``n``.

    Returns:
        ``[rows, chosen, n]``.
    """
    if isinstance(weight, (torch.Tensor, StackedWeight)) and avoids_waiting(x):
        y = expert_linear_static(x, weight, experts)
        y = y if bias is None else y.add_(bias[experts])
        return y if activation is None else gated_activation(y, activation)
    return expert_linear_reference(x, weight, experts, bias, activation)


def expert_linear_reference(
    x: torch.Tensor,
    weight: ExpertWeight,
    experts: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
) -> torch.Tensor:
    """:func:`expert_linear` as one product for each expert that is chosen; the host must know the choice."""
    rows = x.expand(*experts.shape, -1)
    products = []
    order = experts.flatten().argsort(stable=True)
    counts = experts.flatten().bincount(minlength=len(weight)).tolist()
    for expert, picks in enumerate(torch.split(order, counts)):
        if len(picks):
            own = None if bias is None else bias[expert]
            given = rows[picks // experts.shape[1], picks % experts.shape[1]]
            products.append(_product(given, weight[expert], own, activation))
    joined = torch.cat(products)
    return torch.empty_like(joined).index_copy_(0, order, joined).view(*experts.shape, -1)


def _product(x: torch.Tensor, weight: Weight, bias: torch.Tensor | None, activation: Activation | None) -> torch.Tensor:
    return linear(x, weight, bias) if activation is None else gated_linear(x, weight, bias, activation)


def avoids_waiting(x: torch.Tensor) -> bool:
    """Return whether products have shapes that do not depend on the choice, so that the host does not wait for it."""
    return x.is_cuda and (len(x) <= _FEW_ROWS or torch.cuda.is_current_stream_capturing())


def expert_linear_static(x: torch.Tensor, weight: torch.Tensor | StackedWeight, experts: torch.Tensor) -> torch.Tensor:
    """Multiply in shapes that do not depend on the choice: with copies of the chosen weights, or with all of them.

    Arguments and result are those of :func:`expert_linear`.
    """
    rows, chosen = experts.shape
    if experts.numel() < len(weight):
        given = x.expand(rows, chosen, -1).reshape(rows * chosen, 1, -1)
        return torch.bmm(given, _dense(weight, experts.flatten(), x).transpose(1, 2)).view(rows, chosen, -1)
    matrices = _dense(weight, None, x).transpose(1, 2)
    if x.shape[1] > 1:
        own = torch.bmm(x.reshape(1, rows * chosen, -1).expand(len(weight), -1, -1), matrices)
        return own[experts.flatten(), torch.arange(rows * chosen, device=x.device)].view(rows, chosen, -1)
    shared = torch.bmm(x.transpose(0, 1).expand(len(weight), -1, -1), matrices)
    return shared[experts, torch.arange(rows, device=x.device).unsqueeze(1)]


def _dense(weight: torch.Tensor | StackedWeight, experts: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """Return the plain weights of some experts, or of all."""
    if isinstance(weight, StackedWeight):
        return weight.dequantized(experts, x.dtype)
    return weight if experts is None else weight[experts]
