"""Weights that stay packed in memory, by the form of their codes."""

from __future__ import annotations

from constrain.kernels.weights.cpu import multiplies_packed
from constrain.kernels.weights.grouped import GroupedInt8Weight, GroupedWeight, Int4Weight
from constrain.kernels.weights.int8 import Int8Weight
from constrain.kernels.weights.interleaved import InterleavedWeight
from constrain.kernels.weights.joined import JoinedWeight, join_weights
from constrain.kernels.weights.packed import PackedWeight, Weight

__all__ = [
    "GroupedInt8Weight",
    "GroupedWeight",
    "Int4Weight",
    "Int8Weight",
    "InterleavedWeight",
    "JoinedWeight",
    "PackedWeight",
    "Weight",
    "join_weights",
    "multiplies_packed",
]
