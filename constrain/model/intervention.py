"""Looking at, and changing, the states between the layers of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from constrain.model.decode import DecodeStep
from constrain.model.modules import Linear, Module
from constrain.model.step import Step
from constrain.model.tensor_reader import TensorSource

Hook = Callable[..., torch.Tensor]


class Intervention(Module):
    """Stands in ``model.modules[i]`` for the module it wraps.

    Args:
        inner: the wrapped module.
        pre_forward, post_forward: called with the states before, and after, the module, and with the
            :class:`~constrain.model.step.Step`; they return the states to go on with.
    """

    decodes = False

    def __init__(self, inner: Module, pre_forward: Hook | None = None, post_forward: Hook | None = None) -> None:
        super().__init__(inner.key)
        self.inner, self.pre_forward, self.post_forward = inner, pre_forward, post_forward
        self.device = inner.device

    def parameters(self) -> int:
        """Number of parameters of the module."""
        return self.inner.parameters()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        """The linear layers of the module."""
        return self.inner.submodules()

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """Run the module between the two hooks."""
        if self.pre_forward is not None:
            x = self.pre_forward(x, step)
        x = self.inner.forward(x, step)
        return x if self.post_forward is None else self.post_forward(x, step)

    def decode(self, x: torch.Tensor, step: DecodeStep) -> torch.Tensor:
        """Run the module without the hooks; a model that has them takes ordinary passes instead."""
        return self.inner.decode(x, step)

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.inner.load(source, self.device, dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
