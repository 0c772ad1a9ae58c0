"""Weights that stay packed in memory, by the form of their codes."""

from __future__ import annotations

from constrain.kernels.weights.cpu import BLOCK, multiplies_packed
from constrain.kernels.weights.grouped import (
    INTEGERS,
    Float4Weight,
    Float8Weight,
    GroupedInt2Weight,
    GroupedInt3Weight,
    GroupedInt5Weight,
    GroupedInt6Weight,
    GroupedInt8Weight,
    GroupedWeight,
    Int4Weight,
    group_table,
)
from constrain.kernels.weights.int8 import Int8Weight
from constrain.kernels.weights.interleaved import InterleavedWeight, fills_words
from constrain.kernels.weights.joined import JoinedWeight, join_weights
from constrain.kernels.weights.packed import PackedWeight, Weight

__all__ = [
    "BLOCK",
    "INTEGERS",
    "Float4Weight",
    "Float8Weight",
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
    "PackedWeight",
    "Weight",
    "fills_words",
    "group_table",
    "join_weights",
    "multiplies_packed",
]
