"""Settings of all vision towers: shape, and the preprocessing of pixels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from constrain.kernels import Activation
from constrain.model.config_reader import ConfigReader
from constrain.tokenizer.files import read_json_object

MAX_WIDTH = 1 << 20
MAX_LAYERS = 1 << 10
MAX_PIXELS = 1 << 14
#: Small images are made larger: up to this width times height, so that a checkpoint cannot ask for all memory.
MAX_AREA = 1 << 26
ACTIVATIONS = {
    "gelu": Activation.GELU,
    "silu": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "quick_gelu": Activation.QUICK_GELU,
}
# Of CLIP, on whose images many towers are trained.
_MEAN, _SPREAD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
#: Numbers of Pillow for methods of resampling.
BILINEAR, BICUBIC = 2, 3


@dataclass(frozen=True)
class ImageSettings:
    """How the colours of pixels become the input of a tower, and how images are resized.

    Attributes:
        mean, spread: of each colour, from 0 to 1: the first is subtracted, and the second divides.
        resample: the method, by Pillow's number.
    """

    mean: tuple[float, ...] = _MEAN
    spread: tuple[float, ...] = _SPREAD
    resample: int = BICUBIC


@dataclass(frozen=True)
class VisionConfig(ABC):
    """The shape of a vision tower.

    Attributes:
        hidden_size, intermediate_size, num_hidden_layers, num_attention_heads: shape of its layers.
        patch_size: width and height of a patch in pixels.
        merge_size: width and height of the square of patches that become one embedding.
        activation: of the MLPs.
        theta: base of the rotations, if there are any.
        norm_eps: what norms add to the mean square.
        images: how pixels become its input.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    patch_size: int
    merge_size: int
    activation: Activation
    theta: float
    norm_eps: float
    images: ImageSettings

    @property
    def head_dim(self) -> int:
        """Number of features of a head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def cell(self) -> int:
        """Width and height of what becomes one embedding, in pixels."""
        return self.patch_size * self.merge_size

    @abstractmethod
    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width to which an image is resized, both multiples of ``cell``.

        Raises:
            ArgumentError: no image of such a form is read.
        """


def read_activation(vision: ConfigReader, default: str, known: tuple[str, ...] = tuple(ACTIVATIONS)) -> Activation:
    """Read the activation of a tower, one of ``known``."""
    name = vision.text("hidden_act", default)
    if name not in known:
        raise vision.error("hidden_act", f"{name!r} is not supported; supported are {', '.join(known)}")
    return ACTIVATIONS[name]


def read_shape(vision: ConfigReader, keys: dict[str, str], defaults: dict[str, int]) -> dict[str, Any]:
    """Read the fields of :class:`VisionConfig` that are sizes.

    Args:
        vision: the section of the tower.
        keys: names of fields in the file, where they have others.
        defaults: sizes that the file may leave out.
    """
    limits = {"num_hidden_layers": MAX_LAYERS, "patch_size": MAX_PIXELS}
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "patch_size")
    found: dict[str, Any] = {
        name: vision.integer(keys.get(name, name), defaults[name], high=limits.get(name, MAX_WIDTH)) for name in names
    }
    hidden, heads = found["hidden_size"], found["num_attention_heads"]
    if hidden % heads or hidden // heads % 4:
        key = keys.get("hidden_size", "hidden_size")
        raise vision.error(key, f"{hidden} are no {heads} heads of a multiple of 4 features")
    return found


def read_theta(vision: ConfigReader) -> float:
    """Read the base of the rotations."""
    newer = vision.section("rope_parameters").number("rope_theta", None, low=1.0)
    return float(newer or vision.number("rope_theta", 10_000.0, low=1.0))


def image_reader(path: Path) -> ConfigReader:
    """Return a reader of what the folder of a ``config.json`` says of its images; of nothing if it says nothing.

    That is ``preprocessor_config.json``, or ``image_processor`` in ``processor_config.json``, as newer versions of
    transformers write it.
    """
    found = path.parent / "preprocessor_config.json"
    if found.is_file():
        return ConfigReader(found, [read_json_object(found)])
    found = path.parent / "processor_config.json"
    whole = ConfigReader(found, [read_json_object(found) if found.is_file() else {}])
    return whole.section("image_processor")


def read_images(reader: ConfigReader, default: ImageSettings) -> ImageSettings:
    """Read how colours become input."""
    return ImageSettings(
        reader.numbers("image_mean", 3) if reader.raw("image_mean", None) else default.mean,
        reader.numbers("image_std", 3) if reader.raw("image_std", None) else default.spread,
        reader.integer("resample", default.resample, low=0, high=5),
    )
