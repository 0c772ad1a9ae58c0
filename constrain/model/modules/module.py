"""A part of a model, and the linear layers that it consists of.

A module is built from the layout of its tensors, without weights; :meth:`Module.load` loads them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch

from constrain.kernels import LowRankUpdate, RowNorm, Weight, linear
from constrain.model.forward_context import Adapter, ForwardContext
from constrain.model.layout import LinearLayout
from constrain.model.modules.weight_loading import load_weight
from constrain.model.tensor_reader import TensorSource

# Kernels read rows of 8 elements at a time.
_RANK_MULTIPLE = 8


class Module(ABC):
    """A part of a model that maps states ``[batch, width, hidden]`` to states.

    Attributes:
        key: name in the files.
        device: device of weights and computation, once loaded.
        capturable: whether :meth:`forward` can be captured in a CUDA graph.
    """

    capturable = True

    def __init__(self, key: str) -> None:
        self.key = key
        self.device = torch.device("cpu")

    def load(self, source: TensorSource, device: torch.device, dtype: torch.dtype) -> None:
        """Load the weights to ``device`` as ``dtype``."""
        self.device = device
        self._load(source, dtype)

    @abstractmethod
    def _load(self, source: TensorSource, dtype: torch.dtype) -> None: ...

    @abstractmethod
    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor: ...

    @abstractmethod
    def weights(self) -> Iterator[tuple[list[str], int]]:
        """Tensors in memory: the names of those in the files whose form they may keep, and the numbers of elements."""

    def parameters(self) -> int:
        """Number of weights."""
        return sum(count for _, count in self.weights())

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        """The linear layers inside, by the names of their projections."""
        return iter(())


class Linear(Module):
    """One or more projections of the same input as one matrix product, with their adapters."""

    def __init__(self, layout: LinearLayout) -> None:
        super().__init__(layout.fused or layout.keys[0])
        self.layout = layout
        self.weight: Weight = torch.empty(0)
        self.bias: torch.Tensor | None = None
        self._adapters: dict[Adapter, list[tuple[slice, torch.Tensor, torch.Tensor]]] = {}
        self._merged: dict[tuple[Adapter, ...], LowRankUpdate | None] = {}

    def weights(self) -> Iterator[tuple[list[str], int]]:
        names, rows = [name for name, _ in self.layout.parts()], sum(self.layout.outputs)
        yield [f"{name}.weight" for name in names], rows * self.layout.inputs
        if self.layout.bias:
            yield [f"{name}.bias" for name in names], rows

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        names = [*self.layout.keys, self.layout.fused] if self.layout.fused else self.layout.keys
        yield from ((name, self) for name in names)

    def rows_of(self, key: str) -> slice:
        """Output features of the projection ``key``; all of them for the name of the fused tensor."""
        if key == self.layout.fused:
            return slice(0, sum(self.layout.outputs))
        number = self.layout.keys.index(key)
        start = sum(self.layout.outputs[:number])
        return slice(start, start + self.layout.outputs[number])

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        rows = sum(self.layout.outputs)
        parts = dict(self.layout.parts())
        self.weight = load_weight(source, parts, rows, self.layout.inputs, dtype, self.device)
        if self.layout.bias:
            self.bias = torch.empty(rows, dtype=dtype, device=self.device)
            for key, target in zip(parts, torch.split(self.bias, [*parts.values()]), strict=True):
                source.copy(f"{key}.bias", target)

    def forward(
        self,
        x: torch.Tensor,
        context: ForwardContext,
        residual: torch.Tensor | None = None,
        norm: RowNorm | None = None,
    ) -> torch.Tensor:
        """Compute ``norm(x) @ weight.T + bias + residual``, plus the products of adapters."""
        return linear(x, self.weight, self.bias, residual, norm, self.update(context), context.workspace)

    def attach(self, adapter: Adapter, key: str, down: torch.Tensor, up: torch.Tensor) -> None:
        """Add ``x @ down.T @ up.T`` to the projection ``key`` when ``adapter`` is active.

        Args:
            adapter: the adapter.
            key: name of the projection, or of the fused tensor.
            down: ``[r, k]``, of the dtype and on the device of the weight.
            up: ``[n, r]``, likewise; with its scaling.
        """
        self._adapters.setdefault(adapter, []).append((self.rows_of(key), down, up))

    def detach(self, adapter: Adapter) -> None:
        """Remove an adapter; no effect if it is not attached."""
        self._adapters.pop(adapter, None)
        self._merged = {active: merged for active, merged in self._merged.items() if adapter not in active}

    def update(self, context: ForwardContext) -> LowRankUpdate | None:
        """Return the sum of the active adapters of this layer; ``None`` if there are none."""
        if not self._adapters or not context.loras:
            return None
        active = tuple(context.loras)
        if active not in self._merged:
            self._merged[active] = self._merge([each for lora in active for each in self._adapters.get(lora, ())])
        return self._merged[active]

    def _merge(self, parts: list[tuple[slice, torch.Tensor, torch.Tensor]]) -> LowRankUpdate | None:
        if not parts:
            return None
        rank = sum(down.shape[0] for _, down, _ in parts)
        padded = -(-rank // _RANK_MULTIPLE) * _RANK_MULTIPLE
        _, down, up = parts[0]
        merged = LowRankUpdate(
            down.new_zeros(padded, self.layout.inputs), up.new_zeros(sum(self.layout.outputs), padded)
        )
        start = 0
        for rows, down, up in parts:
            merged.down[start : start + down.shape[0]] = down
            merged.up[rows, start : start + down.shape[0]] = up
            start += down.shape[0]
        if self.device.type == "cuda":
            # Products may read weights before the work that was queued just before them has ended.
            torch.cuda.current_stream(self.device).synchronize()
        return merged


def find_linear(modules: Sequence[Module]) -> dict[str, Linear]:
    """Return the linear layers of a model by the names of their projections."""
    return {key: found for module in modules for key, found in module.submodules()}
