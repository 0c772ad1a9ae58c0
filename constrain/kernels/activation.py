"""Element-wise non-linearities."""

from __future__ import annotations

from enum import Enum

import torch
import torch.nn.functional as F


class Activation(Enum):
    """Activation of the gate of an MLP."""

    SILU = "silu"
    GELU_TANH = "gelu_pytorch_tanh"


def gated_activation(gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
    """``act(gate) * up`` (Shazeer 2020, "GLU Variants Improve Transformer").

    Args:
        gate_up: ``[..., 2 * n]``, the gate in the first half of the last dimension.
        activation: what is applied to the gate.

    Returns:
        ``[..., n]``, of the dtype given.
    """
    gate, up = gate_up.chunk(2, dim=-1)
    activated = F.silu(gate) if activation is Activation.SILU else F.gelu(gate, approximate="tanh")
    return activated.mul_(up)


def soft_cap(x: torch.Tensor, cap: float) -> torch.Tensor:
    """``cap * tanh(x / cap)``: the identity near zero, and never beyond ``cap`` (Gemma 2 report, 2024, section 2)."""
    return torch.tanh(x / cap).mul_(cap)
