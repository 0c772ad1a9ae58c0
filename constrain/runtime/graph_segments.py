"""CUDA graphs of a model whose layers are on several devices: one for each segment of layers, replayed in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from constrain.kernels.graphs import Graph

Compute = Callable[[torch.Tensor], torch.Tensor]


class CapturedSegment:
    """A segment of layers on one device: a CUDA graph over a static tensor, to which its input is copied."""

    def __init__(self, device: torch.device, compute: Compute, captures: bool) -> None:
        self._device, self._compute, self._captures = device, compute, captures
        self._input: torch.Tensor | None = None
        self._run: Callable[[], torch.Tensor]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layers on states from any device."""
        if self._input is None:
            self._input = x.to(self._device, copy=True)
            self._run = self._captured(self._input)
        # Layers may overwrite their input, as they do while they are captured.
        self._input.copy_(x)
        return self._run()

    def _captured(self, x: torch.Tensor) -> Callable[[], torch.Tensor]:
        def compute() -> torch.Tensor:
            with torch.inference_mode():
                return self._compute(x)

        return Graph(compute, self._device) if self._captures else compute


def run_segments(
    enter: Callable[[], torch.Tensor], segments: Sequence[CapturedSegment], refresh: Callable[[], None]
) -> torch.Tensor:
    """Run a pass.

    Args:
        enter: returns the ids of the tokens, and writes their lengths, on the device of the head.
        segments: the layers in order.
        refresh: copies lengths and block tables to the other devices.
    """
    with torch.inference_mode():
        x = enter()
        refresh()
        for segment in segments:
            x = segment(x)
        return x
