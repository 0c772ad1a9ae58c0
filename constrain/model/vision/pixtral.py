"""Towers of Pixtral, as Pixtral and Mistral 3 have them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from constrain.model.config_reader import ConfigReader
from constrain.model.modules import RMSNorm
from constrain.model.tensor_files import TensorFiles
from constrain.model.traits import VisionTraits
from constrain.model.vision.config import (
    MAX_PIXELS,
    ImageSettings,
    VisionConfig,
    image_reader,
    read_activation,
    read_images,
    read_shape,
    read_theta,
)
from constrain.model.vision.encoder import ImageWords, SequentialEncoder
from constrain.model.vision.layers import BlockNames, ImageAttention, PatchEmbedding, image_attention
from constrain.model.vision.projector import Projector
from constrain.tokenizer.files import read_json_object

_NORM_EPS = 1e-5
_PREFIXES = ("", "model.")
_SUPPORTED = {"vision_feature_layer": -1, "vision_feature_select_strategy": "full", "projector_hidden_act": "gelu"}
_DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 16,
}
_BLOCK = BlockNames(
    attention="attention",
    mlp="feed_forward",
    attention_norm="attention_norm",
    mlp_norm="ffn_norm",
    output="o_proj",
    gate_up=("gate_proj", "up_proj"),
    down="down_proj",
    fused=None,
    bias=False,
    rms=True,
    rotary=True,
)


@dataclass(frozen=True)
class PixtralConfig(VisionConfig):
    """A Pixtral vision tower, and its projector to the hidden states of the text model.

    Attributes:
        longest_edge: larger images are made smaller, to this width or height in pixels.
        merging: the projector has a norm and a layer that merges a square of patches.
        projector_bias: whether the projector has biases.
        projector_eps: what the norm of the projector adds to the mean square.
    """

    longest_edge: int
    merging: bool
    projector_bias: bool
    projector_eps: float

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """Return the size of an image as it is, or smaller, rounded up to whole cells."""
        ratio = max(height / self.longest_edge, width / self.longest_edge, 1.0)
        cells = ((max(1, int(side / ratio)) - 1) // self.cell + 1 for side in (height, width))
        rows, columns = cells
        return rows * self.cell, columns * self.cell


def read_pixtral(path: Path, traits: VisionTraits) -> PixtralConfig:
    """Read a ``config.json``, and the ``preprocessor_config.json`` beside it if there is one.

    Raises:
        ConfigError: a value is missing, of the wrong type, out of bounds or not supported.
    """
    reader = ConfigReader(path, [read_json_object(path), traits.defaults])
    vision, images = reader.section("vision_config"), image_reader(path)
    for key, value in _SUPPORTED.items():
        if reader.raw(key, value) != value:
            raise reader.error(key, f"{reader.raw(key)!r} is not supported; supported is {value!r}")
    largest = vision.integer("image_size", 1024, high=MAX_PIXELS)
    return PixtralConfig(
        **read_shape(vision, {}, _DEFAULTS),
        merge_size=reader.integer("spatial_merge_size", 2, high=16) if traits.merging else 1,
        activation=read_activation(vision, "gelu", ("gelu", "silu")),
        theta=read_theta(vision),
        norm_eps=_NORM_EPS,
        images=read_images(images, ImageSettings()),
        longest_edge=images.section("size").integer("longest_edge", largest, high=MAX_PIXELS),
        merging=traits.merging,
        projector_bias=reader.boolean("multimodal_projector_bias", False),
        projector_eps=reader.section("text_config").number("rms_norm_eps", 1e-5, high=1.0),
    )


class PixtralEncoder(SequentialEncoder):
    """A tower of Pixtral with its projector."""

    words = ImageWords("[IMG]", "[IMG]", "[IMG]", row_end="[IMG_BREAK]", image_end="[IMG_END]")

    def __init__(self, config: PixtralConfig, files: TensorFiles, text_size: int) -> None:
        """Build from a config, the files of the model, and the hidden size of its text model."""
        self.config: PixtralConfig
        prefix = next((each for each in _PREFIXES if f"{each}vision_tower.patch_conv.weight" in files), "")
        at = f"{prefix}vision_tower."
        patches = PatchEmbedding(f"{at}patch_conv", config)
        norm = RMSNorm(f"{at}ln_pre", (config.hidden_size,), config.norm_eps)
        projector = Projector(f"{prefix}multi_modal_projector", config, text_size)
        super().__init__(config, [patches, norm], _BLOCK, f"{at}transformer.layers", [projector])

    def attention(self, rows: int, columns: int) -> ImageAttention:
        """Build the metadata of an image of ``rows`` times ``columns`` patches, on the CPU.

        Of the frequencies of a head, every other one turns with the row of a patch, and the others with its column.
        """
        dim = self.config.head_dim
        frequencies = self.config.theta ** (-torch.arange(0, dim, 2, dtype=torch.float) / dim)
        by_row = torch.outer(torch.arange(rows, dtype=torch.float), frequencies[::2])
        by_column = torch.outer(torch.arange(columns, dtype=torch.float), frequencies[1::2])
        shape = rows, columns, -1
        angles = torch.cat((by_row.unsqueeze(1).expand(shape), by_column.unsqueeze(0).expand(shape)), -1)
        return image_attention(angles.flatten(0, 1), self.dtype)
