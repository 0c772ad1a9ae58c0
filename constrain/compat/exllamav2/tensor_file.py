"""Access to single tensors of a safetensors file, with the interface of exllamav2's loader."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from constrain.errors import WeightsError
from constrain.model.tensor_files import TensorFiles


class STFile:
    """A safetensors file.

    Args:
        filename: its path.

    Raises:
        WeightsError: it cannot be read.
    """

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.filename = os.fspath(filename)
        self._files = TensorFiles([Path(filename)])

    @staticmethod
    def open(filename: str | os.PathLike[str]) -> STFile:
        """Open the file ``filename``."""
        return STFile(filename)

    def get_dict(self) -> dict[str, str]:
        """Map the names of all tensors to the file."""
        return dict.fromkeys(self._files.tensors, self.filename)

    def get_tensor(
        self, key: str, device: torch.device | str | int = "cpu", out_dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Read a tensor to a device, and optionally convert its dtype.

        Raises:
            WeightsError: there is no tensor of this name.
        """
        if key not in self._files.tensors:
            raise WeightsError(f"{self.filename}: no tensor {key}")
        return self._files.stored(key).to(device, out_dtype)


def cleanup_stfiles() -> None:
    """Do nothing: no file is kept open."""
