"""Base classes of all vision towers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch

from constrain.model.forward_context import ForwardContext
from constrain.model.layout import Shape
from constrain.model.modules import LayerNorm, Module, RMSNorm
from constrain.model.vision.config import VisionConfig
from constrain.model.vision.images import patches_of, pixels_of
from constrain.model.vision.layers import BlockNames, ImageAttention, tower_layers


@dataclass(frozen=True)
class ImageWords:
    """The tokens around images.

    Attributes:
        placeholder: the token in whose place embeddings stand.
        written: what chat templates write for an image.
        expanded: what the model reads in place of that, with the placeholder once.
        before, after: tokens before and after an image, which the embeddings of exllamav2's API have within.
        row_end, image_end: tokens after each row but the last, and after that, if there are any.
    """

    placeholder: str
    written: str
    expanded: str
    before: str | None = None
    after: str | None = None
    row_end: str | None = None
    image_end: str | None = None


@dataclass(frozen=True)
class Features:
    """The embeddings of an image.

    Attributes:
        grid: ``[rows, columns, hidden size of the text model]``.
        added: ``[layers, rows, columns, hidden size of the text model]``; the text model adds ``added[i]`` to the
            states of the image after its layer ``i``; ``None``: nothing is added.
    """

    grid: torch.Tensor
    added: torch.Tensor | None = None


class Encoder(ABC):
    """A tower with its projector to the embeddings of the text model.

    Attributes:
        config: its config.
        words: the tokens around images.
        modules: its parts, in the order of computation.
        device, dtype: of weights and computation, once loaded.
    """

    words: ImageWords

    def __init__(self, config: VisionConfig, modules: list[Module]) -> None:
        self.config, self.modules = config, modules
        self.device, self.dtype = torch.device("cpu"), torch.float32

    def pixels(self, image: Any) -> torch.Tensor:
        """Return the input for an image, see :func:`constrain.model.vision.images.pixels_of`."""
        return pixels_of(image, self.config)

    def size(self, pixels: torch.Tensor) -> tuple[int, int]:
        """Return the numbers of rows and columns of embeddings."""
        rows, columns = (side // self.config.cell for side in pixels.shape[1:])
        return rows, columns

    @abstractmethod
    def features(self, pixels: torch.Tensor) -> Features:
        """Compute the embeddings of what :meth:`pixels` returns."""

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """All tensors that the files must have."""
        for module in self.modules:
            yield from tensors_of(module)


class SequentialEncoder(Encoder):
    """A tower whose modules run one after the other, from patches in rows, and a projector that takes their grid."""

    def __init__(
        self, config: VisionConfig, before: list[Module], names: BlockNames, at: str, after: list[Module]
    ) -> None:
        """Build the layers between other modules.

        Args:
            config: of the tower.
            before: modules before the layers.
            names, at: names in the layers, and what the names of all layers begin with.
            after: modules after the layers, the last of which is the projector.
        """
        super().__init__(config, [*before, *chain.from_iterable(tower_layers(config, names, at)), *after])

    def features(self, pixels: torch.Tensor) -> Features:
        size = self.config.patch_size
        rows, columns = (side // size for side in pixels.shape[1:])
        context = ForwardContext(self.attention(rows, columns).to(self.device))
        x = patches_of(pixels, size, merge=1).to(self.device, self.dtype)
        *parts, projector = self.modules
        for part in parts:
            x = part.forward(x, context)
        return Features(projector.forward(x.view(rows, columns, -1), context))

    @abstractmethod
    def attention(self, rows: int, columns: int) -> ImageAttention:
        """Build the metadata of an image of ``rows`` times ``columns`` patches, on the CPU."""


def tensors_of(module: Any) -> Iterator[tuple[str, Shape]]:
    """Names and shapes of the tensors of a module of a tower."""
    if hasattr(module, "tensors"):
        yield from module.tensors()
        return
    for norm in (getattr(module, "norm", None), module):
        if isinstance(norm, RMSNorm):
            yield from _norm_tensors(norm)
    for linear in {id(each): each for _, each in module.submodules()}.values():
        yield from linear.layout.tensors()


def _norm_tensors(norm: RMSNorm) -> Iterator[tuple[str, Shape]]:
    yield f"{norm.key}.weight", norm.shape
    if isinstance(norm, LayerNorm) and norm.biased:
        yield f"{norm.key}.bias", norm.shape
