"""Towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
import torch.nn.functional as F

from constrain.errors import ArgumentError
from constrain.model.config_reader import ConfigReader
from constrain.model.forward_context import ForwardContext
from constrain.model.layout import LinearLayout
from constrain.model.modules import Linear, Module
from constrain.model.tensor_files import TensorFiles
from constrain.model.tensor_reader import TensorSource
from constrain.model.traits import VisionTraits
from constrain.model.vision.config import (
    MAX_AREA,
    MAX_LAYERS,
    MAX_WIDTH,
    ImageSettings,
    VisionConfig,
    image_reader,
    read_activation,
    read_images,
    read_shape,
    read_theta,
)
from constrain.model.vision.encoder import Encoder, Features, ImageWords
from constrain.model.vision.images import patches_of
from constrain.model.vision.layers import (
    BlockNames,
    ImageAttention,
    PatchEmbedding,
    PositionTable,
    image_attention,
    make_norm,
    tower_layers,
)
from constrain.tokenizer.files import read_json_object

_NORM_EPS = 1e-6
_PREFIXES = ("visual.", "model.visual.")
#: Largest ratio of the sides of an image.
_MAX_OBLONG = 200
_SHAPE = {"intermediate_size": 3420, "num_hidden_layers": 32, "num_attention_heads": 16, "patch_size": 14}
_KEYS = {"num_hidden_layers": "depth", "num_attention_heads": "num_heads"}


@dataclass(frozen=True)
class MergerNames:
    """Names of a norm and of two projections."""

    norm: str
    first: str
    second: str


@dataclass(frozen=True)
class QwenTraits:
    """How a generation of towers differs from others.

    Attributes:
        block: names of the tensors of a layer.
        merger: names of the tensors of the merger.
        activation: the default one of MLPs.
        patch_bias: patches become states with a bias.
    """

    block: BlockNames
    merger: MergerNames
    activation: str
    patch_bias: bool = False


def _block(gate_up: tuple[str, ...], down: str, rms: bool) -> BlockNames:
    return BlockNames("attn", "mlp", "norm1", "norm2", "proj", gate_up, down, "qkv", bias=True, rms=rms, rotary=True)


_NAMES = MergerNames("ln_q", "mlp.0", "mlp.2")
TRAITS = {
    "qwen2_vl": QwenTraits(_block(("fc1",), "fc2", rms=False), _NAMES, "quick_gelu"),
    "qwen2_5_vl": QwenTraits(_block(("gate_proj", "up_proj"), "down_proj", rms=True), _NAMES, "silu"),
    "qwen3_vl": QwenTraits(
        _block(("linear_fc1",), "linear_fc2", rms=False),
        MergerNames("norm", "linear_fc1", "linear_fc2"),
        "gelu_pytorch_tanh",
        patch_bias=True,
    ),
}


@dataclass(frozen=True)
class QwenConfig(VisionConfig):
    """A vision tower of Qwen.

    Attributes:
        kind: a key of :data:`TRAITS`.
        frames: images that a patch of a video has.
        least_pixels, most_pixels: width times height that images are resized to.
        window: width and height of the windows of attention in squares; 0: all patches attend to all.
        whole: layers without windows.
        places: rows of the table of position embeddings; 0: there is none.
        added: layers whose states are added to those of the text model.
    """

    kind: str
    frames: int
    least_pixels: int
    most_pixels: int
    window: int = 0
    whole: frozenset[int] = frozenset()
    places: int = 0
    added: tuple[int, ...] = ()

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """Return the size of an image, to whole cells, so that its pixels are within the limits."""
        if max(height, width) > _MAX_OBLONG * min(height, width):
            raise ArgumentError(f"an image of {width} by {height} pixels is too oblong; {_MAX_OBLONG} to 1 is most")
        cell = self.cell
        rows, columns = round(height / cell), round(width / cell)
        if rows * columns * cell**2 > self.most_pixels:
            ratio = math.sqrt(height * width / self.most_pixels)
            rows, columns = (max(1, math.floor(side / ratio / cell)) for side in (height, width))
        elif rows * columns * cell**2 < self.least_pixels:
            ratio = math.sqrt(self.least_pixels / (height * width))
            rows, columns = (math.ceil(side * ratio / cell) for side in (height, width))
        return rows * cell, columns * cell


def read_qwen(path: Path, traits: VisionTraits) -> QwenConfig:
    """Read a ``config.json``, and the ``preprocessor_config.json`` beside it if there is one.

    Raises:
        ConfigError: a value is missing, of the wrong type, out of bounds or not supported.
    """
    vision = ConfigReader(path, [read_json_object(path), traits.defaults]).section("vision_config")
    own, images = TRAITS[traits.kind], image_reader(path)
    merge = vision.integer("spatial_merge_size", 2, high=16)
    shape = _read_shape(vision, traits.kind)
    size = images.section("size")
    areas = ((size.integer(f"{edge}_edge", None, high=MAX_AREA), key) for edge, key in _AREAS)
    least, most = (images.integer(key, given or _LIMITS[key], high=MAX_AREA) for given, key in areas)
    has_windows = traits.kind == "qwen2_5_vl"
    window = vision.integer("window_size", 112, high=MAX_WIDTH) // shape["patch_size"] // merge if has_windows else 0
    if has_windows and not window:
        raise vision.error("window_size", "a window has not one square of patches")
    is_newest = traits.kind == "qwen3_vl"
    return QwenConfig(
        **shape,
        merge_size=merge,
        activation=read_activation(vision, own.activation),
        theta=read_theta(vision),
        norm_eps=_NORM_EPS,
        images=read_images(images, ImageSettings()),
        kind=traits.kind,
        frames=vision.integer("temporal_patch_size", 2, high=16),
        least_pixels=least,
        most_pixels=most,
        window=window,
        whole=frozenset(_layers(vision, "fullatt_block_indexes", (7, 15, 23, 31))) if has_windows else frozenset(),
        places=vision.integer("num_position_embeddings", 2304, high=MAX_WIDTH) if is_newest else 0,
        added=_layers(vision, "deepstack_visual_indexes", (8, 16, 24)) if is_newest else (),
    )


_AREAS = (("shortest", "min_pixels"), ("longest", "max_pixels"))
_LIMITS = {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280}


def _read_shape(vision: ConfigReader, kind: str) -> dict[str, int]:
    """Read the sizes of the tower; Qwen2-VL has other names, and its MLPs a ratio."""
    if kind != "qwen2_vl":
        return read_shape(vision, _KEYS, {**_SHAPE, "hidden_size": 1280})
    keys = {**_KEYS, "hidden_size": "embed_dim"}
    hidden = vision.integer("embed_dim", 1280, high=MAX_WIDTH)
    inner = hidden * vision.integer("mlp_ratio", 4, high=64)
    return read_shape(vision, keys, {**_SHAPE, "hidden_size": 1280, "intermediate_size": inner})


def _layers(vision: ConfigReader, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """Read the numbers of layers."""
    found = vision.integers(key) if vision.has(key) else default
    depth = vision.integer("depth", _SHAPE["num_hidden_layers"], high=MAX_LAYERS)
    if any(not 0 <= each < depth for each in found):
        raise vision.error(key, f"{list(found)} are no layers of {depth}")
    return tuple(found)


class SquareMerger(Module):
    """Norm, and two projections of the patches of a square to one embedding."""

    def __init__(self, key: str, names: MergerNames, config: QwenConfig, size: int, rms: bool, joined: bool) -> None:
        """Build from the name in the files.

        Args:
            key: that name.
            names: names of the parts.
            config: of the tower.
            size: hidden size of the text model.
            rms: the norm is an RMS norm.
            joined: it is of all patches of a square together.
        """
        super().__init__(key)
        self.inputs = config.hidden_size * config.merge_size**2
        self.joined = joined
        width = self.inputs if joined else config.hidden_size
        self.norm = make_norm(f"{key}.{names.norm}", width, config.norm_eps, rms)
        self.first = Linear(LinearLayout((f"{key}.{names.first}",), (self.inputs,), self.inputs, True))
        self.second = Linear(LinearLayout((f"{key}.{names.second}",), (size,), self.inputs, True))

    def weights(self) -> Iterator[tuple[list[str], int]]:
        for part in (self.norm, self.first, self.second):
            yield from part.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        yield from self.first.submodules()
        yield from self.second.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        for part in (self.norm, self.first, self.second):
            part.load(source, self.device, dtype)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute embeddings ``[squares, size]`` from states ``[1, patches, hidden]``."""
        x = x.view(-1, self.inputs) if self.joined else x
        squares = self.norm.forward(x, context).view(-1, self.inputs)
        return self.second.forward(F.gelu(self.first.forward(squares, context)), context)


class QwenEncoder(Encoder):
    """A tower of Qwen with its merger."""

    words = ImageWords(
        "<|image_pad|>", "<|image_pad|>", "<|image_pad|>", before="<|vision_start|>", after="<|vision_end|>"
    )

    def __init__(self, config: QwenConfig, files: TensorFiles, text_size: int) -> None:
        """Build from a config, the files of the model, and the hidden size of its text model."""
        self.config: QwenConfig
        at = next((each for each in _PREFIXES if f"{each}patch_embed.proj.weight" in files), _PREFIXES[0])
        traits, rms = TRAITS[config.kind], TRAITS[config.kind].block.rms
        self._patches = PatchEmbedding(f"{at}patch_embed.proj", config, config.frames, traits.patch_bias)
        self._table = PositionTable(f"{at}pos_embed", config.places, config.hidden_size) if config.places else None
        self._layers = tower_layers(config, traits.block, f"{at}blocks")
        self._merger = SquareMerger(f"{at}merger", traits.merger, config, text_size, rms, joined=False)
        self._added = {
            layer: SquareMerger(
                f"{at}deepstack_merger_list.{number}", traits.merger, config, text_size, rms, joined=True
            )
            for number, layer in enumerate(config.added)
        }
        table = [self._table] if self._table else []
        blocks = chain.from_iterable(self._layers)
        super().__init__(config, [self._patches, *table, *blocks, self._merger, *self._added.values()])

    def features(self, pixels: torch.Tensor) -> Features:
        config = self.config
        rows, columns = self.size(pixels)
        order, windows = windows_of(rows, columns, config.window)
        context = ForwardContext(self._attention(rows, columns, order, windows).to(self.device))
        x = patches_of(pixels, config.patch_size, config.merge_size).to(self.device, self.dtype)
        x = self._patches.forward(x, context)
        if self._table:
            table = self._table.resized(rows * config.merge_size, columns * config.merge_size)
            x = x + by_squares(table, config.merge_size)
        x = ordered(x[0], order.to(self.device)).unsqueeze(0)
        added = []
        for number, layer in enumerate(self._layers):
            for part in layer:
                x = part.forward(x, context)
            if number in self._added:
                added.append(self._added[number].forward(x, context))
        back = order.argsort().to(self.device)
        grids = [each[back].view(rows, columns, -1) for each in (self._merger.forward(x, context), *added)]
        return Features(grids[0], torch.stack(grids[1:]) if added else None)

    def _attention(
        self, rows: int, columns: int, order: torch.Tensor, windows: tuple[tuple[int, int], ...]
    ) -> ImageAttention:
        """Build the metadata of an image of ``rows`` times ``columns`` squares.

        Half of the frequencies turn with the row of a patch, and the others, the same ones, with its column.
        """
        config, merge = self.config, self.config.merge_size
        dim = config.head_dim // 2
        frequencies = config.theta ** (-torch.arange(0, dim, 2, dtype=torch.float) / dim)
        shape = rows * merge, columns * merge
        place = torch.stack(torch.meshgrid(*(torch.arange(side) for side in shape), indexing="ij"), -1)
        angles = (by_squares(place, merge).unsqueeze(-1) * frequencies).flatten(1)
        sizes = tuple((count, squares * merge**2) for count, squares in windows)
        whole = config.whole if config.window else None
        return image_attention(ordered(angles, order), self.dtype, windows=sizes, whole=whole)


def windows_of(rows: int, columns: int, window: int) -> tuple[torch.Tensor, tuple[tuple[int, int], ...]]:
    """Order squares by windows, the largest first.

    Args:
        rows, columns: of squares.
        window: rows and columns of squares of a window; 0: there are none.

    Returns:
        The squares in that order, int64 ``[rows * columns]``, and numbers of windows and of squares of each, for
        windows of one size after another.
    """
    squares = torch.arange(rows * columns)
    if not window:
        return squares, ()
    across = -(-columns // window)
    number = squares // columns // window * across + squares % columns // window
    sizes = torch.bincount(number)
    order = torch.argsort(number - sizes[number] * len(sizes), stable=True)
    found, counts = torch.unique(sizes, return_counts=True)
    return order, tuple((int(count), int(size)) for size, count in zip(found.flip(0), counts.flip(0), strict=True))


def by_squares(grid: torch.Tensor, merge: int) -> torch.Tensor:
    """Return values of patches, ``[rows, columns, n]``, square by square, ``[rows * columns, n]``."""
    rows, columns, size = grid.shape
    divided = grid.reshape(rows // merge, merge, columns // merge, merge, size)
    return divided.transpose(1, 2).reshape(-1, size)


def ordered(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Return values of patches, ``[patches, n]``, with their squares in another order."""
    return x.view(len(order), -1, x.shape[-1])[order].flatten(0, 1)
