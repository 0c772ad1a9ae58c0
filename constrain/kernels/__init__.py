"""One function for each operation of a forward pass: a torch reference, and the CUDA kernel where there is one."""

from __future__ import annotations

from constrain.kernels.activation import Activation, gated_activation, soft_cap
from constrain.kernels.attention import attention
from constrain.kernels.bitmask import ChosenRows, apply_bitmask
from constrain.kernels.cache_coding import Coding, FloatCoding, GroupCoding, Parts, PlainCoding
from constrain.kernels.dequantize import dequantize_exl2, dequantize_gptq
from constrain.kernels.linear import RowNorm, gated_linear, linear, low_rank
from constrain.kernels.norm import layer_norm, rms_norm
from constrain.kernels.paged_attention import AttentionWorkspace, paged_attention
from constrain.kernels.pages import Pages, kernels_read
from constrain.kernels.penalties import PenaltyParameters, PenaltyScratch, penalise, penalise_row
from constrain.kernels.rotary import rotate
from constrain.kernels.sampling import DrawParameters, draw
from constrain.kernels.step_tokens import StepTokens, TextPages, enter_tokens

__all__ = [
    "Activation",
    "AttentionWorkspace",
    "ChosenRows",
    "Coding",
    "DrawParameters",
    "FloatCoding",
    "GroupCoding",
    "Pages",
    "Parts",
    "PenaltyParameters",
    "PenaltyScratch",
    "PlainCoding",
    "RowNorm",
    "StepTokens",
    "TextPages",
    "apply_bitmask",
    "attention",
    "dequantize_exl2",
    "dequantize_gptq",
    "draw",
    "enter_tokens",
    "gated_activation",
    "gated_linear",
    "kernels_read",
    "layer_norm",
    "linear",
    "low_rank",
    "paged_attention",
    "penalise",
    "penalise_row",
    "rms_norm",
    "rotate",
    "soft_cap",
]
