"""Muon for matrices of few shapes: those of one shape are orthogonalised together, which takes few kernel launches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

#: Coefficients of the polynomial whose iteration brings singular values near 1 (Jordan et al. 2024).
_COEFFICIENTS = (3.4445, -4.775, 2.0315)
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Momentum whose updates are orthogonalised, of the size of AdamW's updates (Liu et al. 2025).

    Computes what ``torch.optim.Muon(..., adjust_lr_fn="match_rms_adamw")`` does.

    Args:
        matrices: the parameters.
        lr: learning rate.
        weight_decay: decoupled weight decay.
        momentum: share of the momentum that is kept, of Nesterov's form.
    """

    def __init__(
        self, matrices: Iterable[Tensor], lr: float, weight_decay: float = 0.1, momentum: float = 0.95
    ) -> None:
        super().__init__(list(matrices), {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: defaultdict[torch.Size, list[Tensor]] = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    shapes[matrix.shape].append(matrix)
            for matrices in shapes.values():
                self._step(matrices, group)

    def _step(self, matrices: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix)
        buffers = [self.state[matrix]["momentum"] for matrix in matrices]
        torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, buffers, group["momentum"])
        directions = orthogonalised(torch.stack(updates)).to(matrices[0].dtype)
        rate = group["lr"] * 0.2 * max(matrices[0].shape) ** 0.5
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(matrices, list(directions.unbind()), alpha=-rate)


def orthogonalised(matrices: Tensor, eps: float = 1e-7) -> Tensor:
    """Bring the singular values of ``matrices`` [n, rows, columns] near 1, in bfloat16, by Newton-Schulz iterations."""
    a, b, c = _COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if is_tall else matrices).bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x
