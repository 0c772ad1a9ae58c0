"""What towers of every kind have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from constrain.model.layout import Shape
from constrain.model.modules import LayerNorm, Module, RMSNorm
from constrain.model.vision.config import VisionConfig
from constrain.model.vision.images import pixels_of


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
        added: ``[layers, rows, columns, hidden]``: what is added to the states of the image after each of the first
            layers of the text model; ``None``: nothing.
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
