"""The projector of Pixtral and Mistral 3: patches, or squares of patches, as embeddings of a text model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
import torch.nn.functional as F

from constrain.model.forward_context import ForwardContext
from constrain.model.layout import LinearLayout, Shape
from constrain.model.modules import Linear, Module, RMSNorm
from constrain.model.tensor_reader import TensorSource


class ProjectorConfig(Protocol):
    """Settings of the projector."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def merge_size(self) -> int: ...
    @property
    def merging(self) -> bool: ...
    @property
    def projector_bias(self) -> bool: ...
    @property
    def projector_eps(self) -> float: ...


class Merger(Module):
    """Norm, and merging of the patches of a square."""

    def __init__(self, key: str, config: ProjectorConfig) -> None:
        super().__init__(key)
        hidden, self.side = config.hidden_size, config.merge_size
        self.norm = RMSNorm(f"{key}.norm", (hidden,), config.projector_eps)
        self.merge = Linear(LinearLayout((f"{key}.patch_merger.merging_layer",), (hidden,), hidden * self.side**2))

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield from self.norm.weights()
        yield from self.merge.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        return self.merge.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.norm.load(source, self.device, dtype)
        self.merge.load(source, self.device, dtype)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute states ``[rows, columns, hidden]`` of squares from those of patches."""
        rows, columns, hidden = x.shape
        squares = self.norm.forward(x, context).view(
            rows // self.side, self.side, columns // self.side, self.side, hidden
        )
        return self.merge.forward(squares.permute(0, 2, 4, 1, 3).flatten(2), context)


class Projector(Module):
    """Merging of the patches of a square, if there is any, and two projections."""

    def __init__(self, key: str, config: ProjectorConfig, text_size: int) -> None:
        """Build from the name in the files, the config of the tower, and the hidden size of the text model."""
        super().__init__(key)
        bias = config.projector_bias
        self.merger = Merger(key, config) if config.merging else None
        self.first = Linear(LinearLayout((f"{key}.linear_1",), (text_size,), config.hidden_size, bias))
        self.second = Linear(LinearLayout((f"{key}.linear_2",), (text_size,), text_size, bias))

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """Names and shapes of the tensors."""
        if self.merger:
            yield f"{self.merger.norm.key}.weight", self.merger.norm.shape
        for _, linear in self.submodules():
            yield from linear.layout.tensors()

    def weights(self) -> Iterator[tuple[list[str], int]]:
        for part in self._parts():
            yield from part.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        for part in self._parts():
            yield from part.submodules()

    def _parts(self) -> Iterator[Module]:
        yield from (self.merger,) if self.merger else ()
        yield from (self.first, self.second)

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        for part in self._parts():
            part.load(source, self.device, dtype)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute embeddings ``[rows, columns, text_size]`` from states ``[rows, columns, hidden]`` of patches."""
        x = x if self.merger is None else self.merger.forward(x, context)
        return self.second.forward(F.gelu(self.first.forward(x, context)), context)
