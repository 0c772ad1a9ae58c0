"""The compiled products of the CPU."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch


def _import_module() -> Any:
    """Return the compiled products, or ``None`` where the package was built for another kind of processor."""
    try:
        return import_module("constrain._cpu")
    except ModuleNotFoundError:
        return None


_module = _import_module()

BLOCK = 32
"""Rows of a weight whose codes are interleaved."""
HEAD_MULTIPLE = 8
"""Elements of a head that attention reads are a multiple of this."""


def multiplies_interleaved(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether products of states of ``dtype`` with packed weights are computed by a kernel on the CPU.

    The processor must have AVX2 or AVX-512.
    """
    fits = device.type == "cpu" and dtype is torch.float32
    return fits and _module is not None and bool(_module.supported())


def pool() -> Any:
    """Return the threads that divide products, as many as torch has."""
    return _pool(torch.get_num_threads())


@cache
def _pool(threads: int) -> Any:
    return _module.Pool(threads)
