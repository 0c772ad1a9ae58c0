"""The part of a config that describes the vision tower of a multimodal model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from constrain.kernels import Activation
from constrain.model.config_reader import ConfigReader
from constrain.model.traits import VisionTraits
from constrain.tokenizer.files import read_json_object

_MAX_WIDTH = 1 << 20
_MAX_LAYERS = 1 << 10
_MAX_PIXELS = 1 << 14
_ACTIVATIONS = {"gelu": Activation.GELU, "silu": Activation.SILU}
_SUPPORTED = {"vision_feature_layer": -1, "vision_feature_select_strategy": "full", "projector_hidden_act": "gelu"}
# Of CLIP, on whose images the towers are trained.
_MEAN, _SPREAD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class ImageSettings:
    """How pixels become the input of a tower.

    Attributes:
        longest_edge: larger images are made smaller, to this width or height in pixels.
        mean, spread: of each colour, from 0 to 1: the first is subtracted, and the second divides.
    """

    longest_edge: int
    mean: tuple[float, ...] = _MEAN
    spread: tuple[float, ...] = _SPREAD


@dataclass(frozen=True)
class VisionConfig:
    """A Pixtral vision tower, and its projector to the hidden states of the text model.

    Attributes:
        hidden_size, intermediate_size, num_hidden_layers, num_attention_heads: shape of the tower.
        patch_size: width and height of a patch in pixels.
        merging: the projector has a norm and a layer that merges a square of patches.
        merge_size: width and height of the square of patches that become one embedding.
        activation: of the gates of the MLPs.
        theta: base of the rotations.
        projector_bias: whether the projector has biases.
        projector_eps: what the norm of the projector adds to the mean square.
        images: how pixels become its input.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    patch_size: int
    merging: bool
    merge_size: int
    activation: Activation
    theta: float
    projector_bias: bool
    projector_eps: float
    images: ImageSettings

    @property
    def head_dim(self) -> int:
        """Number of features of a head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def cell(self) -> int:
        """Width and height of what becomes one embedding, in pixels."""
        return self.patch_size * self.merge_size


def read_vision(path: Path, traits: VisionTraits) -> VisionConfig:
    """Read a ``config.json``, and the ``preprocessor_config.json`` beside it if there is one.

    Raises:
        ConfigError: a value is missing, of the wrong type, out of bounds or not supported.
    """
    reader = ConfigReader(path, [read_json_object(path), traits.defaults])
    vision = reader.section("vision_config")
    for key, value in _SUPPORTED.items():
        if reader.raw(key, value) != value:
            raise reader.error(key, f"{reader.raw(key)!r} is not supported; supported is {value!r}")
    name = vision.text("hidden_act", "gelu")
    if name not in _ACTIVATIONS:
        raise vision.error("hidden_act", f"{name!r} is not supported; supported are {', '.join(_ACTIVATIONS)}")
    hidden, heads = vision.integer("hidden_size", 1024, high=_MAX_WIDTH), _heads(vision)
    if hidden % heads or hidden // heads % 4:
        raise vision.error("hidden_size", f"{hidden} are no {heads} heads of a multiple of 4 features")
    return VisionConfig(
        hidden_size=hidden,
        intermediate_size=vision.integer("intermediate_size", 4096, high=_MAX_WIDTH),
        num_hidden_layers=vision.integer("num_hidden_layers", 24, high=_MAX_LAYERS),
        num_attention_heads=heads,
        patch_size=vision.integer("patch_size", 16, high=_MAX_PIXELS),
        merging=traits.merging,
        merge_size=reader.integer("spatial_merge_size", 2, high=16) if traits.merging else 1,
        activation=_ACTIVATIONS[name],
        theta=_theta(vision),
        projector_bias=reader.boolean("multimodal_projector_bias", False),
        projector_eps=reader.section("text_config").number("rms_norm_eps", 1e-5, high=1.0),
        images=_read_images(path.parent / "preprocessor_config.json", vision),
    )


def _heads(vision: ConfigReader) -> int:
    return int(vision.integer("num_attention_heads", 16, high=_MAX_WIDTH))


def _theta(vision: ConfigReader) -> float:
    newer = vision.section("rope_parameters").number("rope_theta", None, low=1.0)
    return float(newer or vision.number("rope_theta", 10_000.0, low=1.0))


def _read_images(path: Path, vision: ConfigReader) -> ImageSettings:
    largest = vision.integer("image_size", 1024, high=_MAX_PIXELS)
    if not path.is_file():
        return ImageSettings(largest)
    reader = ConfigReader(path, [read_json_object(path)])
    return ImageSettings(
        reader.section("size").integer("longest_edge", largest, high=_MAX_PIXELS),
        reader.numbers("image_mean", 3) if reader.has("image_mean") else _MEAN,
        reader.numbers("image_std", 3) if reader.has("image_std") else _SPREAD,
    )
