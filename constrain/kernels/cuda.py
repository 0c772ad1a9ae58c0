"""The compiled CUDA kernels, and the form in which tensors are passed to them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch


def _import_module() -> Any:
    """Return the compiled kernels, or ``None`` where the package was built without a CUDA compiler."""
    try:
        return import_module("constrain._cuda")
    except ModuleNotFoundError:
        return None


module = _import_module()

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
"""Names by which the kernels know dtypes."""

_PACK = 16


def takes(*tensors: torch.Tensor | None) -> bool:
    """Return whether kernels for 16-bit floats can read the rows of these tensors, 16 bytes at a time.

    All must have the same dtype, contiguous rows of a multiple of 8 elements, and aligned rows.
    """
    given = [tensor for tensor in tensors if tensor is not None]
    return module is not None and all(_fits(tensor) and tensor.dtype is given[0].dtype for tensor in given)


def _fits(tensor: torch.Tensor) -> bool:
    return (
        tensor.is_cuda
        and tensor.dtype in (torch.float16, torch.bfloat16)
        and tensor.stride(-1) == 1
        and tensor.shape[-1] % 8 == 0
        and all(stride % 8 == 0 for stride in tensor.stride()[:-1])
        and tensor.data_ptr() % _PACK == 0
    )


def address(tensor: torch.Tensor | None) -> int:
    """Return the address of the first element; 0 for no tensor."""
    return 0 if tensor is None else tensor.data_ptr()


def stream(tensor: torch.Tensor) -> int:
    """Return the handle of the current stream of a tensor's device."""
    return torch.cuda.current_stream(tensor.device).cuda_stream


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Reshape ``[..., n]`` to ``[rows, n]``, with a copy where the strides need one."""
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])
