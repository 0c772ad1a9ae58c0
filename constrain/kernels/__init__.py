"""One function for each operation of a forward pass: a torch reference, and the CUDA kernel where there is one."""

from __future__ import annotations

from constrain.kernels.activation import Activation, gated_activation, soft_cap
from constrain.kernels.attention import attention
from constrain.kernels.bitmask import apply_bitmask
from constrain.kernels.cache_coding import Coding, FloatCoding, GroupCoding, PlainCoding
from constrain.kernels.linear import linear, low_rank
from constrain.kernels.norm import rms_norm
from constrain.kernels.rotary import rotate

__all__ = [
    "Activation",
    "Coding",
    "FloatCoding",
    "GroupCoding",
    "PlainCoding",
    "apply_bitmask",
    "attention",
    "gated_activation",
    "linear",
    "low_rank",
    "rms_norm",
    "rotate",
    "soft_cap",
]
