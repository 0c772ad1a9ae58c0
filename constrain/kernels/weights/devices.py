"""Which devices multiply packed weights."""

from __future__ import annotations

import torch

from constrain.kernels.weights.cpu import multiplies_interleaved
from constrain.kernels.weights.tensor_core import multiplies_fragments


def multiplies_packed(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a device has kernels for products of states of ``dtype`` with packed weights.

    The CPU has them with AVX2 or AVX-512, for float32; a GPU for floats of 16 bits.
    """
    return multiplies_interleaved(device, dtype) or multiplies_fragments(device, dtype)
