"""The tensors of a model that is converted: those to quantise, and those that stay as they are."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from constrain.errors import ArgumentError
from constrain.model import ExLlamaV2Config
from constrain.model.layout import LinearLayout
from constrain.model.tensor_files import TensorFiles
from constrain.quantization.output_folder import digest, sampled_digest

#: Most bytes of a file of tensors that stay as they are.
_SHARD_BYTES = 2 << 30
_GROUP_SIZES = (128, 64, 32)


class SourceTensors:
    """The tensors of a model, plain: those that its files hold quantised are dequantised, to the model's dtype.

    Attributes:
        dtype: dtype of the embedding, or of its scales if it is quantised.
    """

    def __init__(self, config: ExLlamaV2Config) -> None:
        assert config.files is not None
        self._files: TensorFiles = config.files
        self.dtype = self._files.dtype(f"{config.layout.embedding}.weight")
        self._shapes = dict(config.layout.tensors())
        self._names = sorted({*self._plain(), *self._files.quantized})

    def read(self, key: str) -> torch.Tensor:
        """Read a tensor."""
        if key not in self._files.quantized:
            return self._files.stored(key)
        tensor = torch.empty(self.shape(key), dtype=self.dtype)
        self._files.copy(key, tensor)
        return tensor

    def shape(self, key: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        if key not in self._files.quantized:
            return self._files.tensors[key].shape
        return self._shapes.get(key) or self._files.quantized[key].shape

    def others(self, quantized: Mapping[str, object]) -> Iterator[list[str]]:
        """Yield the names of the tensors but some, by the files that they make up."""
        shard: list[str] = []
        size = 0
        for key in (key for key in self._names if key not in quantized):
            if shard and size + self._bytes(key) > _SHARD_BYTES:
                yield shard
                shard, size = [], 0
            shard.append(key)
            size += self._bytes(key)
        if shard:
            yield shard

    def matrices(self, quantized: Mapping[str, object]) -> Iterator[str]:
        """Yield the names of the layers but some whose weights are matrices."""
        for key in self._names:
            if key.endswith(".weight") and key not in quantized and len(self.shape(key)) == 2:
                yield key.removesuffix(".weight")

    def total_bytes(self) -> int:
        """Return the size of all tensors as they are stored."""
        return sum(self._stored_bytes(key) for key in self._files.tensors)

    def digests(self) -> dict[str, str]:
        """Return digests of the files, by name."""
        return {file.name: sampled_digest(file) for file in self._files.files}

    def _plain(self) -> Iterator[str]:
        """Yield the names of the tensors that are no part of a quantised weight, such as biases."""
        parts = (weight.parts.values() for weight in self._files.quantized.values())
        # By identity: other tensors may be described alike.
        owned = {id(part) for each in parts for part in each}
        for key, stored in self._files.tensors.items():
            if id(stored) not in owned or key.endswith(".bias"):
                yield key

    def _bytes(self, key: str) -> int:
        if key in self._files.quantized:
            return math.prod(self.shape(key)) * self.dtype.itemsize
        return self._stored_bytes(key)

    def _stored_bytes(self, key: str) -> int:
        stored = self._files.tensors[key]
        bits = re.search(r"\d+", stored.dtype)
        return math.prod(stored.shape) * (int(bits[0]) if bits else 8) // 8


def fingerprint(config: ExLlamaV2Config, tensors: SourceTensors) -> dict[str, str]:
    """Return digests that tell whether a model is the same as before."""
    return {"config.json": digest(Path(config.model_config)), **tensors.digests()}


def choose_group_size(layouts: list[LinearLayout], wanted: int | None) -> int | None:
    """Return the number of inputs of a group: as wanted, else 128 or less, such that it divides those of all layers.

    ``None`` for a scale for each row, where that is wanted as 0, or no group divides them.

    Raises:
        ArgumentError: the wanted one does not divide the inputs of a layer.
    """
    fitting = [size for size in _GROUP_SIZES if all(layout.inputs % size == 0 for layout in layouts)]
    if wanted is None:
        return fitting[0] if fitting else None
    for layout in layouts:
        if wanted and layout.inputs % wanted:
            others = " or ".join(map(str, fitting)) or "0, for a scale for each row"
            raise ArgumentError(
                f"group_size {wanted} does not divide the {layout.inputs} inputs of {layout.keys[0]}; take {others}"
            )
    return wanted or None
