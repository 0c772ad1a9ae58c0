"""Weights that stay packed in memory, by the form of their codes."""

from __future__ import annotations

from constrain.kernels.weights.cpu import BLOCK
from constrain.kernels.weights.devices import multiplies_packed
from constrain.kernels.weights.fragments import RecordForm, find_form, record_codes, scaled_form
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
from constrain.kernels.weights.stacked import StackedWeight, stacks
from constrain.kernels.weights.tensor_core import PIECE, TensorCoreWeight

__all__ = [
    "BLOCK",
    "INTEGERS",
    "PIECE",
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
    "RecordForm",
    "StackedWeight",
    "TensorCoreWeight",
    "Weight",
    "fills_words",
    "find_form",
    "group_table",
    "join_weights",
    "multiplies_packed",
    "record_codes",
    "scaled_form",
    "stacks",
]
