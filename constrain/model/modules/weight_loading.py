"""Weights of one or more layers as one matrix, plain or packed."""

from __future__ import annotations

import torch

from constrain.kernels import Weight, join_weights, multiplies_packed
from constrain.model.tensor_reader import TensorSource


def load_weight(
    source: TensorSource, parts: dict[str, int], rows: int, inputs: int, dtype: torch.dtype, device: torch.device
) -> Weight:
    """Load the weights of some layers, by their numbers of rows, as one of ``rows`` rows, the last of them zeros.

    Those that are stored packed stay so if ``device`` multiplies them.
    """
    if multiplies_packed(device, dtype):
        found = [source.packed(f"{key}.weight", (count, inputs), device) for key, count in parts.items()]
        if any(weight is not None for weight in found):
            each = zip(parts.items(), found, strict=True)
            weights = [
                load_plain(source, {key: count}, count, inputs, dtype, device) if weight is None else weight
                for (key, count), weight in each
            ]
            return join_weights(weights, rows, dtype)
    return load_plain(source, parts, rows, inputs, dtype, device)


def load_plain(
    source: TensorSource, parts: dict[str, int], rows: int, inputs: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Load weights as :func:`load_weight` does, but dequantise all of them."""
    weight = torch.zeros(rows, inputs, dtype=dtype, device=device)
    copy_rows(source, parts, weight)
    return weight


def copy_rows(source: TensorSource, parts: dict[str, int], weight: torch.Tensor) -> None:
    """Fill the first rows of ``weight`` with the weights of some layers, by their numbers of rows."""
    start = 0
    for key, count in parts.items():
        source.copy(f"{key}.weight", weight[start : start + count])
        start += count
