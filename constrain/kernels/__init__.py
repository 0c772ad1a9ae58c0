"""One function for each operation of a forward pass: a torch reference, and the CUDA kernel where there is one."""

from __future__ import annotations

from constrain.kernels.activation import Activation, activated, gated_activation, soft_cap
from constrain.kernels.attention import MAX_FUSED_DIM, MAX_SCORES, attention
from constrain.kernels.bitmask import ChosenRows, apply_bitmask
from constrain.kernels.expert_mlp import ExpertMLP, expert_mlp, weighted_sum
from constrain.kernels.experts import ExpertWeight, expert_linear
from constrain.kernels.guidance import add_bias, apply_guidance
from constrain.kernels.kv_quantization import GroupQuantization, KVQuantization, Parts, TruncatedFloat, Unquantized
from constrain.kernels.linear import gated_linear, linear
from constrain.kernels.low_rank import LowRankUpdate, LowRankWorkspace
from constrain.kernels.masses import MAX_CHOICES, Masses, measure_masses
from constrain.kernels.norm import RowNorm, layer_norm, normalise_heads, rms_norm
from constrain.kernels.paged_attention import AttentionWorkspace, cpu_reads_pages, paged_attention
from constrain.kernels.pages import Pages, kernels_read
from constrain.kernels.peer_sum import PeerSum, can_access_peers, peer_sum_reference
from constrain.kernels.penalties import PenaltyParameters, PenaltyScratch, penalise, penalise_row
from constrain.kernels.philox import philox_uniform
from constrain.kernels.repetition import DryTensors, apply_dry
from constrain.kernels.rotary import rotate
from constrain.kernels.router import route_normed
from constrain.kernels.routing import ExpertChoice, Routing, Scoring, route
from constrain.kernels.sampling import sample
from constrain.kernels.sampling_tensors import GREEDY_TEMPERATURE, SamplingTensors, TopTokens
from constrain.kernels.step_tokens import StepTokens, TokenPages, enter_tokens
from constrain.kernels.weights import (
    BLOCK,
    INTEGERS,
    PIECE,
    Float4Weight,
    Float8Weight,
    GroupedInt2Weight,
    GroupedInt3Weight,
    GroupedInt5Weight,
    GroupedInt6Weight,
    GroupedInt8Weight,
    GroupedWeight,
    Int4Weight,
    Int8Weight,
    InterleavedWeight,
    JoinedWeight,
    PackedWeight,
    RecordForm,
    StackedWeight,
    TensorCoreWeight,
    Weight,
    fills_words,
    find_form,
    group_table,
    join_weights,
    multiplies_packed,
    record_codes,
    scaled_form,
    stacks,
)

__all__ = [
    "BLOCK",
    "GREEDY_TEMPERATURE",
    "INTEGERS",
    "MAX_CHOICES",
    "MAX_FUSED_DIM",
    "MAX_SCORES",
    "PIECE",
    "Activation",
    "AttentionWorkspace",
    "ChosenRows",
    "DryTensors",
    "ExpertChoice",
    "ExpertMLP",
    "ExpertWeight",
    "Float4Weight",
    "Float8Weight",
    "GroupQuantization",
    "GroupedInt2Weight",
    "GroupedInt3Weight",
    "GroupedInt5Weight",
    "GroupedInt6Weight",
    "GroupedInt8Weight",
    "GroupedWeight",
    "Int4Weight",
    "Int8Weight",
    "InterleavedWeight",
    "JoinedWeight",
    "KVQuantization",
    "LowRankUpdate",
    "LowRankWorkspace",
    "Masses",
    "PackedWeight",
    "Pages",
    "Parts",
    "PeerSum",
    "PenaltyParameters",
    "PenaltyScratch",
    "RecordForm",
    "Routing",
    "RowNorm",
    "SamplingTensors",
    "Scoring",
    "StackedWeight",
    "StepTokens",
    "TensorCoreWeight",
    "TokenPages",
    "TopTokens",
    "TruncatedFloat",
    "Unquantized",
    "Weight",
    "activated",
    "add_bias",
    "apply_bitmask",
    "apply_dry",
    "apply_guidance",
    "attention",
    "can_access_peers",
    "cpu_reads_pages",
    "enter_tokens",
    "expert_linear",
    "expert_mlp",
    "fills_words",
    "find_form",
    "gated_activation",
    "gated_linear",
    "group_table",
    "join_weights",
    "kernels_read",
    "layer_norm",
    "linear",
    "measure_masses",
    "multiplies_packed",
    "normalise_heads",
    "paged_attention",
    "peer_sum_reference",
    "penalise",
    "penalise_row",
    "philox_uniform",
    "record_codes",
    "rms_norm",
    "rotate",
    "route",
    "route_normed",
    "sample",
    "scaled_form",
    "soft_cap",
    "stacks",
    "weighted_sum",
]
