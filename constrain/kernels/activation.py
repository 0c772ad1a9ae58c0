"""Element-wise non-linearities."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

import torch
import torch.nn.functional as F

from constrain.kernels import cuda


class Activation(Enum):
    """Activation of the gate of an MLP.

    ``CLAMPED_SWIGLU`` is that of gpt-oss, and only for MLPs with a gate: both halves are clamped, the gate is activated
    by ``x * sigmoid(1.702 * x)``, and one is added to the other half. ``QUICK_GELU`` is that activation alone.
    ``RELU2`` is ``max(x, 0) ** 2`` (So et al. 2021).
    """

    SILU = "silu"
    GELU_TANH = "gelu_pytorch_tanh"
    GELU = "gelu"
    QUICK_GELU = "quick_gelu"
    RELU2 = "relu2"
    CLAMPED_SWIGLU = "clamped_swiglu"

    @property
    def compiled(self) -> bool:
        """Whether the compiled kernels have it."""
        return self in (Activation.SILU, Activation.GELU_TANH, Activation.CLAMPED_SWIGLU)


_CLAMP, _SHARPNESS = 7.0, 1.702


def _quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(_SHARPNESS * x)


def _squared_relu(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x).square()


_FUNCTIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    Activation.SILU: F.silu,
    Activation.GELU: F.gelu,
    Activation.GELU_TANH: partial(F.gelu, approximate="tanh"),
    Activation.QUICK_GELU: _quick_gelu,
    Activation.RELU2: _squared_relu,
}


def gated_activation(gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
    """``act(gate) * up`` (Shazeer 2020, "GLU Variants Improve Transformer").

    Args:
        gate_up: ``[..., 2 * n]``, the gate in the first half of the last dimension.
        activation: non-linearity of the gate.

    Returns:
        ``[..., n]``, of the dtype of ``gate_up``.
    """
    if activation.compiled and cuda.takes(gate_up) and gate_up.is_contiguous() and gate_up.shape[-1] % 16 == 0:
        return _gated_cuda(gate_up, activation)
    return gated_activation_reference(gate_up, activation)


def gated_activation_reference(gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
    """:func:`gated_activation` in plain torch."""
    gate, up = gate_up.chunk(2, dim=-1)
    if activation is Activation.CLAMPED_SWIGLU:
        gate = gate.clamp(max=_CLAMP)
        return (gate * _SHARPNESS).sigmoid_().mul_(gate).mul_(up.clamp(-_CLAMP, _CLAMP).add_(1))
    return activated(gate, activation).mul_(up)


def activated(x: torch.Tensor, activation: Activation) -> torch.Tensor:
    """Apply a non-linearity that needs no gate to every element."""
    return _FUNCTIONS[activation](x)


def _gated_cuda(gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
    width = gate_up.shape[-1] // 2
    out = gate_up.new_empty(*gate_up.shape[:-1], width)
    with torch.cuda.device(gate_up.device):
        cuda.module.gated_activation(
            gate_up=cuda.address(gate_up),
            out=cuda.address(out),
            rows=out.numel() // width,
            width=width,
            activation=activation.value,
            dtype=cuda.DTYPES[gate_up.dtype],
            stream=cuda.stream(gate_up),
        )
    return out


def soft_cap(x: torch.Tensor, cap: float) -> torch.Tensor:
    """``cap * tanh(x / cap)``: close to ``x`` near zero, and bounded by ``cap`` (Gemma 2 report, 2024, section 2)."""
    return torch.tanh(x / cap).mul_(cap)
