"""Towers of Gemma 3: SigLIP, and a projector that pools patches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from constrain.model.config_reader import ConfigReader
from constrain.model.forward_context import ForwardContext
from constrain.model.layout import Shape
from constrain.model.modules import Module, RMSNorm
from constrain.model.tensor_files import TensorFiles
from constrain.model.tensor_reader import TensorSource
from constrain.model.traits import VisionTraits
from constrain.model.vision.config import (
    BILINEAR,
    MAX_AREA,
    MAX_PIXELS,
    ImageSettings,
    VisionConfig,
    image_reader,
    read_activation,
    read_images,
    read_shape,
)
from constrain.model.vision.encoder import ImageWords, SequentialEncoder
from constrain.model.vision.layers import (
    BlockNames,
    ImageAttention,
    PatchEmbedding,
    PositionTable,
    make_norm,
    unrotated,
)
from constrain.tokenizer.files import read_json_object

_PREFIXES = ("vision_tower.vision_model.", "vision_tower.", "model.vision_tower.vision_model.", "model.vision_tower.")
_PROJECTORS = ("multi_modal_projector", "model.multi_modal_projector")
_WEIGHT = "mm_input_projection_weight"
_DEFAULTS = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "patch_size": 14,
}
_HALVES = ImageSettings((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), BILINEAR)
_BLOCK = BlockNames(
    attention="self_attn",
    mlp="mlp",
    attention_norm="layer_norm1",
    mlp_norm="layer_norm2",
    output="out_proj",
    gate_up=("fc1",),
    down="fc2",
    fused=None,
    bias=True,
    rms=False,
    rotary=False,
)


@dataclass(frozen=True)
class SiglipConfig(VisionConfig):
    """A SigLIP vision tower, whose images are squares of one size.

    Attributes:
        image_size: their width and height.
    """

    image_size: int

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """Return the size of every image."""
        return self.image_size, self.image_size


def read_siglip(path: Path, traits: VisionTraits) -> SiglipConfig:
    """Read a ``config.json``, and the ``preprocessor_config.json`` beside it if there is one.

    Raises:
        ConfigError: a value is missing, of the wrong type, out of bounds or not supported.
    """
    reader = ConfigReader(path, [read_json_object(path), traits.defaults])
    vision, images = reader.section("vision_config"), image_reader(path)
    if images.boolean("do_pan_and_scan", False):
        raise images.error("do_pan_and_scan", "images that are divided into crops are not supported")
    shape = read_shape(vision, {}, _DEFAULTS)
    size = vision.integer("image_size", 896, high=math.isqrt(MAX_AREA))
    tokens = math.isqrt(reader.integer("mm_tokens_per_image", 256, high=MAX_PIXELS))
    patches = size // shape["patch_size"]
    if size % shape["patch_size"] or not tokens or patches % tokens:
        raise vision.error("image_size", f"{size} pixels are not {tokens} times a number of patches")
    return SiglipConfig(
        **shape,
        merge_size=patches // tokens,
        activation=read_activation(vision, "gelu_pytorch_tanh"),
        theta=1.0,
        norm_eps=vision.number("layer_norm_eps", 1e-6, high=1.0),
        images=read_images(images, _HALVES),
        image_size=size,
    )


class PoolingProjector(Module):
    """The mean of the patches of a square, a norm, and one projection."""

    def __init__(self, key: str, config: SiglipConfig, text_size: int) -> None:
        """Build from the name in the files, the config of the tower, and the hidden size of the text model."""
        super().__init__(key)
        self.side, self.shape = config.merge_size, (config.hidden_size, text_size)
        self.norm = RMSNorm(f"{key}.mm_soft_emb_norm", (config.hidden_size,), config.norm_eps, offset=1.0)
        self.weight = torch.empty(0)

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """Names and shapes of the tensors."""
        yield f"{self.norm.key}.weight", self.norm.shape
        yield f"{self.key}.{_WEIGHT}", self.shape

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield from self.norm.weights()
        yield [f"{self.key}.{_WEIGHT}"], math.prod(self.shape)

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        self.norm.load(source, self.device, dtype)
        self.weight = torch.empty(self.shape, dtype=dtype, device=self.device)
        source.copy(f"{self.key}.{_WEIGHT}", self.weight)

    def forward(self, x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Compute embeddings ``[rows, columns, text_size]`` from states ``[rows, columns, hidden]`` of patches."""
        pooled = F.avg_pool2d(x.permute(2, 0, 1), self.side).permute(1, 2, 0).contiguous()
        return self.norm.forward(pooled, context) @ self.weight


class SiglipEncoder(SequentialEncoder):
    """A tower of Gemma 3 with its projector."""

    words = ImageWords(
        "<image_soft_token>",
        "<start_of_image>",
        "\n\n<start_of_image><image_soft_token><end_of_image>\n\n",
        before="<start_of_image>",
        after="<end_of_image>",
    )

    def __init__(self, config: SiglipConfig, files: TensorFiles, text_size: int) -> None:
        """Build from a config, the files of the model, and the hidden size of its text model."""
        self.config: SiglipConfig
        at = next((each for each in _PREFIXES if f"{each}post_layernorm.weight" in files), _PREFIXES[0])
        key = next((each for each in _PROJECTORS if f"{each}.{_WEIGHT}" in files), _PROJECTORS[0])
        places = (config.image_size // config.patch_size) ** 2
        patches = PatchEmbedding(f"{at}embeddings.patch_embedding", config, bias=True)
        table = PositionTable(f"{at}embeddings.position_embedding", places, config.hidden_size)
        last = make_norm(f"{at}post_layernorm", config.hidden_size, config.norm_eps, rms=False)
        projector = PoolingProjector(key, config, text_size)
        super().__init__(config, [patches, table], _BLOCK, f"{at}encoder.layers", [last, projector])

    def attention(self, rows: int, columns: int) -> ImageAttention:
        return unrotated(self.dtype)
