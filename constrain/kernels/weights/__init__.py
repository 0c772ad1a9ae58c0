"""Weights that stay packed in memory, by the form of their codes."""

from __future__ import annotations

from constrain.kernels.weights.grouped import GroupedInt8Weight, GroupedWeight, Int4Weight
from constrain.kernels.weights.packed import PackedWeight, Weight

__all__ = ["GroupedInt8Weight", "GroupedWeight", "Int4Weight", "PackedWeight", "Weight"]
