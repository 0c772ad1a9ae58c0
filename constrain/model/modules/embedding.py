"""Token embeddings."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from constrain.errors import GenerationError
from constrain.kernels import Weight
from constrain.model.embeddings import EMBEDDING_INDEX, IndexedEmbeddings
from constrain.model.forward_context import ForwardContext
from constrain.model.modules.module import Module
from constrain.model.modules.weight_loading import load_weight
from constrain.model.tensor_reader import TensorSource


class Embedding(Module):
    """Embedding of token ids, with ``padded_size`` rows, so that a tied head can share its weight."""

    def __init__(self, key: str, size: int, padded_size: int, hidden_size: int, scale: float) -> None:
        super().__init__(key)
        self.size, self.padded_size, self.hidden_size, self.scale = size, padded_size, hidden_size, scale
        self.weight: Weight = torch.empty(0)
        self.dtype = torch.float32

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield [f"{self.key}.weight"], self.padded_size * self.hidden_size

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.weight = load_weight(source, {self.key: self.size}, self.padded_size, self.hidden_size, dtype, self.device)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute states ``[batch, width, hidden]`` from ids ``[batch, width]``.

        Ids on the CPU are checked: negative ones are padding and read as id 0, and indexed embeddings are looked up.
        Ids on a GPU are trusted to be tokens, since a check would synchronise with the device.
        """
        if x.device.type == "cpu":
            low, high = (int(bound) for bound in x.aminmax())
            if high >= EMBEDDING_INDEX:
                return self._with_indexed(x, context)
            if high >= self.size:
                raise GenerationError(f"token id {high} is outside the model's vocabulary of {self.size}")
            x = x.clamp(min=0) if low < 0 else x
        x = x.to(self.device)
        replaced = context.embed_tokens
        weight = self.weight if replaced is None else replaced
        if isinstance(weight, torch.Tensor):
            states = torch.nn.functional.embedding(x, weight)
        else:
            states = weight.dequantized(x, self.dtype)
        return states if self.scale == 1.0 else states * self.scale

    def _with_indexed(self, ids: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        tokens = ids < EMBEDDING_INDEX
        states = self.forward(ids.where(tokens, 0), context)
        for block in context.embeddings:
            states[_within(ids, block).to(self.device)] = _rows(ids, block).to(self.device, states.dtype)
            tokens |= _within(ids, block)
        if not tokens.all():
            missing = int(ids[~tokens][0])
            raise GenerationError(f"id {missing} is in none of the {len(context.embeddings)} indexed embeddings given")
        return states


def _within(ids: torch.Tensor, block: IndexedEmbeddings) -> torch.Tensor:
    return (ids >= block.first_index) & (ids < block.first_index + block.length)


def _rows(ids: torch.Tensor, block: IndexedEmbeddings) -> torch.Tensor:
    return block.embeddings[(ids[_within(ids, block)] - block.first_index).to(block.embeddings.device)]
