"""The compiled CUDA kernels, and how tensors reach them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch


def _import_module() -> Any:
    """The compiled kernels, or ``None`` where the package was built without a CUDA compiler."""
    try:
        return import_module("constrain._cuda")
    except ModuleNotFoundError:
        return None


module = _import_module()

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
"""Names by which the kernels know dtypes."""

_PACK = 16


def takes(*tensors: torch.Tensor | None) -> bool:
    """Whether kernels of 16-bit floats can read the rows of these tensors, 16 bytes at a time; all have one dtype."""
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
    """Where the first element is; 0 for none."""
    return 0 if tensor is None else tensor.data_ptr()


def stream(tensor: torch.Tensor) -> int:
    """The handle of the current stream of a tensor's device."""
    return torch.cuda.current_stream(tensor.device).cuda_stream


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """``[..., n]`` as ``[rows, n]``, copied where the strides need it."""
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])
