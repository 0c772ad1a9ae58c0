"""Low-rank updates of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from constrain.kernels import cuda
from constrain.kernels.activation import Activation
from constrain.kernels.graphs import SideStream

_MAX_RANK = 256


@dataclass(frozen=True)
class LowRankUpdate:
    """The matrix ``up @ down``, added to a weight ``[n, k]`` (Hu et al. 2021, "LoRA").

    Attributes:
        down: ``[r, k]``, of the dtype of the weight.
        up: ``[n, r]``, likewise.
    """

    down: torch.Tensor
    up: torch.Tensor

    def fits_kernels(self, x: torch.Tensor) -> bool:
        """Return whether kernels can apply this update to ``x``."""
        fits = cuda.takes(x, self.down, self.up) and self.down.shape[0] <= _MAX_RANK
        return fits and self.down.is_contiguous() and self.up.is_contiguous()

    def for_kernels(self, rows: torch.Tensor, workspace: LowRankWorkspace) -> Any:
        """Return this update and scratch memory for its product with ``rows``, ``[m, k]``, as kernels take them."""
        rank, inputs = self.down.shape
        floats = cuda.module.projected_floats(rows=rows.shape[0], inputs=inputs, rank=rank)
        projected, signals = workspace.reserve(floats, rows.device)
        return cuda.module.LowRank(
            down=cuda.address(self.down),
            up=cuda.address(self.up),
            projected=cuda.address(projected),
            signals=cuda.address(signals),
            rank=rank,
        )


class LowRankWorkspace:
    """Scratch memory of low-rank updates that are applied one after the other; it grows to the largest need."""

    def __init__(self) -> None:
        self._projected = torch.empty(0)
        self._signals = torch.empty(0, dtype=torch.int32)
        self._side: SideStream | None = None

    def reserve(self, floats: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return uninitialised float32 memory, and two int32 signals that are zero between products."""
        if self._projected.device != device or self._projected.numel() < floats:
            self._projected = torch.empty(floats, device=device)
        if self._signals.device != device or not self._signals.numel():
            self._signals = torch.zeros(2, dtype=torch.int32, device=device)
        return self._projected, self._signals

    def side_stream(self, device: torch.device) -> SideStream:
        """Return the stream on which rows are projected while other work runs."""
        if self._side is None:
            self._side = SideStream(device)
        return self._side


def project(rows: torch.Tensor, prepared: Any) -> None:
    """Queue ``rows @ down.T`` into the scratch memory of a prepared update; ``rows`` are ``[m, k]``."""
    with torch.cuda.device(rows.device):
        cuda.module.project_rows(
            x=cuda.address(rows),
            x_stride=rows.stride(0),
            rows=rows.shape[0],
            inputs=rows.shape[1],
            dtype=cuda.DTYPES[rows.dtype],
            update=prepared,
            stream=cuda.stream(rows),
        )


def add_projected(
    y: torch.Tensor, rows: torch.Tensor, prepared: Any, residual: torch.Tensor | None, activation: Activation | None
) -> torch.Tensor:
    """Queue ``y + projected @ up.T + residual``, or the gated activation of that sum.

    Args:
        y: ``[m, n]``, contiguous; ``[m, 2 * n]`` for an activation, the gate first.
        rows: what was projected.
        prepared: the update, with what :func:`project` has computed.
        residual: ``[m, n]``.
        activation: non-linearity of the gate.

    Returns:
        ``[m, n]``, in the memory of ``y`` if there is no activation.
    """
    outputs = y.shape[1] if activation is None else y.shape[1] // 2
    out = y if activation is None else y.new_empty(y.shape[0], outputs)
    with torch.cuda.device(y.device):
        cuda.module.add_projected(
            base=cuda.address(y),
            residual=cuda.address(residual),
            out=cuda.address(out),
            residual_stride=0 if residual is None else residual.stride(0),
            rows=y.shape[0],
            inputs=rows.shape[1],
            outputs=outputs,
            gated=activation is not None,
            activation=(activation or Activation.SILU).value,
            dtype=cuda.DTYPES[y.dtype],
            update=prepared,
            stream=cuda.stream(y),
        )
    return out
