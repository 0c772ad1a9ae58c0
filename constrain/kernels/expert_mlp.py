"""The experts of a layer: gated MLPs, of which every token passes through a few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F

from constrain.kernels import cuda
from constrain.kernels.activation import Activation, gated_activation
from constrain.kernels.experts import ExpertWeight, avoids_waiting, expert_linear
from constrain.kernels.routing import ExpertChoice, kernels_take
from constrain.kernels.weights.fragments import TILE
from constrain.kernels.weights.stacked import StackedWeight

# Torch's product of consecutive groups of rows, each with its own matrix; torch 2.5 has none.
_grouped_product: Any = getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
# Major compute capabilities with a kernel for it. On others torch 2.8 raises an error, and in later versions the host
# waits for the offsets of the groups.
_GROUPED_CAPABILITIES = (9, 10) if hasattr(F, "grouped_mm") else (9,)


@dataclass(frozen=True)
class ExpertMLP:
    """Weights of all experts of a layer.

    Attributes:
        gate_up: ``[experts, 2 * n, k]``, the rows of the gate first; plain, packed, or one weight for each expert.
        down: ``[experts, k, n]``, likewise.
        activation: non-linearity of the gate.
        gate_up_bias: ``[experts, 2 * n]``, added to the products.
        down_bias: ``[experts, k]``, likewise.
    """

    gate_up: ExpertWeight
    down: ExpertWeight
    activation: Activation
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None


def expert_mlp(
    x: torch.Tensor, choice: ExpertChoice, mlp: ExpertMLP, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """Apply its experts to each row, and return the sum of their weighted outputs, plus ``residual``.

    For few rows, kernels read the weights of the chosen experts only, each once; packed ones once for each
    ``MAX_PACKED_EXPERT_ROWS``. More rows choose nearly all experts anyway. Wherever this is captured in a CUDA graph,
    the host does not wait for the choice.

    Args:
        x: ``[rows, k]``.
        choice: the experts of each row.
        mlp: weights of all experts.
        residual: ``[rows, k]``.

    Returns:
        ``[rows, k]``, of the dtype of ``x``.
    """
    if _fits_packed_kernels(x, choice.experts, mlp, residual) and avoids_waiting(x):
        return _packed_expert_mlp_cuda(x, choice, mlp, residual)
    if _fits_kernels(x, choice.experts, mlp, residual):
        if len(x) <= cuda.module.MAX_EXPERT_ROWS:
            return _expert_mlp_cuda(x, choice, mlp, residual)
        if not avoids_waiting(x) and _multiplies_groups(x):
            return expert_mlp_grouped(x, choice, mlp, residual)
    return expert_mlp_reference(x, choice, mlp, residual)


def expert_mlp_reference(
    x: torch.Tensor, choice: ExpertChoice, mlp: ExpertMLP, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """:func:`expert_mlp` as products of all experts of each row."""
    inner = expert_linear(x.unsqueeze(1), mlp.gate_up, choice.experts, mlp.gate_up_bias, mlp.activation)
    return weighted_sum(expert_linear(inner, mlp.down, choice.experts, mlp.down_bias), choice.weights, residual)


def weighted_sum(outputs: torch.Tensor, weights: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    """Return the sum of ``outputs`` ``[rows, chosen, k]`` times ``weights`` ``[rows, chosen]``, plus ``residual``."""
    y = torch.bmm(weights.to(outputs.dtype).unsqueeze(1), outputs).squeeze(1)
    return y if residual is None else y.add_(residual)


def expert_mlp_grouped(
    x: torch.Tensor, choice: ExpertChoice, mlp: ExpertMLP, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """:func:`expert_mlp` for many rows, which are sorted by their experts; the host does not wait for the choice.

    The weights must be tensors of all experts.
    """
    rows, chosen = choice.experts.shape
    ordered, order = choice.experts.flatten().sort(stable=True)
    gate_up = _grouped_linear(x[order // chosen], mlp.gate_up, mlp.gate_up_bias, ordered)
    outputs = _grouped_linear(gated_activation(gate_up, mlp.activation), mlp.down, mlp.down_bias, ordered)
    unsorted = torch.empty_like(outputs).index_copy_(0, order, outputs)
    return weighted_sum(unsorted.view(rows, chosen, -1), choice.weights, residual)


def _grouped_linear(
    x: torch.Tensor, weight: ExpertWeight, bias: torch.Tensor | None, experts: torch.Tensor
) -> torch.Tensor:
    """Multiply each row with the weight of its expert; the rows are in the order of the experts."""
    matrices = cast(torch.Tensor, weight)
    numbers = torch.arange(len(matrices), device=x.device)
    ends = torch.searchsorted(experts, numbers, right=True, out_int32=True)
    y = cast(torch.Tensor, _grouped_product(x, matrices.transpose(1, 2), offs=ends))
    return y if bias is None else y.add_(bias[experts])


def _multiplies_groups(x: torch.Tensor) -> bool:
    known = _grouped_product is not None and x.dtype is torch.bfloat16
    return known and torch.cuda.get_device_capability(x.device)[0] in _GROUPED_CAPABILITIES


def _fits_kernels(x: torch.Tensor, experts: torch.Tensor, mlp: ExpertMLP, residual: torch.Tensor | None) -> bool:
    stacked = isinstance(mlp.gate_up, torch.Tensor) and isinstance(mlp.down, torch.Tensor)
    if not stacked or not len(x) or not mlp.activation.compiled:
        return False
    matrices = cast(torch.Tensor, mlp.gate_up), cast(torch.Tensor, mlp.down)
    given = (x, *matrices, mlp.gate_up_bias, mlp.down_bias, residual)
    if not cuda.takes(*given) or not all(matrix.is_contiguous() for matrix in matrices):
        return False
    return kernels_take(len(matrices[0]), experts.shape[1])


def _fits_packed_kernels(x: torch.Tensor, experts: torch.Tensor, mlp: ExpertMLP, residual: torch.Tensor | None) -> bool:
    if not isinstance(mlp.gate_up, StackedWeight) or not isinstance(mlp.down, StackedWeight):
        return False
    if not len(x) or not mlp.activation.compiled or mlp.gate_up.outputs % (2 * TILE):
        return False
    given = (x, mlp.gate_up_bias, mlp.down_bias, residual)
    return cuda.takes(*given) and mlp.down.whole.records.is_cuda and kernels_take(len(mlp.down), experts.shape[1])


def _expert_mlp_cuda(
    x: torch.Tensor, choice: ExpertChoice, mlp: ExpertMLP, residual: torch.Tensor | None
) -> torch.Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    gate_up, down = cast(torch.Tensor, mlp.gate_up), cast(torch.Tensor, mlp.down)
    inner = x.new_empty(choice.experts.numel(), down.shape[2])
    given = _arguments(x, choice, mlp, residual, inner, out)
    with torch.cuda.device(x.device):
        cuda.module.expert_mlp(gate_up=cuda.address(gate_up), down=cuda.address(down), **given)
    return out


def _packed_expert_mlp_cuda(
    x: torch.Tensor, choice: ExpertChoice, mlp: ExpertMLP, residual: torch.Tensor | None
) -> torch.Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    gate_up, down = cast(StackedWeight, mlp.gate_up), cast(StackedWeight, mlp.down)
    step = cuda.module.MAX_PACKED_EXPERT_ROWS
    picks = min(step, len(x)) * choice.experts.shape[1]
    inner = x.new_empty(picks, gate_up.outputs // 2)
    gathered = x.new_empty(picks, max(each.width if each.order is not None else 0 for each in (gate_up, down)))
    orders = {"gate_up_order": cuda.address(gate_up.order), "down_order": cuda.address(down.order)}
    with torch.cuda.device(x.device):
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            own = ExpertChoice(choice.experts[rows], choice.weights[rows])
            rest = None if residual is None else residual[rows]
            given = _arguments(x[rows], own, mlp, rest, inner, out[rows])
            given |= orders | {"gathered": cuda.address(gathered)}
            cuda.module.packed_expert_mlp(gate_up=gate_up.view(), down=down.view(), **given)
    return out


def _arguments(
    x: torch.Tensor,
    choice: ExpertChoice,
    mlp: ExpertMLP,
    residual: torch.Tensor | None,
    inner: torch.Tensor,
    out: torch.Tensor,
) -> dict[str, Any]:
    """Return the arguments of a kernel, except the weights; ``inner`` has room for the inner features of all picks."""
    return {
        "x": cuda.address(x),
        "experts": cuda.address(choice.experts),
        "weights": cuda.address(choice.weights),
        "gate_up_bias": cuda.address(mlp.gate_up_bias),
        "down_bias": cuda.address(mlp.down_bias),
        "residual": cuda.address(residual),
        "inner": cuda.address(inner),
        "out": cuda.address(out),
        "x_stride": x.stride(0),
        "residual_stride": 0 if residual is None else residual.stride(0),
        "out_stride": out.stride(0),
        "rows": len(x),
        "count": len(mlp.down),
        "chosen": choice.experts.shape[1],
        "size": x.shape[1],
        "width": inner.shape[1],
        "activation": mlp.activation.value,
        "dtype": cuda.DTYPES[x.dtype],
        "stream": cuda.stream(x),
    }
