"""Formats of quantised weights: each has a class, which reads it into a packed weight."""

from __future__ import annotations

from constrain.model.formats.find import find_quantized
from constrain.model.formats.floats import StackedFloat4
from constrain.model.formats.settings import Quantization, read_quantization
from constrain.model.formats.stored import StoredTensor, StoredWeight

__all__ = ["Quantization", "StackedFloat4", "StoredTensor", "StoredWeight", "find_quantized", "read_quantization"]
