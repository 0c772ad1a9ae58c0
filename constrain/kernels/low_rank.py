"""Low-rank updates of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from constrain.kernels import cuda

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

    def reserve(self, floats: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return uninitialised float32 memory, and two int32 signals that are zero between products."""
        if self._projected.device != device or self._projected.numel() < floats:
            self._projected = torch.empty(floats, device=device)
        if self._signals.device != device or not self._signals.numel():
            self._signals = torch.zeros(2, dtype=torch.int32, device=device)
        return self._projected, self._signals
