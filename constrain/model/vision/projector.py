"""The projector of Mistral 3: squares of patches as embeddings of a text model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from constrain.model.forward_context import ForwardContext
from constrain.model.layout import LinearLayout, Shape
from constrain.model.modules import Linear, Module, RMSNorm
from constrain.model.tensor_reader import TensorSource
from constrain.model.vision_config import VisionConfig


class Projector(Module):
    """Norm, merging of the patches of a square, and two projections."""

    def __init__(self, key: str, config: VisionConfig, text_size: int) -> None:
        """Build from the name in the files, the config of the tower, and the hidden size of the text model."""
        super().__init__(key)
        hidden, side, bias = config.hidden_size, config.merge_size, config.projector_bias
        self.side = side
        self.norm = RMSNorm(f"{key}.norm", (hidden,), config.projector_eps)
        self.merge = Linear(LinearLayout((f"{key}.patch_merger.merging_layer",), (hidden,), hidden * side**2))
        self.first = Linear(LinearLayout((f"{key}.linear_1",), (text_size,), hidden, bias))
        self.second = Linear(LinearLayout((f"{key}.linear_2",), (text_size,), text_size, bias))

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """Names and shapes of the tensors."""
        yield f"{self.norm.key}.weight", self.norm.shape
        for _, linear in self.submodules():
            yield from linear.layout.tensors()

    def weights(self) -> Iterator[tuple[list[str], int]]:
        for part in (self.norm, self.merge, self.first, self.second):
            yield from part.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        for part in (self.merge, self.first, self.second):
            yield from part.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        for part in (self.norm, self.merge, self.first, self.second):
            part.load(source, self.device, dtype)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute embeddings ``[rows, columns, text_size]`` of squares from ``[rows, columns, hidden]`` of patches."""
        rows, columns, hidden = x.shape
        squares = self.norm.forward(x, context).view(
            rows // self.side, self.side, columns // self.side, self.side, hidden
        )
        merged = self.merge.forward(squares.permute(0, 2, 4, 1, 3).flatten(2), context)
        return self.second.forward(F.gelu(self.first.forward(merged, context)), context)
