"""``ExLlamaV2VisionTower``: images as embeddings of a text model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from tqdm import tqdm

from constrain.errors import GenerationError, ModelError
from constrain.model.config import ExLlamaV2Config
from constrain.model.devices import default_dtype
from constrain.model.embeddings import ExLlamaV2MMEmbedding
from constrain.model.forward_context import ForwardContext
from constrain.model.layout import Shape
from constrain.model.modules import Module, RMSNorm
from constrain.model.vision.images import pixels_of
from constrain.model.vision.layers import NORM_EPS, image_attention, layer_layout, layer_modules, layer_tensors
from constrain.model.vision.projector import Projector
from constrain.model.vision_config import VisionConfig, read_vision

_COLOURS = 3
_PREFIXES = ("", "model.")
_END_OF_ROW, _END_OF_IMAGE = "[IMG_BREAK]", "[IMG_END]"


class TokenNames(Protocol):
    """What a tower needs of a tokenizer."""

    def single_id(self, token: str) -> int | None:
        """Id of the token with exactly this text."""


class ExLlamaV2VisionTower:
    """The vision tower of a multimodal model, with the projector to the embeddings of its text model.

    Towers of Pixtral are read, as Pixtral and Mistral 3 have them.

    Attributes:
        config: the config of the model.
        vision: that of the tower.
        modules: first norm, attention and MLP of every layer, and the projector.
        device, dtype: of weights and computation, once loaded.
        loaded: whether the weights are loaded.
        image_token: the token that chat templates write for an image.
    """

    image_token = "[IMG]"

    def __init__(self, config: ExLlamaV2Config) -> None:
        """Build the modules of a prepared config, without weights.

        Raises:
            ConfigError: a value is missing, of the wrong type, out of bounds or not supported.
            ModelError: the model has no vision tower of a kind that is read.
            WeightsError: a tensor is missing, or of the wrong shape or type.
        """
        traits = config.arch.vision if config.vision_model_type else None
        if traits is None or config.files is None:
            raise ModelError(
                f"{config.model_dir}: has no vision tower that is read; those of Mistral 3 and Pixtral are"
            )
        self.config, self._files = config, config.files
        self.vision: VisionConfig = read_vision(Path(config.model_config), traits)
        prefix = next((each for each in _PREFIXES if f"{each}vision_tower.patch_conv.weight" in self._files), "")
        at = f"{prefix}vision_tower."
        self._patches = f"{at}patch_conv.weight"
        count = self.vision.num_hidden_layers
        self._layouts = [layer_layout(self.vision, f"{at}transformer.layers.{number}.") for number in range(count)]
        self.modules: list[Module] = [
            RMSNorm(f"{at}ln_pre", (self.vision.hidden_size,), NORM_EPS),
            *(part for index, each in enumerate(self._layouts) for part in layer_modules(self.vision, each, index)),
        ]
        self.projector = Projector(f"{prefix}multi_modal_projector", self.vision, config.hidden_size)
        self.device, self.dtype, self.loaded = torch.device("cpu"), torch.float32, False
        self._patch_weight = torch.empty(0)
        for key, shape in self._tensors():
            self._files.require(key, shape)

    def load(self, progress: bool = False) -> None:
        """Load the weights, to the first GPU or the CPU where there is none.

        Args:
            progress: show a bar on the console.

        Raises:
            WeightsError: a file changed or vanished since the config was prepared.
        """
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        self.dtype = self.config.compute_dtype or default_dtype(self.device, self._files.dtype(self._patches))
        self._patch_weight = torch.empty(self._patch_shape(), dtype=self.dtype, device=self.device)
        with self._files.kept_open() as source:
            source.copy(self._patches, self._patch_weight)
            for module in tqdm([*self.modules, self.projector], desc="Loading", disable=not progress):
                module.load(source, self.device, self.dtype)
        self.loaded = True

    def get_image_embeddings(
        self,
        model: Any,
        tokenizer: TokenNames,
        image: Any,
        text_alias: str | None = None,
        embeddings_cpu: bool = True,
    ) -> ExLlamaV2MMEmbedding:
        """Compute the embeddings by which a prompt refers to an image.

        An embedding stands for a square of patches; those of a row are followed by that of the token ``[IMG_BREAK]``,
        and those of the last row by that of ``[IMG_END]``.

        Args:
            model: the loaded text model.
            tokenizer: its tokenizer.
            image: an image of PIL.
            text_alias: see :class:`~constrain.model.ExLlamaV2MMEmbedding`.
            embeddings_cpu: keep the embeddings on the CPU.

        Raises:
            ArgumentError: ``image`` is no image.
            GenerationError: tower or model are not loaded, or the tokenizer has not the tokens of images.
        """
        found = self.embeddings_of_pixels(model, tokenizer, self.pixels(image), text_alias)
        if not embeddings_cpu:
            found.embeddings = found.embeddings.to(self.device)
        return found

    def expanded(self, text: str) -> str:
        """Return a rendered chat with all that the model reads around images, see :attr:`image_token`."""
        return text

    def length(self, pixels: torch.Tensor) -> int:
        """Return the number of embeddings of what :meth:`pixels` returns, those after its rows included."""
        rows, columns = (side // self.vision.cell for side in pixels.shape[1:])
        return rows * (columns + 1)

    def pixels(self, image: Any) -> torch.Tensor:
        """Return the input of the tower for an image, see :func:`constrain.model.vision.images.pixels_of`.

        Raises:
            ArgumentError: ``image`` is no image.
        """
        return pixels_of(image, self.vision)

    def embeddings_of_pixels(
        self, model: Any, tokenizer: TokenNames, pixels: torch.Tensor, text_alias: str | None = None
    ) -> ExLlamaV2MMEmbedding:
        """:meth:`get_image_embeddings` of what :meth:`pixels` returns, on the CPU."""
        if not model.loaded:
            raise GenerationError("the text model is not loaded; call load() first")
        ends = [tokenizer.single_id(_END_OF_ROW), tokenizer.single_id(_END_OF_IMAGE)]
        if None in ends:
            raise GenerationError(
                f"the tokenizer has no {_END_OF_ROW} and {_END_OF_IMAGE}, by which rows of images end"
            )
        features = self.features(pixels)
        rows, _, hidden = features.shape
        ids = torch.tensor([[ends[0]] * (rows - 1) + [ends[1]]])
        context = ForwardContext(image_attention(self.vision, 1, 1, self.dtype))
        with torch.inference_mode():
            after = model.modules[0].forward(ids, context).view(rows, 1, hidden).to(features)
            embeddings = torch.cat((features, after), dim=1).flatten(0, 1)
        return ExLlamaV2MMEmbedding(model, embeddings.cpu(), text_alias)

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Compute the embeddings of an image, without those after its rows.

        Args:
            pixels: float32 ``[3, height, width]``, both multiples of ``vision.cell``.

        Returns:
            ``[rows, columns, hidden size of the text model]``.

        Raises:
            GenerationError: the tower is not loaded.
        """
        if not self.loaded:
            raise GenerationError("the vision tower is not loaded; call load() first")
        size = self.vision.patch_size
        rows, columns = (side // size for side in pixels.shape[1:])
        context = ForwardContext(image_attention(self.vision, rows, columns, self.dtype).to(self.device))
        with torch.inference_mode():
            patches = F.conv2d(pixels.to(self.device, self.dtype).unsqueeze(0), self._patch_weight, stride=size)
            x = patches.flatten(2).transpose(1, 2).contiguous()
            for module in self.modules:
                x = module.forward(x, context)
            return self.projector.forward(x.view(rows, columns, -1), context)

    def _patch_shape(self) -> Shape:
        return self.vision.hidden_size, _COLOURS, self.vision.patch_size, self.vision.patch_size

    def _tensors(self) -> Iterator[tuple[str, Shape]]:
        """All tensors that the files must have."""
        yield self._patches, self._patch_shape()
        yield f"{self.modules[0].key}.weight", (self.vision.hidden_size,)
        for layout in self._layouts:
            yield from layer_tensors(self.vision, layout)
        yield from self.projector.tensors()
