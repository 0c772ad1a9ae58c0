"""Sums of small tensors over the GPUs of a host, by kernels that write to each other's memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import torch

from constrain.kernels import cuda

_PACK = 16


class PeerSum:
    """Sums over different GPUs that can access each other's memory.

    One kernel on every GPU sends its part to all others and adds up what it receives, so that no GPU waits for a copy.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        """Allocate memory for what arrives on each device; see :func:`can_access_peers`."""
        self._devices = tuple(devices)
        self._module: Any = cuda.module.PeerSum([device.index for device in devices])

    def takes(self, part: torch.Tensor) -> bool:
        """Return whether parts like this one can be summed: small ones, for which the time is in waiting."""
        return part.dtype in cuda.DTYPES and part.nbytes % _PACK == 0 and part.nbytes <= self._module.MAX_BYTES

    def __call__(self, parts: Sequence[torch.Tensor], residuals: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
        """Compute the sum of all parts, plus the residual of each device; may overwrite the parts.

        The values are added in the order of the devices, in float32, and rounded once.

        Args:
            parts: one on each device.
            residuals: the same tensor on every device, or ``None``.
        """
        # No memory is allocated between the launches, which might wait for a GPU that waits for the next launch.
        parts = [_packed(part) for part in parts]
        residuals = [None if each is None else _packed(each) for each in residuals]
        self._module.add(
            parts=[cuda.address(part) for part in parts],
            residuals=[cuda.address(each) for each in residuals],
            streams=[cuda.stream(part) for part in parts],
            bytes=parts[0].nbytes,
            dtype=cuda.DTYPES[parts[0].dtype],
        )
        return parts


def can_access_peers(devices: Sequence[torch.device]) -> bool:
    """Return whether :class:`PeerSum` can sum over these devices.

    They must be different GPUs: kernels that wait for each other on one GPU might not run at the same time.
    """
    numbered = all(device.type == "cuda" and device.index is not None for device in devices)
    if cuda.module is None or len(devices) < 2 or not numbered:
        return False
    different = len(set(devices)) == len(devices) <= cuda.module.PeerSum.MAX_RANKS
    return different and all(torch.cuda.can_device_access_peer(*pair) for pair in permutations(devices, 2))


def peer_sum_reference(parts: Sequence[torch.Tensor], residuals: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    """:class:`PeerSum` in plain torch."""
    return [_summed_on(part.device, parts, own) for part, own in zip(parts, residuals, strict=True)]


def _summed_on(device: torch.device, parts: Sequence[torch.Tensor], residual: torch.Tensor | None) -> torch.Tensor:
    terms = [*parts] if residual is None else [*parts, residual]
    total = torch.zeros_like(parts[0], dtype=torch.float, device=device)
    for term in terms:
        total += term.to(device)
    return total.to(parts[0].dtype)


def _packed(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy that kernels can read: contiguous and aligned."""
    fits = tensor.is_contiguous() and tensor.data_ptr() % _PACK == 0
    return tensor if fits else tensor.clone(memory_format=torch.contiguous_format)
