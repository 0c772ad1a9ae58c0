"""Hooks that read or change the states between the layers of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from constrain.model.forward_context import ForwardContext
from constrain.model.modules import Linear, Module
from constrain.model.tensor_reader import TensorSource

Hook = Callable[..., torch.Tensor]


class Intervention(Module):
    """A wrapper of a module with hooks, to be assigned to ``model.modules[i]``.

    Args:
        inner: the wrapped module.
        pre_forward, post_forward: called before and after the module with the states and the
            :class:`~constrain.model.forward_context.ForwardContext`; they return the states to continue with.
    """

    capturable = False  # a graph would not call the hooks again

    def __init__(self, inner: Module, pre_forward: Hook | None = None, post_forward: Hook | None = None) -> None:
        super().__init__(inner.key)
        self.inner, self.pre_forward, self.post_forward = inner, pre_forward, post_forward
        self.device = inner.device

    def weights(self) -> Iterator[tuple[list[str], int]]:
        """The weights of the module."""
        return self.inner.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        """The linear layers of the module."""
        return self.inner.submodules()

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Run the module between the two hooks."""
        x = _changed(self.pre_forward, x, context)
        return _changed(self.post_forward, self.inner.forward(x, context), context)

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.inner.load(source, self.device, dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _changed(hook: Hook | None, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
    """Apply a hook, which may change states in place."""
    if hook is None:
        return x
    x = hook(x, context)
    context.replicas.clear()
    return x
